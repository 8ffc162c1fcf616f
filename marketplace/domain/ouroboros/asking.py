"""A conversation with a relay, without IO: handshake, then its tip and whether it lives.

``receive(data)`` and the asking methods return what is to be written; the caller has the socket and
the clock. What a relay says is said: nothing here believes a tip, :mod:`reading` judges it.
Ouroboros network specification, chapter 3: handshake (node-to-node version data), chain-sync,
keep-alive.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

import cbor2

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.ouroboros.mux import Protocol, Segments, segments

VERSIONS: Final = (13, 14, 15)
HASH: Final = 32
_COOKIES: Final = 1 << 16


class HandshakeRefused(Refusal):
    """The relay speaks no version of ours, or is of another network."""

    code = "RELAY_REFUSED"
    remedy = "check the network; a relay of another one refuses, and so does one that is too old"


@dataclass(frozen=True)
class Point:
    """A block of the chain; *hash* empty: its origin."""

    slot: int = 0
    hash: bytes = b""


@dataclass(frozen=True)
class Tip:
    """The last block that a relay has, as it says; *block*: how many lie before it."""

    point: Point
    block: int


@dataclass(frozen=True)
class Accepted:
    """The handshake is done."""

    version: int


@dataclass(frozen=True)
class Alive:
    """A keep-alive came back."""

    cookie: int


@dataclass(frozen=True)
class Told:
    """The relay said its tip. *back*: it went back to this point of the chain, as at a fork."""

    tip: Tip
    back: Point | None = None


@dataclass(frozen=True)
class AtEnd:
    """It has handed out all that it has. *proven*: the last of it is the tip that it says."""

    proven: bool


Event = Accepted | Alive | Told | AtEnd


class _Sync(Enum):
    """Chain-sync, as its asking side sees it."""

    IDLE = auto()
    SEEKS = auto()  # FindIntersect was sent
    WAITS = auto()  # RequestNext was sent
    MUST = auto()  # and the relay answered that there is nothing yet


class Asking:
    """One connection to a relay of the network *magic*."""

    def __init__(self, magic: int) -> None:
        self._magic = magic
        self._segments = Segments()
        self._sync, self._open, self._cookie = _Sync.IDLE, False, 0
        self._owed: set[int] = set()
        self._sought, self._at, self._tip = Point(), b"", Tip(Point(), 0)

    @property
    def open(self) -> bool:
        """Whether the handshake is done."""
        return self._open

    @property
    def at(self) -> bytes:
        """The hash of the block where we are; empty: the origin, or an era before Shelley."""
        return self._at

    @property
    def behind(self) -> bool:
        """Whether there is more than we were handed, and we may ask where it is."""
        return self._open and self._sync is _Sync.IDLE and self._at != self._tip.point.hash

    # ---- what is asked ---------------------------------------------------------------------------

    def propose(self, now_us: int) -> bytes:
        """The first message. We only ask, and share no peers."""
        data = [self._magic, True, 0, False]
        versions = dict.fromkeys(VERSIONS, data)
        return self._say(Protocol.HANDSHAKE, [0, versions], now_us)

    def ask_tip(self, now_us: int) -> bytes:
        """An intersection with the origin, which every chain has: the answer says the tip."""
        return self._seek(Point(), now_us)

    def follow(self, point: Point, now_us: int) -> bytes:
        """To be where *point* is: what comes after it is asked for by :meth:`ask_next`."""
        return self._seek(point, now_us)

    def ask_next(self, now_us: int) -> bytes:
        """The header after where we are, now or once there is one. Nothing while an answer is
        waited for.
        """
        if not self._open or self._sync is not _Sync.IDLE:
            return b""
        self._sync = _Sync.WAITS
        return self._say(Protocol.CHAIN_SYNC, [0], now_us)

    def ask_alive(self, now_us: int) -> bytes:
        """A keep-alive; each needs its answer before the next."""
        if not self._open or self._owed:
            return b""
        self._cookie = (self._cookie + 1) % _COOKIES
        self._owed.add(self._cookie)
        return self._say(Protocol.KEEP_ALIVE, [0, self._cookie], now_us)

    def _seek(self, point: Point, now_us: int) -> bytes:
        if not self._open or self._sync is not _Sync.IDLE:
            return b""
        self._sync, self._sought = _Sync.SEEKS, point
        return self._say(Protocol.CHAIN_SYNC, [4, [_written(point)]], now_us)

    @staticmethod
    def _say(protocol: Protocol, message: Any, now_us: int) -> bytes:
        return segments(protocol, cbor2.dumps(message), now_us)

    # ---- what is answered ------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """What *data* tells. :class:`HandshakeRefused`; :class:`Malformed` for anything that no
        relay says, after which nothing is to be believed.
        """
        found: list[Event] = []
        for protocol, message in self._segments.receive(data):
            parts = _list(message)
            if not parts or type(parts[0]) is not int:
                raise Malformed("a message without its number")
            found.append(self._told(protocol, parts))
        return found

    def _told(self, protocol: Protocol, parts: list[Any]) -> Event:
        if protocol is Protocol.HANDSHAKE:
            return self._shaken(parts)
        if not self._open:
            raise Malformed("something before the handshake")
        if protocol is Protocol.KEEP_ALIVE:
            return self._alive(parts)
        return self._chain(parts)

    def _shaken(self, parts: list[Any]) -> Event:
        if self._open:
            raise Malformed("a second handshake")
        match parts:
            case [1, int(version), [int(magic), *_]] if version in VERSIONS:
                if magic != self._magic:
                    raise HandshakeRefused(f"it is of the network {magic}, not {self._magic}")
                self._open = True
                return Accepted(version)
            case [2, [int(why), *more]]:
                raise HandshakeRefused(_why_refused(why, more))
            case _:
                raise Malformed("a handshake that is none")

    def _alive(self, parts: list[Any]) -> Event:
        match parts:
            case [1, int(cookie)] if cookie in self._owed:
                self._owed.remove(cookie)
                return Alive(cookie)
            case _:
                raise Malformed("a keep-alive that was not asked")

    def _chain(self, parts: list[Any]) -> Event:
        asked = self._sync
        match parts:
            case [1] if asked is _Sync.WAITS:
                self._sync = _Sync.MUST
                return AtEnd(self._at == self._tip.point.hash)
            case [2, header, tip] if asked in (_Sync.WAITS, _Sync.MUST):
                self._at, back = _header(header), None
            case [3, point, tip] if asked in (_Sync.WAITS, _Sync.MUST):
                back = _point(point)
                self._at = back.hash
            case [5, point, tip] if asked is _Sync.SEEKS:
                if _point(point) != self._sought:
                    raise Malformed("an intersection that was not asked for")
                self._at, back = self._sought.hash, None
            case [6, tip] if asked is _Sync.SEEKS:
                self._at, back = b"", None
            case _:
                raise Malformed("an answer of chain-sync that was not asked")
        self._sync, self._tip = _Sync.IDLE, _tip(tip)
        return Told(self._tip, back)


def _why_refused(why: int, more: list[Any]) -> str:
    """Ours in words; of theirs as much as can be printed."""
    text = next((one for one in more if isinstance(one, str)), "")
    told = "".join(c if c.isprintable() else " " for c in text)[:200]
    reasons = {0: "no version in common", 1: "it cannot read the handshake", 2: "it refuses"}
    return f"{reasons.get(why, 'for a reason of its own')}{f': {told}' if told else ''}"


def _written(point: Point) -> list[Any]:
    return [point.slot, point.hash] if point.hash else []


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed("a message that is no list")
    return cast("list[Any]", value)


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise Malformed("a number that is none")
    return value


def _point(value: Any) -> Point:
    match _list(value):
        case []:
            return Point()
        case [slot, bytes(name)] if len(name) == HASH:
            return Point(_natural(slot), name)
        case _:
            raise Malformed("a point that is none")


def _tip(value: Any) -> Tip:
    match _list(value):
        case [point, block]:
            return Tip(_point(point), _natural(block))
        case _:
            raise Malformed("a tip that is none")


def _header(value: Any) -> bytes:
    """The hash of a header since Shelley (``[era, #6.24(bytes)]``); empty for an older one."""
    match value:
        case [int(_), cbor2.CBORTag(tag=24, value=bytes(raw))]:
            return hashlib.blake2b(raw, digest_size=HASH).digest()
        case [int(_), _]:
            return b""
        case _:
            raise Malformed("a header that is none")
