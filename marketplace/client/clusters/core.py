"""What is to be ordered of a cluster's members, by what is seen of them.  Pure.

A member begins with MEET, and is held or runs from its first RUN on: MEET after that would have it
wait unbilled a second time. So members that run learn of new peers by RUN, held ones by HOLD.

To tell all of them of each other takes an order each. Before a cluster has begun it is done once
enough of them have a place, and when for a moment no further one came: else as many orders would
be signed as the square of those that start one after the other. Who is gone is nobody's peer from
the next look on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.client.clusters.stage import CLUSTER, Stage, StageEvent
from marketplace.domain.work.cluster import Cluster, Stall
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.mesh import MeshPeer, MeshPlace, MeshSight

GRACE_MS: Final = 5_000
"""How long a cluster that could begin waits for the members that are still missing."""
SETTLES_MS: Final = 500
"""For so long no further member came to have a place: then they are told of each other."""
_BEGUN: Final = (Verb.RUN, Verb.HOLD)
_EVENTS: Final = {
    Stage.RUNNING: StageEvent.WHOLE,
    Stage.SHRUNK: StageEvent.FEWER,
    Stage.STALLED: StageEvent.TOO_FEW,
    Stage.ENDED: StageEvent.OVER,
}


@dataclass(frozen=True)
class Rules:
    """Of a cluster of so many *members*; *grace_ms*: see :data:`GRACE_MS`."""

    members: int
    least: int
    stall: Stall
    mesh: bool
    grace_ms: int = GRACE_MS

    @staticmethod
    def of(cluster: Cluster, members: int) -> Rules:
        """As its job says."""
        return Rules(members, cluster.least, cluster.stall, cluster.mesh)


@dataclass(frozen=True)
class Ordered:
    """The newest order to a lease that was signed here."""

    version: int
    verb: Verb
    peers: tuple[MeshPeer, ...] = ()


@dataclass(frozen=True)
class Member:
    """One member as last seen. *lease*: the one that runs it, empty while it has no place, and once
    it is *done*, which counts as there; *started*: its workload is up; *place* and *sight* are
    proven.
    """

    at: int
    lease: str = ""
    started: bool = False
    done: bool = False
    ordered: Ordered | None = None
    place: MeshPlace | None = None
    sight: MeshSight | None = None

    @property
    def begun(self) -> bool:
        """It was ordered to run."""
        return self.ordered is not None and self.ordered.verb in _BEGUN


@dataclass(frozen=True)
class Order:
    """*verb* to *lease*, with *peers* in its mesh."""

    lease: str
    verb: Verb
    peers: tuple[MeshPeer, ...] = ()


@dataclass(frozen=True)
class Kept:
    """How a cluster stands. *since_ms*: since when it could begin with fewer than all, 0: it could
    not; *there*: how many members run, or could, or are done; *placed*: the most that ever had a
    place at once, and since when, *placed_ms*.
    """

    stage: Stage = Stage.ASSEMBLING
    since_ms: int = 0
    there: int = 0
    placed: int = 0
    placed_ms: int = 0


def restored(members: Sequence[Member]) -> Kept:
    """How a cluster stands that another process kept before, by the orders that were signed. Where
    it died between two, some are held: it stands still until it is decided anew.
    """
    verbs = {one.ordered.verb for one in members if one.lease and one.ordered is not None}
    if Verb.HOLD in verbs:
        return Kept(Stage.STALLED)
    return Kept(Stage.SHRUNK if Verb.RUN in verbs else Stage.ASSEMBLING)


def words(kept: Kept, rules: Rules) -> str:
    """How a cluster stands, for a person."""
    missing = rules.members - kept.there
    match kept.stage:
        case Stage.ASSEMBLING:
            return f"assembling {kept.there} of {rules.members}"
        case Stage.RUNNING:
            return "running"
        case Stage.SHRUNK:
            return f"running with {kept.there} of {rules.members}"
        case Stage.STALLED if missing:
            are = "is" if missing == 1 else "are"
            return f"held: {missing} of {rules.members} {are} missing, unbilled"
        case Stage.STALLED:
            return "held: not all of them hear each other, unbilled"
        case Stage.ENDED:
            return "ended"


def decide(
    kept: Kept, members: Sequence[Member], now_ms: int, rules: Rules, *, over: bool = False,
    guests: tuple[MeshPeer, ...] = (),
) -> tuple[Kept, tuple[Order, ...]]:  # fmt: skip
    """How it stands after this look, and what each member that has a lease is to be ordered, said
    already or not; nothing yet for one that would be told of its peers again at once. *over*: no
    member is wanted any more. *guests*, by number, are in every member's mesh, and nobody waits
    for them.
    """
    done = sum(one.done for one in members)
    if over or done == rules.members or kept.stage is Stage.ENDED:
        return _stepped(replace(kept, there=done), Stage.ENDED), ()
    living = [one for one in members if one.lease and not one.done]
    kept = _placed(kept, living, now_ms)
    settles = _settles(kept, living, done, now_ms, rules)
    tells = not settles and _tells(kept, living, done, rules)
    wanted = {one.at: _peers(one, living, rules, guests, tells=tells) for one in living}
    kept, runs = _running(kept, living, wanted, done, now_ms, rules)
    given = [one for one in living if one.ordered is not None or not settles]
    return kept, tuple(Order(one.lease, _verb(one, runs), wanted[one.at]) for one in given)


def _placed(kept: Kept, living: Sequence[Member], now_ms: int) -> Kept:
    count = sum(one.place is not None for one in living)
    return kept if count <= kept.placed else replace(kept, placed=count, placed_ms=now_ms)


def _settles(kept: Kept, living: Sequence[Member], done: int, now_ms: int, rules: Rules) -> bool:
    """Whether one more may have a place in a moment."""
    if kept.stage is not Stage.ASSEMBLING or not rules.mesh or not kept.placed:
        return False
    placed = sum(one.place is not None for one in living)
    return placed + done < rules.members and now_ms - kept.placed_ms < SETTLES_MS


def _tells(kept: Kept, living: Sequence[Member], done: int, rules: Rules) -> bool:
    """Whether a cluster could begin with those that have a place."""
    placed = sum(one.place is not None for one in living)
    return kept.stage is not Stage.ASSEMBLING or placed + done >= rules.least


def _running(
    kept: Kept,
    living: Sequence[Member],
    wanted: dict[int, tuple[MeshPeer, ...]],
    done: int,
    now_ms: int,
    rules: Rules,
) -> tuple[Kept, frozenset[int]]:
    """Who runs from now on."""
    ready = [one for one in living if _is_ready(one, rules)]
    match kept.stage:
        case Stage.RUNNING | Stage.SHRUNK:
            together = ready = _joined(ready, wanted, rules)
            enough = len(together) + done >= rules.least or rules.stall is Stall.RUN
        case Stage.ASSEMBLING:
            together = _hearing(ready, wanted, rules)
            enough = len(together) + done >= rules.least
        case _:  # those that are held run again together, or not at all
            together = ready
            enough = len(ready) + done >= rules.least and _all_hear(ready, wanted, rules)
    whole = len(together) + done == rules.members
    if kept.stage is Stage.ASSEMBLING:
        since = (kept.since_ms or now_ms) if enough else 0
        kept = replace(kept, since_ms=since, there=len(ready) + done)
        if not enough or (not whole and now_ms - since < rules.grace_ms):
            return kept, frozenset()
    kept = replace(kept, there=len(together) + done)
    if not enough:
        return _stepped(kept, Stage.STALLED), frozenset()
    after = _stepped(kept, Stage.RUNNING if whole else Stage.SHRUNK)
    return replace(after, since_ms=0), frozenset(one.at for one in together)


def _is_ready(one: Member, rules: Rules) -> bool:
    return one.begun or (one.started and (not rules.mesh or one.place is not None))


def _joined(
    ready: Sequence[Member], wanted: dict[int, tuple[MeshPeer, ...]], rules: Rules
) -> list[Member]:
    """Those that run, and whoever else hears each of them and is heard."""
    together = [one for one in ready if one.begun]
    for one in ready:
        if not one.begun and all(_hear(one, other, wanted, rules) for other in together):
            together.append(one)
    return together


def _hearing(
    ready: Sequence[Member], wanted: dict[int, tuple[MeshPeer, ...]], rules: Rules
) -> list[Member]:
    """Those of *ready* that all hear each other: who misses most is left out, of equals the last,
    until nobody misses anybody. One that nobody hears does not keep the others from beginning.
    """
    missed = {one.at: set[int]() for one in ready}
    for a in ready:
        for b in ready:
            if a.at < b.at and not _hear(a, b, wanted, rules):
                missed[a.at].add(b.at)
                missed[b.at].add(a.at)
    while any(missed.values()):
        out = max(missed, key=lambda at: (len(missed[at]), at))
        for at in missed.pop(out):
            missed[at].discard(out)
    return [one for one in ready if one.at in missed]


def _all_hear(
    ready: Sequence[Member], wanted: dict[int, tuple[MeshPeer, ...]], rules: Rules
) -> bool:
    return all(_hear(a, b, wanted, rules) for a in ready for b in ready if a.at < b.at)


def _hear(a: Member, b: Member, wanted: dict[int, tuple[MeshPeer, ...]], rules: Rules) -> bool:
    """Each the other, while both follow an order with the peers of now."""
    return not rules.mesh or (_hears(a, b, wanted[a.at]) and _hears(b, a, wanted[b.at]))


def _hears(one: Member, other: Member, peers: tuple[MeshPeer, ...]) -> bool:
    sight, ordered = one.sight, one.ordered
    if sight is None or ordered is None or ordered.peers != peers:
        return False
    return sight.version == ordered.version and other.at in sight.members


def _peers(
    one: Member, living: Sequence[Member], rules: Rules, guests: tuple[MeshPeer, ...],
    *, tells: bool,
) -> tuple[MeshPeer, ...]:  # fmt: skip
    """Of *one*: all others that have a place, by member, and the guests; or, unless it *tells*,
    those of its newest order that are still there.
    """
    if not rules.mesh:
        return ()
    placed = [(other.at, other.place) for other in living if other.at != one.at]
    others = (place.peer(at) for at, place in sorted(placed, key=_at) if place is not None)
    now = (*others, *guests)
    if tells or one.ordered is None:
        return now
    keys = {(peer.member, peer.key) for peer in now}
    return tuple(peer for peer in one.ordered.peers if (peer.member, peer.key) in keys)


def _at(placed: tuple[int, MeshPlace | None]) -> int:
    return placed[0]


def _verb(one: Member, runs: frozenset[int]) -> Verb:
    if one.at in runs:
        return Verb.RUN
    return Verb.HOLD if one.begun else Verb.MEET


def _stepped(kept: Kept, stage: Stage) -> Kept:
    """Every look may find it where it is."""
    if kept.stage is stage:
        return kept
    return replace(kept, stage=CLUSTER.step(kept.stage, _EVENTS[stage]))
