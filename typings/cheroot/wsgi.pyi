from socket import socket
from typing import Any

from cheroot.server import HTTPConnection

class Gateway_10:
    req: Any
    def respond(self) -> None: ...
    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = ...
    ) -> Any: ...

class Server:
    bind_addr: tuple[str, int]
    gateway: type[Gateway_10]
    ConnectionClass: type[HTTPConnection]
    socket: socket
    max_request_header_size: int
    def __init__(
        self,
        bind_addr: tuple[str, int],
        wsgi_app: Any,
        numthreads: int = ...,
        server_name: str | None = ...,
        request_queue_size: int = ...,
        timeout: int = ...,
    ) -> None: ...
    def prepare(self) -> None: ...
    def serve(self) -> None: ...
