"""The process that serves the market's stores, until what began it closes this one's input.

``python -m marketplace.cluster_store.serving FOLDER BYTES HOST PORT KEEP_S``; the first line of its
input is the secret in hex, each further one the leases that live, as JSON: store by lease.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cheroot.server import HTTPConnection
from cheroot.wsgi import Gateway_10, Server
from wsgidav.wsgidav_app import WsgiDAVApp

from marketplace.cluster_store.folders import GOING, Room, Stores
from marketplace.cluster_store.gate import Environ, Gate, Living, StartResponse

THREADS: Final = 512
STACK: Final = 512 << 10
"""Each waits for somebody's bytes most of the time (:mod:`.places`)."""
HEAD_S: Final = 10
HEAD: Final = 64 << 10
"""A request's head: each byte of it within this time, and so many bytes."""
IDLE_S: Final = 150
"""A member that is frozen while it writes sends nothing for as long."""
READ_S: Final = 10
"""Who reads nothing for as long asks again for what is left, as rclone does."""
SWEEP_S: Final = 3600.0
THROWN: Final = 64 << 20
THROWN_S: Final = 5.0
"""Of what a refused request still sends, so many bytes are read, and for so long."""
PIECE: Final = 64 << 10
CHUNK: Final = 1 << 20
SAID: Final = 256
"""A chunk's bytes, and those of the line before it; rclone sends 32 KiB."""
MEMORY: Final = 2 << 30
"""A member that sends a chunk of gigabytes gets an error, and takes no other's memory."""


def app_of(root: Path, most: int, secret: bytes, living: Living) -> Any:
    """What serves all stores below *root*, with *most* bytes in each."""
    logging.getLogger("wsgidav").setLevel(logging.ERROR)
    room = Room(root, most)
    dav = WsgiDAVApp(
        {
            "provider_mapping": {"/": Stores(root, room)},
            "simple_dc": {"user_mapping": {"*": True}},  # the gate asks
            "http_authenticator": {"accept_basic": True, "accept_digest": False,
                                   "default_to_digest": False},
            "lock_storage": None,
            "property_manager": None,
            "dir_browser": {"enable": False},
            "suppress_version_info": True,
            "logging": {"enable": False},
            "verbose": 1,
        }
    )  # fmt: skip

    def served(environ: Environ, start_response: StartResponse) -> Any:
        if environ["tally.lease"]:  # its owner makes none, and reading keeps none
            folder = root / environ["tally.store"]
            folder.mkdir(mode=0o700, exist_ok=True)
            os.utime(folder)  # when it was used last
        environ.pop("HTTP_AUTHORIZATION", None)
        return dav(environ, start_response)

    return Gate(served, room, secret, living)


def sweep(root: Path, keep_s: float, now: float) -> list[str]:
    """Remove stores that nobody used for *keep_s*; which they were."""
    gone: list[str] = []
    for folder in root.iterdir():
        with suppress(FileNotFoundError):  # its owner removes it just now
            store = len(folder.name) == 32 and folder.is_dir()
            left = folder.name.startswith(GOING)  # by a removal that the disk did not let be done
            if (store or left) and now - folder.stat().st_mtime > keep_s:
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(folder.name)
    return gone


class Pieces:
    """What comes over *line*, in chunks of :data:`CHUNK` at most: cheroot takes the memory for all
    of one before any of it has come.
    """

    def __init__(self, line: Any) -> None:
        self._line = line

    def readline(self) -> bytes:
        """What says how long the next chunk is; ValueError for a line that does not end."""
        said: bytes = self._line.readline(SAID)
        if not said.endswith(b"\n"):
            raise ValueError("no chunk")
        return said

    def read(self, size: int) -> bytes:
        """A chunk; ValueError for a larger one."""
        if not 0 <= size <= CHUNK:
            raise ValueError(f"a chunk is {CHUNK} bytes at most")
        return self._line.read(size)


class Line(HTTPConnection):
    """A connection; each byte of a request's head has little time, and it may be idle for longer
    between two.
    """

    def __init__(self, server: Any, sock: socket.socket, *more: Any) -> None:
        super().__init__(server, sock, *more)
        sock.settimeout(HEAD_S)


class Closing(Gateway_10):
    """Of a request that is answered before it was read to its end, cheroot reads the rest into
    memory, however long it is, or takes it for the next request. Here a part is thrown away, so
    that most see the answer, and the connection is closed.
    """

    def respond(self) -> None:
        """The whole of it, each byte within its time."""
        line = self.req.conn.socket
        if self.req.chunked_read:
            self.req.rfile.rfile = Pieces(self.req.rfile.rfile)
        line.settimeout(READ_S if self.req.method == b"GET" else IDLE_S)
        try:
            super().respond()
        finally:
            line.settimeout(HEAD_S)

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Any:
        """As WSGI has it."""
        rest = self.req.rfile
        unread = not rest.closed if self.req.chunked_read else getattr(rest, "remaining", 0) != 0
        if unread:
            self.req.close_connection = True
            _throw_away(rest, self.req.conn.socket)
        return super().start_response(status, headers, exc_info)


def _throw_away(rest: Any, line: socket.socket) -> None:
    def over() -> None:
        with suppress(OSError):  # it is closed already
            line.shutdown(socket.SHUT_RD)

    left, limit = THROWN, threading.Timer(THROWN_S, over)  # a timeout would begin anew at each byte
    limit.start()
    with suppress(OSError, ValueError):  # it sends no more, or what is no chunk
        while left > 0 and (piece := rest.read(min(left, PIECE))):
            left -= len(piece)
    limit.cancel()


def _forever(root: Path, keep_s: float) -> None:
    while True:
        sweep(root, keep_s, time.time())
        time.sleep(SWEEP_S)


def main() -> None:
    """See above."""
    folder, most, host, port, keep_s = sys.argv[1:]
    root = Path(folder)
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    threading.stack_size(STACK)
    secret, living = bytes.fromhex(sys.stdin.readline()), Living()
    server = Server(
        (host, int(port)),
        app_of(root, int(most), secret, living),
        numthreads=THREADS,
        request_queue_size=THREADS,
        timeout=IDLE_S,
        server_name="tally",
    )
    server.ConnectionClass = Line
    server.gateway = Closing
    server.max_request_header_size = HEAD
    server.prepare()
    # Of a port that the kernel chose cheroot does not say so: who is begun after a crash takes it,
    # whatever connections of before are not forgotten yet.
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    threading.Thread(target=server.serve, daemon=True).start()
    threading.Thread(target=_forever, args=(root, float(keep_s)), daemon=True).start()
    print(json.dumps({"port": server.bind_addr[1]}), flush=True)  # noqa: T201
    try:
        for line in sys.stdin:
            living.told(json.loads(line))
    finally:  # what is on its way is tried again by who sends it
        os._exit(0)


if __name__ == "__main__":
    main()
