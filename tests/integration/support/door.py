"""A chain's door that can hold, drop and count what goes through it: for faults between a client
and its chain.
"""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Answer = tuple[int, bytes, str]
Keeper = Callable[[str, str, Callable[[], Answer]], Answer | None]
"""Given method, path and what forwards the request, says what to answer; None cuts the line."""


class Door:
    """Where it listens, and the keeper that may be changed at any time."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self.target = f"{parts.scheme}://{parts.netloc}"
        self.path = parts.path
        self.url = ""
        self.keeper: Keeper = lambda _method, _path, forward: forward()
        self.asked: list[tuple[str, str]] = []

    def forward(self, method: str, path: str, body: bytes, kind: str) -> Answer:
        headers = {"Content-Type": kind} if kind else {}
        request = urllib.request.Request(self.target + path, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read(), answer.headers.get("Content-Type", "")
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read(), refused.headers.get("Content-Type", "")


@contextmanager
def door(target: str) -> Generator[Door]:
    """A door in front of *target*."""
    made = Door(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass("GET")

        def do_POST(self) -> None:
            self._pass("POST")

        def _pass(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = self.headers.get("Content-Type", "")
            made.asked.append((method, self.path))
            answer = made.keeper(
                method, self.path, lambda: made.forward(method, self.path, body, kind)
            )
            if answer is None:
                self.close_connection = True
                return
            status, data, content = answer
            try:
                self.send_response(status)
                self.send_header("Content-Type", content)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # whoever asked is dead
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}{made.path}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
