"""What becomes of a service's replicas: decided from what was seen of them, and nothing else.

Pure: the same replicas, looks and time give the same steps. ``keeper`` looks, and performs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from marketplace.client.services.stage import REPLICA, Stage, StageEvent
from marketplace.domain.work.service import ServiceSpec

COUNTED_MS: Final = 3_000
"""So long after it left rotation the market's count of what it still answers says all: counts are
written once a second by each of the market's processes.
"""
ALL_UNFIT: Final = 3
"""So many times as many bad looks are believed where none of the others was good either: then it is
the way to them that failed, more likely, and new ones would fare no better.
"""
BACK_OFF_MS: Final = 2_000
BACK_OFF_MOST_MS: Final = 60_000
STARTS: Final = (Stage.STARTING, Stage.WARMING)
ALIVE: Final = (*STARTS, Stage.SERVING)


@dataclass(frozen=True)
class Replica:
    """A job of the service, posted as *revision*. *since_ms*: when it came into its stage;
    *lasts_ms*: how long its job may run; *until_ms*: when it ends by itself, 0 before it runs;
    *misses*: bad looks in a row; *per_hour*: lovelace that it costs an hour; *why* it is to go.
    """

    job: str
    revision: str
    stage: Stage
    since_ms: int
    lasts_ms: int
    until_ms: int = 0
    misses: int = 0
    per_hour: int = 0
    provider: str = ""
    why: str = ""


@dataclass(frozen=True)
class Look:
    """What was seen of a replica: its job's *state*; whether the market has it in rotation
    (*serving*); whether it answered as it should (*fit*), None where it was not asked just now.
    *busy*: requests that it is answering.
    """

    state: str
    serving: bool = False
    fit: bool | None = None
    busy: int = 0
    provider: str = ""


@dataclass(frozen=True)
class Post:
    """Have another one started, at none of the providers *avoid*, if others will do."""

    avoid: tuple[str, ...]


@dataclass(frozen=True)
class Rotate:
    """Tell the market whether it is in rotation."""

    job: str
    serving: bool


@dataclass(frozen=True)
class Stop:
    """End its job."""

    job: str
    why: str


@dataclass(frozen=True)
class Forget:
    """It is no replica any more."""

    job: str


Step: TypeAlias = Post | Rotate | Stop | Forget


@dataclass(frozen=True)
class Falls:
    """Replicas that ended or were unfit before they served, one after the other: the next one is
    posted later and later.
    """

    count: int = 0
    last_ms: int = 0

    def next_ms(self) -> int:
        """Before that none is posted."""
        if not self.count:
            return 0
        return self.last_ms + min(BACK_OFF_MS << min(self.count - 1, 10), BACK_OFF_MOST_MS)


@dataclass(frozen=True)
class Kept:
    """All that is known of a service: *revision* is what new replicas run."""

    spec: ServiceSpec
    revision: str
    replicas: tuple[Replica, ...] = ()
    falls: Falls = Falls()


def decide(
    kept: Kept, looks: Mapping[str, Look], wanted: int, posting: int, now: int
) -> tuple[Kept, list[Step]]:
    """What to do, in order, and the replicas as they are then. *wanted*: how many are to serve;
    *posting*: how many are being posted now.
    """
    falls, seen = kept.falls, list[Replica]()
    good = {name for name, look in looks.items() if look.fit}
    well = {one.job for one in kept.replicas if _serves(one)} | good
    for one in kept.replicas:
        look = looks.get(one.job)
        most = kept.spec.health.failures * (1 if well - {one.job} else ALL_UNFIT)
        new = one if look is None else _seen(kept.spec, one, look, most, now)
        if new.stage is Stage.SERVING and one.stage is not Stage.SERVING:
            falls = Falls()
        if one.stage in STARTS and new.stage in (Stage.STOPPING, Stage.GONE):
            falls = Falls(falls.count + 1, now)
        if new.stage is not Stage.GONE:
            seen.append(new)
    retired = _retired(kept, seen, wanted, now)
    for at, one in enumerate(seen):
        if one.job in retired:
            seen[at] = _stepped(one, StageEvent.RETIRED, now, retired[one.job])
    steps = [*_settling(seen, looks), *_posts(kept, seen, falls, wanted, posting, now)]
    return replace(kept, replicas=tuple(seen), falls=falls), steps


def _seen(spec: ServiceSpec, one: Replica, look: Look, most: int, now: int) -> Replica:
    """*one* after a look at it; *most*: bad looks in a row with which it is given up."""
    one = replace(one, provider=look.provider or one.provider)
    if look.state == "ENDED":
        return _stepped(one, StageEvent.ENDED, now)
    if one.stage is Stage.STARTING and look.state == "RUNNING":
        one = replace(_stepped(one, StageEvent.RAN, now), until_ms=now + one.lasts_ms)
    if one.stage is Stage.DRAINING:
        waited = now - one.since_ms
        counted = not look.serving and waited >= min(COUNTED_MS, spec.drain_ms)
        idle = look.busy == 0 and counted
        return _stepped(one, StageEvent.DRAINED, now) if idle or waited >= spec.drain_ms else one
    if one.stage not in (Stage.WARMING, Stage.SERVING):
        return one
    if look.fit is not None:
        one = replace(one, misses=0 if look.fit else one.misses + 1)
        if look.fit and one.stage is Stage.WARMING:
            return _stepped(one, StageEvent.FIT, now)
    if one.stage is Stage.SERVING and one.misses >= most:
        return _stepped(one, StageEvent.UNFIT, now, f"{one.misses} bad looks in a row")
    if one.stage is Stage.WARMING and now - one.since_ms >= spec.health.start_ms:
        return _stepped(one, StageEvent.UNFIT, now, "no good look in time after its start")
    return one


def _stepped(one: Replica, event: StageEvent, now: int, why: str = "") -> Replica:
    stage = REPLICA.step(one.stage, event)
    return replace(one, stage=stage, since_ms=now, why=one.why or why)


def _settling(replicas: Sequence[Replica], looks: Mapping[str, Look]) -> list[Step]:
    """What the market is to be told, whatever of it was told before and did not arrive."""
    steps: list[Step] = []
    for one in replicas:
        look, serving = looks.get(one.job), one.stage is Stage.SERVING
        if look is None or look.serving is not serving:
            steps.append(Rotate(one.job, serving))
        if one.stage is Stage.STOPPING:
            steps.append(Stop(one.job, one.why))
    known = {one.job for one in replicas}
    return steps + [Forget(job) for job in looks if job not in known]


def _retired(kept: Kept, replicas: Sequence[Replica], wanted: int, now: int) -> dict[str, str]:
    """Job → why, of those that are to go: what is over in any case, and so many of the old ones as
    new ones serve in their place.
    """
    alive = [one for one in replicas if one.stage in ALIVE]
    old = [one for one in alive if is_old(kept, one, now)]
    current = [one for one in alive if one not in old]
    serving = [one for one in current if _serves(one)]
    gone = {one.job: "replaced" for one in old if one.stage in STARTS}
    # One for each new one that serves; who did not answer just now goes first, and no sooner: that
    # may be the way to all of them, and who is unfit for longer goes for that.
    rotating = sorted((one for one in old if one.stage is Stage.SERVING), key=_fitness)
    spare = max(0, len(serving) + len(rotating) - wanted)
    gone |= {one.job: "replaced" for one in rotating[:spare]}
    surplus = len(current) - wanted
    for one in sorted(current, key=lambda one: (one.stage is Stage.SERVING, -one.since_ms)):
        if surplus > 0:
            gone[one.job] = "fewer are wanted"
            surplus -= 1
    return gone


def _serves(one: Replica) -> bool:
    return one.stage is Stage.SERVING and one.misses == 0


def _fitness(one: Replica) -> tuple[int, int]:
    return (-one.misses, one.since_ms)


def is_old(kept: Kept, one: Replica, now: int) -> bool:
    """Whether another is to take its place: it runs something else, or its job ends by itself
    before a new one surely serves.
    """
    ahead = kept.spec.health.start_ms + kept.spec.drain_ms
    return one.revision != kept.revision or 0 < one.until_ms <= now + ahead


def _posts(
    kept: Kept, replicas: Sequence[Replica], falls: Falls, wanted: int, posting: int, now: int
) -> list[Step]:
    alive = [one for one in replicas if one.stage in ALIVE]
    current = [one for one in alive if not is_old(kept, one, now)]
    lacking = wanted - len(current) - posting
    room = wanted + kept.spec.surge - len(alive) - posting
    # One after the other: each agrees with the purse in turn, and where the one before went is
    # known by then.
    if min(lacking, room) <= 0 or posting or now < falls.next_ms():
        return []
    # Those that are to go leave their providers to the new ones.
    avoid = {one.provider for one in current if one.provider} if kept.spec.spread else set[str]()
    return [Post(tuple(sorted(avoid)))]
