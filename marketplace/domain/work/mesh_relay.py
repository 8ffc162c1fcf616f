"""What passes between a mesh's hosts and their market's relay, in one UDP datagram each. Pure.

The relay has one port a member number, whatever the group: what member 0 sends to the port of
member 3 goes to member 3 of the same group, and comes out of the port of member 0. So nothing is
put before a packet, and a WireGuard device takes such a port for its peer's. Whose a packet is says
the address that it comes from, at that port: who sends there binds it first, with a *ticket* of the
market's (:class:`Ticket`), of a living lease and for some minutes, and a key that only market,
relay and that host have.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import struct
from dataclasses import dataclass, field
from typing import Final

from marketplace.domain.canonical import want_bytes, want_int, want_list
from marketplace.domain.errors import Malformed
from marketplace.domain.work.parts import MOST_MEMBERS

BIND: Final = b"TLYB"
"""Begins what is for the relay itself, and what it answers; no packet of WireGuard's does."""
PING: Final = b"TLYP"
"""Begins what hosts ask each other (``adapter.mesh.paths.probe``)."""
CARRIED: Final = (*(bytes((kind, 0, 0, 0)) for kind in (1, 2, 3, 4)), PING)
"""How a packet begins that is carried: WireGuard's four kinds, and probes."""
COOKIE: Final = 16
HOLDS_MS: Final = 600_000
"""So long a ticket holds; a living lease gets another every few seconds."""
_MAC: Final = 16
_GUEST: Final = 0x80
_TICKET: Final = struct.Struct("!16sBQQ")
_ASKED: Final = struct.Struct(f"!4s{_TICKET.size}sQ{COOKIE}s")
_BOUND: Final = struct.Struct(f"!4sQ4sH?{COOKIE}s")


@dataclass(frozen=True, slots=True)
class Ticket:
    """*member* of a *group* (16 bytes) may bind until *until_ms*; *since_ms*: when its lease began,
    by which a replaced one is older. *guest*: it is no lease's but the consumer's own machine's, at
    a port that no member of the group has.
    """

    group: bytes
    member: int
    since_ms: int
    until_ms: int
    guest: bool = False

    def to_bytes(self) -> bytes:
        """As it is sent."""
        at = self.member | (_GUEST if self.guest else 0)
        return _TICKET.pack(self.group, at, self.since_ms, self.until_ms)

    @staticmethod
    def from_bytes(data: bytes) -> Ticket:
        """The reverse; :class:`Malformed`."""
        if len(data) != _TICKET.size:
            raise Malformed(f"a ticket has {_TICKET.size} bytes")
        group, at, since, until = _TICKET.unpack(data)
        found = Ticket(group, at & ~_GUEST, since, until, bool(at & _GUEST))
        if found.member >= MOST_MEMBERS:
            raise Malformed(f"there is no member {found.member}")
        return found

    def key(self, secret: bytes) -> bytes:
        """Of its holder; *secret*: the market's and its relay's."""
        return hmac.digest(secret, b"tally/mesh-relay/v1" + self.to_bytes(), "sha256")


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """A market's relay: at *endpoint*, *count* ports from *first* on; *secret*: theirs alone."""

    endpoint: str
    first: int
    count: int
    secret: bytes = field(repr=False)

    @staticmethod
    def read(text: str, secret: bytes) -> RelayPlace:
        """``HOST:FIRST-LAST``; :class:`Malformed`."""
        host, _, ports = text.partition(":")
        first, _, last = ports.partition("-")
        try:
            at = str(ipaddress.IPv4Address(host))
            one, count = int(first), int(last) - int(first) + 1
        except ValueError:
            raise Malformed("a relay is HOST:FIRST-LAST, such as 203.0.113.5:42000-42063") from None
        if not (1024 <= one and one + count <= 65_536 and 2 <= count <= MOST_MEMBERS):
            raise Malformed(f"a relay has 2 to {MOST_MEMBERS} ports of 1024 to 65535")
        return RelayPlace(at, one, count, secret)

    def give(self, gang: str, member: int, since_ms: int, now_ms: int) -> RelayPass:
        """Leave for a *member*'s lease, which began then, for :data:`HOLDS_MS` from now."""
        ticket = Ticket(group_of(gang), member, since_ms, now_ms + HOLDS_MS)
        return self._pass(ticket)

    def give_guest(
        self, gang: str, guest: int, members: int, since_ms: int, now_ms: int
    ) -> tuple[RelayPass, int] | None:
        """Leave for the *guest* (from 0) of a gang of so many *members*, and the number of its
        port: from the last on downwards. None where that is a member's.
        """
        at = self.count - 1 - guest
        if at < members:
            return None
        ticket = Ticket(group_of(gang), at, since_ms, now_ms + HOLDS_MS, guest=True)
        return self._pass(ticket), at

    def _pass(self, ticket: Ticket) -> RelayPass:
        return RelayPass(
            self.endpoint, self.first, self.count, ticket.to_bytes(), ticket.key(self.secret)
        )


def group_of(gang: str) -> bytes:
    """What a relay knows a gang by."""
    return hashlib.sha256(gang.encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class RelayPass:
    """What a market gives to a member's host: the relay is at *endpoint*, with *count* ports from
    *first* on; *ticket* and *key*: its right to it.
    """

    endpoint: str
    first: int
    count: int
    ticket: bytes
    key: bytes = field(repr=False)

    def at(self, member: int) -> tuple[str, int] | None:
        """Where that member is sent to, None where the relay has no port for so many."""
        return (self.endpoint, self.first + member) if member < self.count else None

    def has(self, endpoint: str, port: int) -> bool:
        """Whether that is one of its ports."""
        return endpoint == self.endpoint and self.first <= port < self.first + self.count

    def to_wire(self) -> list[object]:
        """Every field, by place."""
        return [self.endpoint, self.first, self.count, self.ticket, self.key]

    @staticmethod
    def from_wire(value: object) -> RelayPass:
        """The reverse; :class:`Malformed`."""
        endpoint, first, count, ticket, key = want_list(value, 5, "pass")
        try:
            at = str(ipaddress.IPv4Address(endpoint))  # pyright: ignore[reportArgumentType]
        except ValueError:
            raise Malformed("a relay is at an IPv4 address") from None
        made = RelayPass(
            at,
            want_int(first, "first", 1, 65_535),
            want_int(count, "count", 1, MOST_MEMBERS),
            want_bytes(ticket, _TICKET.size, "ticket"),
            want_bytes(key, 32, "key"),
        )
        if made.first + made.count > 65_536:
            raise Malformed("a relay's ports end at 65535")
        return made


@dataclass(frozen=True, slots=True)
class Asked:
    """To bind the address that it comes from: *counter* grows with each; *cookie*: what the relay
    answered to that address before, which shows that answers arrive there.
    """

    ticket: bytes
    counter: int
    cookie: bytes = bytes(COOKIE)

    def to_bytes(self, key: bytes) -> bytes:
        """One datagram."""
        body = _ASKED.pack(BIND, self.ticket, self.counter, self.cookie)
        return body + _mac(key, body)

    @staticmethod
    def from_bytes(data: bytes) -> Asked:
        """The reverse, whoever made it; :class:`Malformed`."""
        if len(data) != _ASKED.size + _MAC or not data.startswith(BIND):
            raise Malformed("this is nothing that binds")
        return Asked(*_ASKED.unpack_from(data)[1:])


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer to *counter*: it came from *seen*, which is *bound* now or is to come again with
    this *cookie*. Shorter than what it answers.
    """

    counter: int
    seen: tuple[str, int]
    bound: bool
    cookie: bytes

    def to_bytes(self, key: bytes) -> bytes:
        """One datagram."""
        address = ipaddress.IPv4Address(self.seen[0]).packed
        body = _BOUND.pack(BIND, self.counter, address, self.seen[1], self.bound, self.cookie)
        return body + _mac(key, body)

    @staticmethod
    def from_bytes(data: bytes, key: bytes) -> Bound:
        """The reverse; :class:`Malformed` unless who has *key* made it."""
        if len(data) != _BOUND.size + _MAC or not data.startswith(BIND) or not proven(data, key):
            raise Malformed("this is no answer of the relay's")
        _, counter, address, port, bound, cookie = _BOUND.unpack_from(data)
        return Bound(counter, (str(ipaddress.IPv4Address(address)), port), bound, cookie)


def proven(data: bytes, key: bytes) -> bool:
    """Whether who has *key* made it."""
    return hmac.compare_digest(data[-_MAC:], _mac(key, data[:-_MAC]))


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:_MAC]
