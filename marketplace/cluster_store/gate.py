"""Who reaches which store, request by request.

A token names its store and whom it lets in, and only market and server can make one. A lease's
opens nothing unless the market said lately that the lease lives: so a member that was lost cannot
write beside its replacement, and where the market is not heard none can. An owner's is over by
itself; it makes no store, and removes none. What is asked of a store as a whole, how much it holds
and that it goes, the market alone asks.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from marketplace.cluster_store.habits import Answer, Environ, Habits
from marketplace.cluster_store.places import MOST, Leaving, Places
from marketplace.domain.work.cluster_store import HEARD_S, Leave

METHODS: Final = frozenset(
    {"OPTIONS", "GET", "HEAD", "PROPFIND", "PUT", "MKCOL", "MOVE", "DELETE"}
)  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z0-9 ._~=+@,-]{1,255}")
LONGEST: Final = 4096
"""A path, as Linux has it."""
ASKED: Final = 64 << 10
"""Bytes of a question about a folder."""
HIDDEN: Final = ".tally-"
"""Begins the names of what is on its way."""

_BLIND: Final = "503 Service Unavailable", "STORE_BLIND", "the market says nothing just now"
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
            self._want_heard()
            return self._stores.get(lease)

    def uses(self, store: str) -> bool:
        """Whether a lease that lives does. :class:`Unheard`."""
        with self._lock:
            self._want_heard()
            return store in self._stores.values()

    def _want_heard(self) -> None:
        if self._heard is None or self._clock() - self._heard > HEARD_S:
            raise Unheard


class Unheard(Exception):
    """The market was not heard for too long."""


@dataclass(frozen=True, slots=True)
class Held:
    """How much is in a store; *entries*: files and folders; *used_s*: when it was used last, since
    1970.
    """

    bytes: int
    entries: int
    used_s: int


class Shelf(Protocol):
    """What is asked of a store as a whole; :mod:`.folders` has it."""

    def has(self, store: str) -> bool:
        """Whether it is there."""
        ...

    def holds(self, store: str) -> Held | None:
        """How much is in it; None: it is not there."""
        ...

    def remove(self, store: str) -> bool:
        """It goes, with all that is in it; False: it is not there."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether a file is at *path*, which begins with its store."""
        ...


class Gate:
    """Before *app*, which serves all stores below ``/``; *shelf*: has them as a whole."""

    def __init__(
        self, app: App, shelf: Shelf, secret: bytes, living: Living,
        now_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._app = app
        self._shelf = shelf
        self._secret = secret
        self._living = living
        self._now_s = now_s
        self._habits = Habits(shelf.is_file)
        self._places = Places()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        kind, _, said = str(environ.get("HTTP_AUTHORIZATION", "")).partition(" ")
        leave = Leave.opened(self._secret, said.strip()) if kind == "Bearer" else None
        refused = self._refused(leave, environ)
        if refused is None and leave is not None and leave.kind == "market":
            return self._whole(leave.store, environ["REQUEST_METHOD"], start_response)
        refused = refused or self._habits.refuse(environ)
        if refused is None:
            who = (
                environ["tally.lease"] or environ["tally.store"],
                environ["REQUEST_METHOD"] == "GET",
            )
            if not self._places.take(who):
                refused = "503 Service Unavailable", "STORE_BUSY", f"{MOST} requests are under way"
            elif (refused := self._over(leave)) is not None:  # while it waited
                self._places.leave(who)
            else:
                return self._passed(environ, start_response, partial(self._places.leave, who))
        if leave is not None and _within(environ.get("PATH_INFO", ""), leave.store):
            self._habits.refused(environ)
        status, code, why = refused
        return _answer(start_response, status, {"code": code, "message": why})

    def _passed(
        self, environ: Environ, start_response: StartResponse, free: Callable[[], None]
    ) -> Iterable[bytes]:
        noting = self._habits.noting(environ)

        def answer(status: str, *more: Any) -> Any:
            noting.answered(status)
            return start_response(status, *more)

        def leave() -> None:
            noting.over()
            free()

        try:
            return Leaving(self._app(environ, answer), leave)
        except BaseException:
            leave()
            raise

    def _whole(self, store: str, method: str, start_response: StartResponse) -> Iterable[bytes]:
        """The market asks how much is in it, or has it removed."""
        said: dict[str, object] | None
        try:
            used = method == "DELETE" and self._living.uses(store)
        except Unheard:
            return _answer(start_response, _BLIND[0], {"code": _BLIND[1], "message": _BLIND[2]})
        if used:
            why = {"code": "STORE_IN_USE", "message": "a lease that lives uses it"}
            return _answer(start_response, "409 Conflict", why)
        if method == "DELETE":
            said = {"removed": True} if self._shelf.remove(store) else None
        else:
            held = self._shelf.holds(store)
            said = None if held is None else asdict(held)
        if said is None:
            why = {"code": "STORE_GONE", "message": "there is no such store"}
            return _answer(start_response, "404 Not Found", why)
        return _answer(start_response, "200 OK", said)

    def _over(self, leave: Leave | None) -> Answer | None:
        """Why it opens nothing now."""
        if leave is None:
            return "401 Unauthorized", "STORE_TOKEN", "no token of this market's"
        try:
            if leave.kind == "member" and self._living.store_of(leave.lease) != leave.store:
                return "403 Forbidden", "STORE_LEASE_OVER", f"{leave.lease} does not live"
        except Unheard:
            return _BLIND
        if leave.kind != "member" and leave.until_s <= self._now_s():
            return "403 Forbidden", "STORE_PASS_OVER", "its time is over: ask for another"
        return None

    def _refused(self, leave: Leave | None, environ: Environ) -> Answer | None:
        over = self._over(leave)
        if leave is None or over is not None:
            return over
        store, method = leave.store, environ["REQUEST_METHOD"]
        path = environ.get("PATH_INFO", "")
        if leave.kind == "market":
            if method not in ("GET", "DELETE") or path.strip("/") != store:
                return "403 Forbidden", "STORE_PATH", "the token is of a store as a whole"
            return None
        if method not in METHODS:
            return "405 Method Not Allowed", "STORE_METHOD", f"{method} is not served"
        if method == "PROPFIND" and environ.get("HTTP_DEPTH", "infinity") not in ("0", "1"):
            return "403 Forbidden", "STORE_METHOD", "a listing is of one folder"
        if not _right_body(environ):
            return "413 Content Too Large", "STORE_BODY", "only a file's content is large"
        if not _within(path, store) or (method == "DELETE" and path.strip("/") == store):
            return "403 Forbidden", "STORE_PATH", "the token is of another folder"
        if method == "MOVE":
            to = urlsplit(str(environ.get("HTTP_DESTINATION", ""))).path
            if path.strip("/") == store or not _within(unquote(to), store):
                return "403 Forbidden", "STORE_PATH", "the token is of another folder"
            environ["HTTP_DESTINATION"] = to  # whatever host stands before this server
        if leave.kind == "owner" and not self._shelf.has(store):
            return "404 Not Found", "STORE_GONE", "it was removed, or no cluster wrote to it yet"
        environ["tally.store"] = store
        environ["tally.lease"] = leave.lease if leave.kind == "member" else ""
        environ["tally.over"] = partial(self._over, leave)
        return None


def _answer(
    start_response: StartResponse, status: str, said: Mapping[str, object]
) -> Iterable[bytes]:
    body = json.dumps(said).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if status.startswith("401"):
        headers.append(("WWW-Authenticate", "Bearer"))
    start_response(status, headers)
    return [body]


def _within(path: str, store: str) -> bool:
    """Whether *path* is the store or something in it that may be named. Encrypted names are letters
    and digits; of what else there is, servers and libraries make each something of their own.
    """
    first, *inner = path.strip("/").split("/")
    good = all(
        _NAME.fullmatch(one) and one not in (".", "..") and not one.startswith(HIDDEN)
        for one in inner
    )
    return path.startswith("/") and first == store and good and len(path) <= LONGEST


def _right_body(environ: Environ) -> bool:
    """Whether its body is of a size that its method has; of a file any, also unsaid."""
    method, said = environ["REQUEST_METHOD"], str(environ.get("CONTENT_LENGTH") or "0")
    chunked = bool(environ.get("HTTP_TRANSFER_ENCODING"))
    if not said.isdecimal() or (chunked and method != "PUT"):
        return False
    return method == "PUT" or int(said) <= (ASKED if method == "PROPFIND" else 0)
