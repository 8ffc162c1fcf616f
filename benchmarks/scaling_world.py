"""A world for ``tally bench scaling``: requests arrive as in a trace, replicas answer them, and the
product's own core (``client/services``) starts and ends replicas as a policy wants.

A replica works on up to so many requests at once at full speed, and shares that speed among more.
A request goes to the replica with the fewest under way, as the gateway sends it; where none
serves, it is held. A replica costs from the moment it is agreed to until it has ended.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from marketplace.client.services.core import Kept, Look, Post, Rotate, Stop, decide
from marketplace.client.services.core import Replica as KeptReplica
from marketplace.client.services.stage import Stage
from marketplace.domain.work.service import Health, Scale, ServiceSpec

AGREE_MS: Final = 1_500
"""From wanting a replica to a lease that starts: one after the other, as the keeper does."""
SLOWER_MILLI: Final = 1_250
LATER_MS: Final = 1_000
"""A request is late if it takes more than 1.25 times its own time, and a second."""
BEFORE_MS: Final = 600_000
"""So long every policy saw, before the first request, what the replicas of the beginning bear."""
FOR_EVER_MS: Final = 1 << 50


@dataclass(frozen=True)
class Request:
    """It comes at *at_ms*, and takes *work_ms* where nothing slows it."""

    at_ms: int
    work_ms: int


@dataclass(frozen=True)
class Replay:
    """Requests, and what they are asked of. *per_replica*: at full speed at once; *start_ms*: from
    a lease to a replica that serves; *first*: how many serve when it begins; what comes before
    *counted_ms* counts neither as cost nor as late: there every policy learns what is asked.
    """

    name: str
    requests: Sequence[Request]
    per_replica: int
    start_ms: int
    tick_ms: int = 1_000
    first: int = 1
    counted_ms: int = 0
    most: int = 64


class Policy(Protocol):
    """How many replicas it wants."""

    def wanted(self, under_way: int, now: int) -> int:
        """*under_way*: requests that are answered or held at *now*."""
        ...


@dataclass(frozen=True)
class Outcome:
    """*replica_ms*: what all replicas cost together; *late* of *asked* requests."""

    replica_ms: int
    late: int
    asked: int

    @property
    def late_share(self) -> float:
        """Of 1."""
        return self.late / self.asked

    @property
    def hours(self) -> float:
        """Replica-hours."""
        return self.replica_ms / 3_600_000


@dataclass(eq=False)
class _Worker:
    """One replica: *clock* is the time that each of its requests has had, in ms of full speed."""

    ready_ms: int
    width: int
    since: float = 0.0
    clock: float = 0.0
    under_way: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    serving: bool = False
    ended: bool = False

    def pace(self) -> float:
        """Of each request, 1 where none slows another."""
        return min(1.0, self.width / len(self.under_way)) if self.under_way else 1.0

    def advance(self, now: float, done: list[tuple[float, int]]) -> None:
        """Until *now*; *done* gets (when, which request) of all that it ended."""
        while self.under_way:
            pace = self.pace()
            ends = self.since + (self.under_way[0][0] - self.clock) / pace
            if ends > now:
                self.clock += (now - self.since) * pace
                break
            self.clock, which = heapq.heappop(self.under_way)
            self.since = ends
            done.append((ends, which))
        self.since = now

    def take(self, which: int, work_ms: int) -> None:
        """One more."""
        heapq.heappush(self.under_way, (self.clock + work_ms, which))


class World:
    """One replay under one policy."""

    def __init__(self, replay: Replay, policy: Policy) -> None:
        self.replay, self.policy = replay, policy
        spec = ServiceSpec(
            "web", 8000, "public", Scale(0, replay.most, replay.per_replica),
            Health(start_ms=2 * replay.start_ms + 60_000), surge=replay.most,
            drain_ms=10 * max(one.work_ms for one in replay.requests),  # none is cut off
        )  # fmt: skip
        names = [f"first-{n}" for n in range(replay.first)]
        self.workers = {name: _Worker(0, replay.per_replica, serving=True) for name in names}
        self.kept = Kept(
            spec, "1",
            tuple(KeptReplica(name, "1", Stage.SERVING, 0, FOR_EVER_MS) for name in names),
        )  # fmt: skip
        self.held: deque[int] = deque()
        self.agreed_ms: int | None = None
        self.made = 0
        self.late = self.asked = self.cost_ms = 0

    def run(self) -> Outcome:
        """To the last answer, or until whoever still waits has waited for long."""
        requests, tick = self.replay.requests, self.replay.tick_ms
        now, at, last = 0, 0, requests[-1].at_ms
        for before in range(-BEFORE_MS, 0, tick):
            self.policy.wanted(self.replay.first * self.replay.per_replica, before)
        patience = 600_000 + 10 * max(one.work_ms for one in requests)
        while at < len(requests) or (self._under_way() and now < last + patience):
            then = now + tick
            while at < len(requests) and requests[at].at_ms < then:
                if not self._send(at, requests[at].at_ms):
                    self.held.append(at)
                at += 1
            self._advance(self.workers.values(), then)
            if self.replay.counted_ms <= then <= last + tick:
                self.cost_ms += tick * len(self.workers)
            now = then
            self._turn(now)
        counted = sum(one.at_ms >= self.replay.counted_ms for one in requests)
        never = counted - self.asked  # answered: late as late can be
        return Outcome(self.cost_ms, self.late + never, counted)

    def _under_way(self) -> int:
        return len(self.held) + sum(len(one.under_way) for one in self.workers.values())

    def _send(self, which: int, now: int) -> bool:
        """To the replica with the fewest under way; False: none serves."""
        ready = [one for one in self.workers.values() if one.serving]
        if not ready:
            return False
        self._advance(ready, now)
        least = min(ready, key=lambda one: len(one.under_way))
        least.take(which, self.replay.requests[which].work_ms)
        return True

    def _advance(self, workers: Iterable[_Worker], now: int) -> None:
        done: list[tuple[float, int]] = []
        for one in workers:
            one.advance(now, done)
        self._answered(done)

    def _answered(self, done: list[tuple[float, int]]) -> None:
        for when, which in done:
            request = self.replay.requests[which]
            if request.at_ms >= self.replay.counted_ms:
                self.asked += 1
                took = when - request.at_ms
                self.late += took > request.work_ms * SLOWER_MILLI / 1000 + LATER_MS

    def _turn(self, now: int) -> None:
        """The keeper's: a look at everything, a decision, and its steps."""
        if self.agreed_ms is not None and self.agreed_ms <= now:
            self._agreed(now)
        looks = {
            name: Look(
                "ENDED" if one.ended else "RUNNING" if one.ready_ms <= now else "STARTING",
                one.serving, True if one.ready_ms <= now else None, len(one.under_way),
            )
            for name, one in self.workers.items()
        }  # fmt: skip
        wanted = min(self.policy.wanted(self._under_way(), now), self.replay.most)
        posting = int(self.agreed_ms is not None)
        self.kept, steps = decide(self.kept, looks, wanted, posting, now)
        for step in steps:
            match step:
                case Post():
                    self.agreed_ms = now + AGREE_MS
                case Rotate(job, serving):
                    self.workers[job].serving = serving
                case Stop(job):
                    self.workers[job].ended = True
                case _:
                    self.workers.pop(step.job, None)
        while self.held and self._send(self.held[0], now):
            self.held.popleft()
        for name in [name for name, one in self.workers.items() if one.ended]:
            self.workers[name].serving = False

    def _agreed(self, now: int) -> None:
        self.agreed_ms = None
        name = f"job-{self.made}"
        self.made += 1
        made = KeptReplica(name, "1", Stage.STARTING, now, FOR_EVER_MS)
        self.kept = Kept(self.kept.spec, "1", (*self.kept.replicas, made), self.kept.falls)
        worker = _Worker(now + self.replay.start_ms, self.replay.per_replica)
        worker.since = float(now)
        self.workers[name] = worker
