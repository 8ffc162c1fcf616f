from socket import socket
from typing import Any

class HTTPConnection:
    def __init__(self, server: Any, sock: socket, makefile: Any = ...) -> None: ...
