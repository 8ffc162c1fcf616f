"""Who reaches which store, request by request.

A token names its store and its lease, and only market and server can make one. It opens nothing
unless the market said lately that the lease lives: so a member that was lost cannot write beside
its replacement, and where the market is not heard nobody can.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from marketplace.domain.work.cluster_store import opened

HEARD_S: Final = 30.0
"""For so long after the market's last word its leases are taken to live."""
METHODS: Final = frozenset(
    {"OPTIONS", "GET", "HEAD", "PROPFIND", "PUT", "MKCOL", "MOVE", "DELETE"}
)  # fmt: skip
SPARED_S: Final = 10.0
HIDDEN: Final = ".tally-"
"""Begins the names of what is on its way."""

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class Living:
    """The leases that live, and the store of each, as the market said last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stores: dict[str, str] = {}
        self._heard: float | None = None

    def told(self, stores: dict[str, str]) -> None:
        """The market's word: store by lease."""
        with self._lock:
            self._stores, self._heard = dict(stores), self._clock()

    def store_of(self, lease: str) -> str | None:
        """Its store; None for one that does not live. :class:`Unheard`."""
        with self._lock:
            if self._heard is None or self._clock() - self._heard > HEARD_S:
                raise Unheard
            return self._stores.get(lease)


class Unheard(Exception):
    """The market was not heard for too long."""


class Gate:
    """Before *app*, which serves all stores below ``/``."""

    def __init__(self, app: App, secret: bytes, living: Living) -> None:
        self._app = app
        self._secret = secret
        self._living = living
        self._lock = threading.Lock()
        self._failed: dict[str, float] = {}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        refused = self._refused(environ) or self._spared(environ)
        if refused is None:
            return self._app(environ, self._noting(environ, start_response))
        status, code, why = refused
        body = json.dumps({"code": code, "message": why}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status.startswith("401"):
            headers.append(("WWW-Authenticate", "Bearer"))
        # What it sends is not read: the next request would begin within it.
        start_response(status, [*headers, ("Connection", "close")])
        return [body]

    def _noting(self, environ: Environ, start_response: StartResponse) -> StartResponse:
        """Which files could not be written."""
        path = environ["PATH_INFO"]

        def answered(status: str, *more: Any) -> Any:
            if environ["REQUEST_METHOD"] == "PUT" and status[:1] != "2":
                now = time.monotonic()
                with self._lock:
                    self._failed = {
                        one: at for one, at in self._failed.items() if now - at < SPARED_S
                    } | {path: now}
            return start_response(status, *more)

        return answered

    def _spared(self, environ: Environ) -> tuple[str, str, str] | None:
        """rclone removes what it could not write (``backend/webdav``, ``Update``), thus the file of
        before with it, which is here still: that one removal is refused, and it minds that not.
        """
        if environ["REQUEST_METHOD"] != "DELETE":
            return None
        with self._lock:
            at = self._failed.pop(environ["PATH_INFO"], None)
        if at is None or time.monotonic() - at > SPARED_S:
            return None
        return "409 Conflict", "STORE_KEPT", "its last write failed: what was there before stays"

    def _refused(self, environ: Environ) -> tuple[str, str, str] | None:
        kind, _, said = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        known = opened(self._secret, said.strip()) if kind == "Bearer" else None
        if known is None:
            return "401 Unauthorized", "STORE_TOKEN", "no token of this market's"
        store, lease = known
        try:
            lives = self._living.store_of(lease) == store
        except Unheard:
            return "503 Service Unavailable", "STORE_BLIND", "the market says nothing just now"
        if not lives:
            return "403 Forbidden", "STORE_LEASE_OVER", f"{lease} does not live"
        method = environ["REQUEST_METHOD"]
        if method not in METHODS:
            return "405 Method Not Allowed", "STORE_METHOD", f"{method} is not served"
        if method == "PROPFIND" and environ.get("HTTP_DEPTH", "infinity") not in ("0", "1"):
            return "403 Forbidden", "STORE_METHOD", "a listing is of one folder"
        path = environ.get("PATH_INFO", "")
        if not _within(path, store) or (method == "DELETE" and path.strip("/") == store):
            return "403 Forbidden", "STORE_PATH", "the token is of another folder"
        if method == "MOVE":
            to = urlsplit(str(environ.get("HTTP_DESTINATION", ""))).path
            if path.strip("/") == store or not _within(unquote(to), store):
                return "403 Forbidden", "STORE_PATH", "the token is of another folder"
            environ["HTTP_DESTINATION"] = to  # whatever host stands before this server
        environ["tally.store"] = store
        return None


def _within(path: str, store: str) -> bool:
    """Whether *path* is the store or something in it that may be named."""
    first, *inner = path.strip("/").split("/")
    good = all(
        one not in ("", ".", "..") and not one.startswith(HIDDEN) and "\0" not in one
        for one in inner
    )
    return path.startswith("/") and first == store and good
