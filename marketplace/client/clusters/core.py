"""What is to be ordered of a cluster's members, by what is seen of them.  Pure.

A member begins with MEET, and is held or runs from its first RUN on: MEET after that would have it
wait unbilled a second time. So members that run learn of new peers by RUN, held ones by HOLD.
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
    not; *there*: how many members run, or could, or are done.
    """

    stage: Stage = Stage.ASSEMBLING
    since_ms: int = 0
    there: int = 0


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
    already or not. *over*: no member is wanted any more. *guests*, by number, are in every
    member's mesh, and nobody waits for them.
    """
    done = sum(one.done for one in members)
    if over or done == rules.members or kept.stage is Stage.ENDED:
        return _stepped(replace(kept, there=done), Stage.ENDED), ()
    living = [one for one in members if one.lease and not one.done]
    wanted = {one.at: _peers(one, living, rules, guests) for one in living}
    kept, runs = _running(kept, living, wanted, done, now_ms, rules)
    return kept, tuple(Order(one.lease, _verb(one, runs), wanted[one.at]) for one in living)


def _running(
    kept: Kept,
    living: Sequence[Member],
    wanted: dict[int, tuple[MeshPeer, ...]],
    done: int,
    now_ms: int,
    rules: Rules,
) -> tuple[Kept, frozenset[int]]:
    """Who runs from now on."""
    together = [one for one in living if _is_ready(one, rules)]
    if kept.stage in (Stage.RUNNING, Stage.SHRUNK):
        together = _joined(together, wanted, rules)
        enough = len(together) + done >= rules.least or rules.stall is Stall.RUN
    else:
        enough = len(together) + done >= rules.least and _all_hear(together, wanted, rules)
    kept = replace(kept, there=len(together) + done)
    whole = kept.there == rules.members
    if kept.stage is Stage.ASSEMBLING:
        kept = replace(kept, since_ms=(kept.since_ms or now_ms) if enough else 0)
        if not enough or (not whole and now_ms - kept.since_ms < rules.grace_ms):
            return kept, frozenset()
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
    one: Member, living: Sequence[Member], rules: Rules, guests: tuple[MeshPeer, ...]
) -> tuple[MeshPeer, ...]:
    """Of *one*: all others that have a place, by member, and the guests."""
    if not rules.mesh:
        return ()
    placed = [(other.at, other.place) for other in living if other.at != one.at]
    others = (place.peer(at) for at, place in sorted(placed, key=_at) if place is not None)
    return (*others, *guests)


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
