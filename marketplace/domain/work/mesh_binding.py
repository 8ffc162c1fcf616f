"""A member's or a guest's bindings at its market's relay: one a port, renewed, and what the relay
sees of it.

Pure but for who sends. Two ports that see the same address show that a NAT gives one address to
whatever goes out of this port: others may then be told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.work.mesh import Candidate, PathKind
from marketplace.domain.work.mesh_relay import COOKIE, Asked, Bound, RelayPass

AGAIN_MS: Final = 5_000
SOON_MS: Final = 250
LOST_MS: Final = 16_000
"""After so long without an answer a port is not bound."""


@dataclass(slots=True)
class _Port:
    due_ms: int = 0
    cookie: bytes = bytes(COOKIE)
    asked: int = 0
    bound_ms: int | None = None
    seen: tuple[str, int] | None = None


class Bindings:
    """Of *member*; of a guest, by its port's number at the relay."""

    def __init__(self, member: int) -> None:
        self._member = member
        self._pass: RelayPass | None = None
        self._ports: dict[tuple[str, int], _Port] = {}
        self._counter = 0

    def given(self, ticket: RelayPass) -> None:
        """The market's newest; from another relay than before all is bound anew."""
        before, self._pass = self._pass, ticket
        if before is None or (before.endpoint, before.first) != (ticket.endpoint, ticket.first):
            self._ports.clear()

    def at(self, member: int) -> tuple[str, int] | None:
        """The relay's port for that one; None without a relay."""
        return self._pass.at(member) if self._pass is not None else None

    def want(self, members: Iterable[int], also: Iterable[tuple[str, int]] = ()) -> None:
        """Be bound at the ports of these, and at its own and the next, which tell how it is seen;
        *also* at those of the relay's that a guest sends from.
        """
        count = self._pass.count if self._pass is not None else 0
        ask = {*members, self._member, (self._member + 1) % max(1, count)}
        wanted = [at for at in map(self.at, sorted(ask)) if at is not None]
        given = self._pass
        wanted += [at for at in also if given is not None and given.has(*at) and at not in wanted]
        self._ports = {at: self._ports.get(at) or _Port() for at in wanted}

    def due(self, now_ms: int, wall_ns: int) -> Iterator[tuple[tuple[str, int], bytes]]:
        """What is to be sent now, and where."""
        if self._pass is None:
            return
        for address, port in self._ports.items():
            if port.due_ms > now_ms:
                continue
            port.due_ms = now_ms + (AGAIN_MS if self._is_bound(port, now_ms) else SOON_MS)
            self._counter = port.asked = max(self._counter + 1, wall_ns)
            yield (
                address,
                Asked(self._pass.ticket, port.asked, port.cookie).to_bytes(self._pass.key),
            )

    def heard(self, address: tuple[str, int], data: bytes, now_ms: int) -> None:
        """What came from the relay's port there; nothing else than an answer to the last question
        changes anything.
        """
        port = self._ports.get(address)
        if port is None or self._pass is None:
            return
        try:
            said = Bound.from_bytes(data, self._pass.key)
        except Malformed:
            return
        if said.counter != port.asked:
            return
        fresh = port.cookie != said.cookie
        port.cookie, port.seen, port.asked = said.cookie, said.seen, 0
        if said.bound:
            port.bound_ms, port.due_ms = now_ms, now_ms + AGAIN_MS
        else:
            port.bound_ms, port.due_ms = None, now_ms + (0 if fresh else SOON_MS)

    def _is_bound(self, port: _Port, now_ms: int) -> bool:
        return port.bound_ms is not None and now_ms - port.bound_ms < LOST_MS

    def is_bound(self, member: int, now_ms: int) -> bool:
        """Whether what is sent to that member's port goes on to it, as far as this end goes."""
        port = self._ports.get(self.at(member) or ("", 0))
        return port is not None and self._is_bound(port, now_ms)

    def candidates(self, now_ms: int) -> tuple[Candidate, ...]:
        """Where others reach this member: by the relay once it is bound, and as it is seen where
        all ports see the same.
        """
        bound = [one for one in self._ports.values() if self._is_bound(one, now_ms)]
        own = self.at(self._member)
        if not bound or own is None:
            return ()
        found = [Candidate(PathKind.RELAY, *own)]
        seen = {one.seen for one in bound if one.seen is not None}
        if len(bound) > 1 and len(seen) == 1:
            found.append(Candidate(PathKind.SEEN, *seen.pop()))
        return tuple(sorted(found))
