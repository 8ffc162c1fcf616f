"""By which path a peer is sent to: what was asked and answered on each, and the choice by it. Pure;
times are ms of a clock that never steps.

What goes by the relay works anywhere, so it is where a peer begins, and where it falls back to; a
path that goes direct is taken once three questions in a row were answered on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from marketplace.domain.work.mesh import Candidate, PathKind

FAST_MS: Final = 250
"""Between questions on the path that is used, and on a new one."""
SLOW_MS: Final = 1_000
NEW_MS: Final = 10_000
DEAD: Final = 4
"""Questions in a row without an answer after which a path is none."""
PROVEN: Final = 3
REST_MS: Final = 5_000
"""So long a path that died is not taken again."""
BETTER_MS: Final = 10_000
"""So long another direct path has to be a fifth and 2 ms quicker before it is taken."""
_FLIGHT: Final = 16

Address = tuple[str, int]


@dataclass(slots=True)
class Path:
    """One way to a peer. *flight*: questions that wait for an answer, by number, and when they were
    asked; *hits*: answers in a row; *proven*: there were enough, and it did not die since.
    """

    kind: PathKind
    address: Address
    since_ms: int
    flight: dict[int, int] = field(default_factory=dict[int, int])
    hits: int = 0
    proven: bool = False
    rtt_ms: float = 0.0
    due_ms: int = 0
    rests_ms: int = 0
    better_ms: int | None = None

    @property
    def direct(self) -> bool:
        """Whether no relay is on it."""
        return self.kind is not PathKind.RELAY

    def missed(self, now_ms: int, grace_ms: int = FAST_MS) -> int:
        """Questions since the last answer that should have been answered by now."""
        grace = max(grace_ms, round(2 * self.rtt_ms))
        return sum(1 for asked in self.flight.values() if now_ms - asked >= grace)

    def lives(self, now_ms: int) -> bool:
        """Whether it was proven, and still holds."""
        return self.proven and self.missed(now_ms) < DEAD

    def asked(self, number: int, now_ms: int, every_ms: int) -> None:
        """A question goes out."""
        self.flight[number] = now_ms
        while len(self.flight) > _FLIGHT:
            del self.flight[min(self.flight)]
        if self.missed(now_ms) >= DEAD:
            self.died()
        self.due_ms = now_ms + every_ms

    def died(self) -> None:
        """It is to be proven anew."""
        self.hits, self.proven = 0, False

    def answered(self, number: int, now_ms: int) -> bool:
        """An answer came; whether it was awaited."""
        asked = self.flight.get(number)
        if asked is None:
            return False
        lost = [one for one in self.flight if one < number]
        for one in (*lost, number):
            del self.flight[one]
        self.hits = 1 if lost else self.hits + 1
        took = max(0.1, now_ms - asked)
        self.rtt_ms = took if self.hits <= 1 else 0.8 * self.rtt_ms + 0.2 * took
        self.proven = self.proven or self.hits >= PROVEN
        if not self.proven:
            self.due_ms = now_ms
        return True


class Paths:
    """Of one peer; *fast_ms*: between questions on the path that is used."""

    def __init__(self, fast_ms: int = FAST_MS) -> None:
        self.fast_ms = fast_ms
        self.known: dict[Address, Path] = {}
        self.current: Path | None = None

    def offer(self, candidates: Iterable[Candidate], now_ms: int) -> None:
        """These are told of; what was found out stays while it lives."""
        told = {(one.endpoint, one.port): one for one in candidates}
        for address in list(self.known):
            if address not in told and not self._keeps(self.known[address], now_ms):
                gone = self.known.pop(address)
                if self.current is gone:
                    self.current = None
        for address, one in told.items():
            self.known.setdefault(address, Path(one.kind, address, now_ms)).kind = one.kind

    def _keeps(self, path: Path, now_ms: int) -> bool:
        return path.kind is PathKind.SEEN and path.lives(now_ms)

    def learn(self, address: Address, now_ms: int) -> None:
        """The peer's own question came from there: so that way is tried too."""
        if address in self.known:
            return
        found = [one for one in self.known.values() if one.kind is PathKind.SEEN]
        idle = [one for one in found if one is not self.current and not one.lives(now_ms)]
        if len(found) >= 4 and idle:
            del self.known[min(idle, key=lambda one: one.since_ms).address]
        elif len(found) >= 4:
            return
        self.known[address] = Path(PathKind.SEEN, address, now_ms)

    def due(self, now_ms: int) -> list[Path]:
        """Those to ask on now."""
        return [path for path in self.known.values() if path.due_ms <= now_ms]

    def every(self, path: Path, now_ms: int) -> int:
        """How long until the next question on it."""
        new = now_ms - path.since_ms < NEW_MS
        return self.fast_ms if path is self.current or new else SLOW_MS

    def choose(self, now_ms: int) -> Path | None:
        """The path to send by from now on; None where there is none."""
        now = self.current
        relay = next((one for one in self.known.values() if not one.direct), None)
        best = self._best(now_ms)
        if now is None:
            self.current = best or relay or min(
                self.known.values(), key=lambda one: one.kind, default=None
            )  # fmt: skip
        elif now.direct and now.missed(now_ms) >= DEAD:
            now.died()
            now.rests_ms = now_ms + REST_MS
            self.current = self._best(now_ms) or relay or now
        elif not now.direct or not now.lives(now_ms):
            self.current = best or (relay or now)
        elif best is not None and best is not now and self._better(best, now, now_ms):
            self.current = best
        return self.current

    def _best(self, now_ms: int) -> Path | None:
        able = [
            one
            for one in self.known.values()
            if one.direct and one.lives(now_ms) and one.rests_ms <= now_ms
        ]
        return min(able, key=lambda one: one.rtt_ms, default=None)

    def _better(self, best: Path, now: Path, now_ms: int) -> bool:
        if not (best.rtt_ms < 0.8 * now.rtt_ms and best.rtt_ms + 2 < now.rtt_ms):
            best.better_ms = None
            return False
        if best.better_ms is None:
            best.better_ms = now_ms
        return now_ms - best.better_ms >= BETTER_MS
