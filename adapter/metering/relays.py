"""Looks at the relays that run here: whether each answers, and whether it is at the tip.

A relay is asked over one lasting connection, next to each reading of its meter, which takes what
was found: time is billed between two good readings only, as with every fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from marketplace.chain.node.relay import Reading, Relay, tcp
from marketplace.domain.metering.reading import Cause
from marketplace.domain.ouroboros.reading import Standing
from marketplace.domain.work.relay import RelayNeed

AT_ONCE_S: Final = 0.5
FRESH_S: Final = 1.0
"""A look that is older says nothing of now."""
WITHIN_S: Final = 3.0
"""Less than a missed poll may last (``BRIDGE_NS``): whoever answers as slowly as he may is read and
billed, and whoever answers later is ``unreachable``. Neither has his machine for nothing.
"""

_CAUSES: Final = {
    Standing.AT_TIP: None,
    Standing.LAGGING: Cause.LAGGING,
    Standing.UNREACHABLE: Cause.UNREACHABLE,
    Standing.SILENT: Cause.UNREACHABLE,
    Standing.AHEAD: Cause.NOT_A_RELAY,
    Standing.UNPROVEN: Cause.NOT_A_RELAY,
    Standing.APART: Cause.NOT_A_RELAY,
    Standing.OTHER_NETWORK: Cause.NOT_A_RELAY,
    Standing.REFUSING: Cause.NOT_A_RELAY,
    Standing.MALFORMED: Cause.NOT_A_RELAY,
}


@dataclass(frozen=True, slots=True)
class Look:
    """At one relay; *at*: by the loop's clock."""

    at: float
    reading: Reading

    def cause(self, served: bool) -> Cause | None:
        """Why its time is not billed; None at the tip. *served*: it was at the tip before."""
        found = _CAUSES[self.reading.standing]
        return Cause.SYNCING if found is Cause.LAGGING and not served else found


@dataclass(eq=False)
class _Followed:
    at: tuple[str, int]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    asked: anyio.Event = field(default_factory=anyio.Event)
    latest: Look | None = None

    @property
    def found(self) -> Look | None:
        """What was found and not taken yet, while it says something of now."""
        fresh = self.latest is not None and anyio.current_time() - self.latest.at <= FRESH_S
        return self.latest if fresh else None


class Relays:
    """All of one host. *wall_ms*: the time since 1970, which a slot is held against."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._followed: dict[str, _Followed] = {}
        self._answered = anyio.Event()

    def follow(self, group: TaskGroup, lease: str, at: tuple[str, int], need: RelayNeed) -> None:
        """Be ready to look at it, by a task of *group*; nothing if that is so already."""
        if lease in self._followed and self._followed[lease].at != at:
            self.forget(lease)
        if lease not in self._followed:
            followed = self._followed[lease] = _Followed(at)
            relay = Relay(tcp(*at), need.of, need.lag_ms, WITHIN_S)
            group.start_soon(self._serve, followed, relay)

    def forget(self, lease: str) -> None:
        """Look no longer: it is frozen, or over."""
        followed = self._followed.pop(lease, None)
        if followed is not None:
            followed.scope.cancel()

    def take(self, lease: str) -> Look | None:
        """The last look, for one reading; None while there is none that says something of now."""
        followed = self._followed.get(lease)
        if followed is None:
            return None
        found = followed.found
        followed.latest = None
        return found

    async def look(self) -> None:
        """At each, now. One that does not answer at once is waited for by its own task, for the
        next round to take: its neighbours' readings do not wait for it.
        """
        for followed in self._followed.values():
            if not followed.asked.is_set() and followed.found is None:
                followed.asked.set()
        with anyio.move_on_after(AT_ONCE_S):
            while any(followed.asked.is_set() for followed in self._followed.values()):
                await self._answered.wait()

    async def _serve(self, followed: _Followed, relay: Relay) -> None:
        with followed.scope:
            async with relay:
                while True:
                    await followed.asked.wait()
                    reading = await relay.look(self._wall_ms())
                    followed.latest = Look(anyio.current_time(), reading)
                    followed.asked = anyio.Event()
                    self._answered.set()
                    self._answered = anyio.Event()
