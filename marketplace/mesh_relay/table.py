"""Who is bound at which port of the relay, and where what comes in goes. Pure: datagrams in,
datagrams out.

Nothing is answered to whom no ticket was given for; an answer is shorter than what it answers, and
nothing is sent anywhere but to an address that has shown that answers arrive there.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh_relay import (
    BIND,
    CARRIED,
    COOKIE,
    Asked,
    Bound,
    Ticket,
    proven,
)

Address = tuple[str, int]
BOUND_MS: Final = 60_000
"""So long a binding holds that is not renewed."""
RATE: Final = 25_000_000
"""Bytes a second that one member may send through it."""
MOST: Final = 2048
"""Bytes of a packet."""
MOST_BINDINGS: Final = 200_000


@dataclass(slots=True)
class _Member:
    """Of a group: its *ticket* of now; at each port the *addresses* that it is bound from, and the
    greatest *counters*; *spent* bytes since *second*.
    """

    ticket: Ticket
    addresses: dict[int, Address] = field(default_factory=dict[int, Address])
    counters: dict[int, int] = field(default_factory=dict[int, int])
    until_ms: int = 0
    second: int = 0
    spent: int = 0


Packet = tuple[int, Address, bytes]
"""Out of which port, to whom, what."""


class Table:
    """Of one relay that has *count* ports; *secret*: the market's too."""

    def __init__(self, secret: bytes, count: int, rate: int = RATE) -> None:
        self._secret = secret
        self._count = count
        self._rate = rate
        self._members: dict[tuple[bytes, int], _Member] = {}
        self._who: dict[tuple[int, Address], _Member] = {}
        self.carried = self.dropped = 0

    def take(self, port: int, source: Address, data: bytes, now_ms: int) -> Iterable[Packet]:
        """What follows from a datagram that came to *port* (0 is the first) from *source*."""
        if data.startswith(BIND):
            return self._bind(port, source, data, now_ms)
        if len(data) > MOST or data[:4] not in CARRIED:
            return ()
        return self._carry(port, source, data, now_ms)

    def _bind(self, port: int, source: Address, data: bytes, now_ms: int) -> Iterable[Packet]:
        try:
            asked = Asked.from_bytes(data)
            ticket = Ticket.from_bytes(asked.ticket)
        except Malformed:
            return ()
        key = ticket.key(self._secret)
        if not proven(data, key) or ticket.until_ms <= now_ms or ticket.member >= self._count:
            return ()
        member = self._members.get((ticket.group, ticket.member))
        if member is not None:
            if ticket.since_ms < member.ticket.since_ms:
                return ()  # of a lease that was replaced
            if asked.counter <= member.counters.get(port, 0) and _same(ticket, member.ticket):
                return ()  # heard before
        cookie = self._cookie(port, source, ticket)
        bound = hmac.compare_digest(asked.cookie, cookie)
        if bound:
            bound = self._put(port, source, ticket, asked.counter, now_ms)
        return ((port, source, Bound(asked.counter, source, bound, cookie).to_bytes(key)),)

    def _cookie(self, port: int, source: Address, ticket: Ticket) -> bytes:
        said = f"cookie {port} {source[0]} {source[1]} {ticket.member} {ticket.since_ms}"
        return hmac.digest(self._secret, said.encode() + ticket.group, "sha256")[:COOKIE]

    def _put(self, port: int, source: Address, ticket: Ticket, counter: int, now_ms: int) -> bool:
        member = self._members.get((ticket.group, ticket.member))
        if member is None or not _same(ticket, member.ticket):
            if member is not None:
                self._drop(member)
            if len(self._who) >= MOST_BINDINGS:
                return False
            member = self._members[(ticket.group, ticket.member)] = _Member(ticket)
        member.ticket = max(member.ticket, ticket, key=lambda one: one.until_ms)
        before = member.addresses.get(port)
        if before is not None and before != source:
            self._who.pop((port, before), None)
        other = self._who.get((port, source))
        if other is not None and other is not member:
            other.addresses.pop(port, None)  # it showed that the address is its own now
        member.addresses[port] = source
        member.counters[port] = counter
        member.until_ms = min(now_ms + BOUND_MS, member.ticket.until_ms)
        self._who[(port, source)] = member
        return True

    def _carry(self, port: int, source: Address, data: bytes, now_ms: int) -> Iterable[Packet]:
        sender = self._who.get((port, source))
        if sender is None or sender.until_ms <= now_ms:
            return ()
        taker = self._members.get((sender.ticket.group, port))
        own = sender.ticket.member
        to = None if taker is None or taker.until_ms <= now_ms else taker.addresses.get(own)
        if (
            to is None
            or taker is None
            or not _meet(sender, taker)
            or not self._may(sender, len(data), now_ms)
        ):
            self.dropped += 1
            return ()
        self.carried += len(data)
        return ((own, to, data),)

    def _may(self, sender: _Member, size: int, now_ms: int) -> bool:
        second = now_ms // 1000
        if sender.second != second:
            sender.second, sender.spent = second, 0
        sender.spent += size
        return sender.spent <= self._rate

    def sweep(self, now_ms: int) -> None:
        """Forget whom nobody renewed."""
        for at, member in list(self._members.items()):
            if member.until_ms <= now_ms:
                self._drop(member)
                del self._members[at]

    def _drop(self, member: _Member) -> None:
        for port, address in member.addresses.items():
            if self._who.get((port, address)) is member:
                del self._who[(port, address)]

    def __len__(self) -> int:
        return len(self._members)


def _meet(one: _Member, other: _Member) -> bool:
    """Whether they may send to each other: guests of a cluster are there for its members, and no
    tunnel is kept for two machines that nobody rents.
    """
    return one is not other and not (one.ticket.guest and other.ticket.guest)


def _same(one: Ticket, other: Ticket) -> bool:
    """Whether both are of one lease."""
    return one.since_ms == other.since_ms
