"""What a gang's page shows of all its members: how they stand in words, who hears whom with a
picture of it, and one log.

Of a cluster that is what the market keeps: it held orders and sights against the keys of their
leases when it took them. Who does not believe a market asks `tally job mesh`, which checks again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import cos, pi, sin
from typing import Any, Final

from marketplace.client.clusters.core import Member, Ordered, Rules, restored, words
from marketplace.client.clusters.stage import Stage
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import ClusterOrder, Verb
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.mesh import Heard, MeshPlace, MeshSight
from marketplace.domain.work.mesh_net import host_name, is_guest
from marketplace.domain.work.roles import TOLD_ROLE
from marketplace.market.base.records import LogRecord

MOST_PAIRS: Final = 240
"""Rows of who hears whom: all of sixteen members. A picture shows the others too."""
LOG_SHOWN: Final = 64 * 1024
LOG_ROWS: Final = 1024
"""Of all members together: bytes that are shown, and pieces that are read for them."""
_LIVING: Final = {one.name for one in (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED)}
_OVER: Final = {one.name for one in (LeaseState.ENDING, LeaseState.ENDED)}
_DOES: Final = {
    Verb.MEET: "waits, unbilled",
    Verb.RUN: "works, billed",
    Verb.HOLD: "is frozen, unbilled",
}
_BADGES: Final = {
    Stage.ASSEMBLING: "starting",
    Stage.RUNNING: "running",
    Stage.SHRUNK: "running",
    Stage.STALLED: "paused",
    Stage.ENDED: "ended",
}
"""The state of a job whose colour a stage has."""


@dataclass(frozen=True)
class Row:
    """One member. *job*: as ``job_view`` has it; *lives*: a lease runs it, or is about to; *order*:
    the newest to it; *hears*: whom of the others that live, and which of the machines of its
    consumer's own that the order names, *guests*, by the sight of order *follows*.
    """

    at: int
    job: Mapping[str, Any]
    lives: bool = False
    lost: bool = False
    order: ClusterOrder | None = None
    follows: int = 0
    hears: tuple[Heard, ...] = ()
    guests: tuple[Heard, ...] = ()

    @property
    def name(self) -> str:
        """As the others find it."""
        return host_name(self.at)

    @property
    def role(self) -> str:
        """In its cluster; empty where members are equal."""
        return self.job["spec"]["env"].get(TOLD_ROLE, "") if self.job["spec"].get("roles") else ""

    @property
    def does(self) -> str:
        """What its order means, in words; empty without one that holds."""
        return _DOES[self.order.verb] if self.order is not None and self.lives else ""


@dataclass(frozen=True)
class Standing:
    """A cluster: its *stage* in *words*, the *badge* of it, and how many of *rules* are there."""

    stage: Stage
    words: str
    there: int
    rules: Rules

    @property
    def badge(self) -> str:
        """The state of a job that looks like it."""
        return _BADGES[self.stage]


def rows_of(jobs: Sequence[Mapping[str, Any]], seen: Mapping[str, Any] | None) -> list[Row]:
    """The members of a gang by their *jobs*; *seen*: how its cluster stands (``clusters.view``),
    None for a gang that is none.
    """
    if seen is None:
        return [Row(at, job) for at, job in enumerate(jobs)]
    told = {one["job"]: one for one in seen["members"]}
    living = frozenset(one["member"] for one in seen["members"] if one["state"] in _LIVING)
    return [_row(job, told[job["id"]], living) for job in jobs]


def _row(job: Mapping[str, Any], said: Mapping[str, Any], living: frozenset[int]) -> Row:
    at = said["member"]
    order = _body(said["order"])
    row = Row(
        at, job, lives=at in living, lost=said["lost"],
        order=ClusterOrder.decode(order) if order is not None else None,
    )  # fmt: skip
    if said["sight"] is None or not row.lives:
        return row
    sight = MeshSight.decode(bytes.fromhex(said["sight"]["body"]))
    others = living - {at}  # a sight names whom its adapter likes, also members that are none
    heard = tuple(one for one in sight.heard if one.member in others)
    named = {one.member for one in (row.order.peers if row.order is not None else ())}
    guests = tuple(one for one in sight.heard if is_guest(one.member) and one.member in named)
    return replace(row, follows=sight.version, hears=heard, guests=guests)


def _body(said: Mapping[str, str] | None) -> bytes | None:
    return bytes.fromhex(said["body"]) if said is not None else None


# ---- in words ------------------------------------------------------------------------------------


def standing(cluster: Cluster, seen: Mapping[str, Any]) -> Standing:
    """How it stands by the orders that the market keeps: who pays for it says so in these words."""
    rules = Rules.of(cluster, len(seen["members"]))
    members = [_member(one) for one in seen["members"]]
    done = sum(one.done for one in members)
    kept = restored(members)
    ready = [one for one in members if one.begun or (one.started and _is_reached(one, rules))]
    if kept.stage is Stage.SHRUNK:
        ready = [one for one in members if one.ordered is not None and _runs(one.ordered)]
    kept = replace(kept, there=len(ready) + done)
    if seen["over"] or done == rules.members:
        kept = replace(kept, stage=Stage.ENDED)
    elif kept.stage is Stage.SHRUNK and kept.there == rules.members:
        kept = replace(kept, stage=Stage.RUNNING)
    return Standing(kept.stage, words(kept, rules), kept.there, rules)


def _member(said: Mapping[str, Any]) -> Member:
    if said["lease"] is None or said["state"] not in _LIVING:
        replaced = said["lost"] or bool(said["needs"])
        return Member(said["member"], done=said["state"] in _OVER and not replaced)
    order, place = _body(said["order"]), _body(said["place"])
    newest = ClusterOrder.decode(order) if order is not None else None
    return Member(
        said["member"], said["lease"], said["started"],
        ordered=Ordered(newest.version, newest.verb) if newest is not None else None,
        place=MeshPlace.decode(place) if place is not None else None,
    )  # fmt: skip


def _is_reached(one: Member, rules: Rules) -> bool:
    return not rules.mesh or one.place is not None


def _runs(ordered: Ordered) -> bool:
    return ordered.verb is Verb.RUN


# ---- who hears whom ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """*by* hears *heard*; *both*: it is heard by that one as well, or that one is a guest, who
    signs nothing.
    """

    by: int
    heard: Heard
    both: bool

    @property
    def name(self) -> str:
        """Of who is heard."""
        return host_name(self.heard.member)


@dataclass(frozen=True)
class Picture:
    """The members on a circle, as SVG has it in a box of *size*: *nodes* of *radius* by (member,
    x, y, badge), and a path each of lines between pairs that hear each other *both* ways, and that
    do *one_way*; *told*: the same in words.
    """

    size: int
    radius: int
    nodes: tuple[tuple[int, int, int, str], ...]
    both: str
    one_way: str
    told: str


SIZE: Final = 300
_RING: Final = SIZE // 2 - 24


def pairs_of(rows: Sequence[Row]) -> list[Pair]:
    """Who hears whom, by member."""
    known = _heard(rows)
    return [
        Pair(row.at, one, is_guest(one.member) or (one.member, row.at) in known)
        for row in rows
        for one in (*row.hears, *row.guests)
    ]


def picture_of(rows: Sequence[Row]) -> Picture:
    """Of a mesh: member 0 at the top, the others clockwise."""
    known = _heard(rows)
    turn = 2 * pi / max(len(rows), 1)
    spot = {
        row.at: (round(SIZE / 2 + _RING * sin(i * turn)), round(SIZE / 2 - _RING * cos(i * turn)))
        for i, row in enumerate(rows)
    }
    both = sorted((a, b) for a, b in known if a < b and (b, a) in known)
    one_way = sorted((a, b) for a, b in known if (b, a) not in known)
    living = sum(row.lives for row in rows)
    told = f"{len(both)} of {living * (living - 1) // 2} pairs hear each other"
    if one_way:
        told += f", {len(one_way)} only one way"
    return Picture(
        SIZE,
        max(5, min(18, int(_RING * sin(turn / 2) * 0.8))) if len(rows) > 1 else 18,
        tuple((row.at, *spot[row.at], _look(row)) for row in rows),
        "".join(map(_line, (spot[a] for a, _ in both), (spot[b] for _, b in both))),
        "".join(map(_line, (spot[a] for a, _ in one_way), (spot[b] for _, b in one_way))),
        told,
    )


def _heard(rows: Sequence[Row]) -> set[tuple[int, int]]:
    return {(row.at, one.member) for row in rows for one in row.hears}


def _line(a: tuple[int, int], b: tuple[int, int]) -> str:
    return f"M{a[0]},{a[1]}L{b[0]},{b[1]}"


def _look(row: Row) -> str:
    """How a member is drawn."""
    if not row.lives:
        return "away"
    return row.order.verb.value.lower() if row.order is not None else "meet"


# ---- one log -------------------------------------------------------------------------------------


def log_of(printed: Sequence[Sequence[LogRecord]]) -> str:
    """The newest that each member *printed*, its pieces by offset, as one text: lines in the order
    in which they came in, each behind its member's name.
    """
    most = LOG_SHOWN // max(len(printed), 1)
    lines: list[tuple[int, int, str]] = []
    for at, pieces in enumerate(printed):
        lines += [(ms, at, line) for ms, line in _lines(pieces, most)]
    lines.sort(key=lambda one: one[:2])
    return "".join(f"[{host_name(at)}] {line}\n" for _, at, line in lines)


def _lines(pieces: Sequence[LogRecord], most: int) -> list[tuple[int, str]]:
    """The last *most* bytes in whole lines, each with when it began to come in. Whatever a browser
    may take for the end of a line is one: no member writes a line with another's name.
    """
    text = b"".join(piece.data for piece in pieces)
    ends = list(accumulate(len(piece.data) for piece in pieces))
    at = max(0, len(text) - most)
    if at or (pieces and pieces[0].offset):  # what is left of a line is none, unless it is all
        at = text.find(b"\n", at, len(text) - 1) + 1 or at
    found: list[tuple[int, str]] = []
    for line in text[at:].splitlines(keepends=True):
        came = pieces[bisect_right(ends, at)].at_ms
        found += [(came, part) for part in line.decode(errors="replace").splitlines()]
        at += len(line)
    return found
