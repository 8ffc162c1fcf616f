"""Room that is being made: what is free of it already is held, so that nobody else takes it
meanwhile.

The books stay those of what runs: a victim holds its own until it has ended, and what it gives back
goes to the room that waits for it in the same step. A room is complete once it holds all that its
request asks for: when all whom it waits for have ended, or sooner if somebody else left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from marketplace.matching.engine import Matchmaker
from marketplace.matching.model import Placement, Request


@dataclass
class Room:
    """For the plain *request* on these devices of *host*; *held* is what it has of that so far:
    cores and memory, then a share a device."""

    request: Request
    host: str
    gpus: tuple[int, ...]
    victims: frozenset[str]
    held: list[Placement] = field(default_factory=list[Placement])


class Reservations:
    """The rooms of one market, by name."""

    def __init__(self, market: Matchmaker) -> None:
        self.market = market
        self._rooms: dict[str, Room] = {}
        self._on: dict[str, set[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._rooms

    def __len__(self) -> int:
        return len(self._rooms)

    def keep(
        self,
        name: str,
        request: Request,
        host: str,
        gpus: tuple[int, ...],
        victims: frozenset[str] = frozenset(),
    ) -> None:
        """Begin to hold a room that waits for *victims*, by whatever names :meth:`grow` is told.

        KeyError: no such host; ValueError: there is a room of that name.
        """
        if name in self._rooms:
            raise ValueError(f"there is a room for {name} already")
        if host not in self.market.fleet.row_of:
            raise KeyError(host)
        self._rooms[name] = Room(request, host, gpus, victims)
        self._on.setdefault(host, set()).add(name)
        self.grow(host)

    def grow(self, host: str, ended: str = "") -> None:
        """*ended* gave back what it held on *host*, or the host came back: hold what is free of its
        rooms.

        First the room that waited for it: it must not lose to another what was ended for it.
        """
        rooms = [(name, self._rooms[name]) for name in self._on.get(host, ())]
        for _, room in sorted(rooms, key=lambda one: (ended not in one[1].victims, one[0])):
            self._grow(room)

    def complete(self, name: str) -> bool:
        """True once all of it is held."""
        return self._whole(self._rooms[name])

    def take(self, name: str, now: int) -> Placement | None:
        """The room as a placement, if its host takes it now; the room is gone either way."""
        room = self._rooms[name]
        self._forget(name, room)
        placed: Placement | None = None
        listed = room.host in self.market.fleet.row_of
        if listed and self.market.fits_on(room.host, room.request, now):
            try:
                placed = self.market.adopt(room.host, room.gpus, room.request)
            except ValueError:  # its devices are not those that were kept for it
                placed = None
        self.grow(room.host)
        return placed

    def drop(self, name: str) -> None:
        """Give a room up, to other rooms on its host first; nothing if there is none."""
        room = self._rooms.get(name)
        if room is not None:
            self._forget(name, room)
            self.grow(room.host)

    def _forget(self, name: str, room: Room) -> None:
        del self._rooms[name]
        self._on[room.host].discard(name)
        if not self._on[room.host]:
            del self._on[room.host]
        self._let_go(room)

    def _let_go(self, room: Room) -> None:
        for placed in room.held:
            if self.market.holds(placed):
                self.market.release(placed)
        room.held = []

    def _grow(self, room: Room) -> None:
        """Hold anew: as much as is free now of what the room is to have."""
        if self._whole(room):
            return
        self._let_go(room)
        fleet, want = self.market.fleet, room.request
        row = fleet.row_of.get(room.host)
        if row is None:
            return
        part = Request(
            min(want.cpu_milli, int(fleet.cpu[row])),
            min(want.memory_mib, int(fleet.mem[row])),
            disk_mib=min(want.disk_mib, int(fleet.disk[row])),
            owner=want.owner,
            priority=want.priority,
        )
        room.held.append(self.market.adopt(room.host, (), part))
        for slot in room.gpus:
            free = int(fleet.free[row, slot]) if slot < fleet.slots else 0
            milli, owner = min(want.gpu_milli, free), want.owner
            if fleet.owners_jobs[row, slot]:
                owner = self.market.owner_on(room.host, slot)
                # All that is left beside another's shares would be its to take: it is held in its
                # name.
                milli = milli if owner == want.owner else free
            if not milli:
                continue
            share = Request(0, 0, 1, milli, owner=owner, priority=want.priority)
            room.held.append(self.market.adopt(room.host, (slot,), share))

    def _whole(self, room: Room) -> bool:
        """Whether all of it is held, and in its own name."""
        want, held = room.request, room.held
        if len(held) != 1 + len(room.gpus) or not all(map(self.market.holds, held)):
            return False
        have = held[0].request
        return (have.cpu_milli, have.memory_mib, have.disk_mib) == (
            want.cpu_milli,
            want.memory_mib,
            want.disk_mib,
        ) and all(
            (p.request.gpu_milli, p.request.owner) == (want.gpu_milli, want.owner) for p in held[1:]
        )
