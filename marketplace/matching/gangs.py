"""Requests that are placed all together or not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.model import Gang, NoMatch, Placement, Request

_NOWHERE: Final = frozenset({"\0nowhere"})


class Matchmaker(Protocol):
    """What placing a gang needs of the matchmaker."""

    fleet: Fleet

    def attempt(self, request: Request, now: int = 0, only: Rows | None = None) -> Placement | None:
        """One member, taken, or None."""
        ...

    def refusal(self, request: Request, now: int = 0) -> NoMatch:
        """Why it fits nowhere."""
        ...

    def adopt(self, host_id: str, gpus: Sequence[int], request: Request) -> Placement:
        """Hold again what was released."""
        ...

    def release(self, placement: Placement) -> None:
        """Give back what it holds."""
        ...


def place_gang(matchmaker: Matchmaker, gang: Gang, now: int) -> tuple[Placement, ...] | NoMatch:
    """All members placed, in the order given, or none and the state as before."""
    from_regions: list[frozenset[str] | None] = [None]
    if gang.same_region:
        names = {h.region for h in matchmaker.fleet.hosts if h is not None}
        from_regions = [frozenset({name}) for name in sorted(names)]
    best: tuple[Placement, ...] | None = None
    refusal: NoMatch | None = None
    for regions in from_regions:
        placed = _try_gang(matchmaker, gang, regions, now)
        if isinstance(placed, NoMatch):
            refusal = placed if refusal is None else refusal
            continue
        for one in placed:
            matchmaker.release(one)
        if best is None or sum(p.rate for p in placed) < sum(p.rate for p in best):
            best = placed
    if best is not None:
        return tuple(matchmaker.adopt(p.host, p.gpus, p.request) for p in best)
    if refusal is not None:
        return refusal
    return NoMatch(gang.members[0] if gang.members else Request(0, 0), 0, {})


def _try_gang(
    matchmaker: Matchmaker, gang: Gang, regions: frozenset[str] | None, now: int
) -> tuple[Placement, ...] | NoMatch:
    """One attempt inside *regions*; the largest members first, since they have the fewest homes.
    Where members differ and others have left one no home, its kind is placed before them, and all
    are anew: once for each kind at most.
    """
    order = sorted(
        range(len(gang.members)),
        key=lambda i: (-gang.members[i].gpu_demand, -gang.members[i].cpu_milli, i),
    )
    moved: list[Request] = []
    refusal: NoMatch | None = None
    while True:
        placed: dict[int, Placement] = {}
        for index in order:
            found = _place(matchmaker, gang, index, regions, placed.values(), now)
            if isinstance(found, NoMatch):
                break
            placed[index] = found
        else:
            return tuple(placed[i] for i in range(len(order)))
        for one in placed.values():
            matchmaker.release(one)
        refusal = found if refusal is None else refusal
        kind = gang.members[index]
        if kind in moved or not placed or {gang.members[i] for i in placed} == {kind}:
            return refusal
        moved.append(kind)
        order.sort(key=lambda i: gang.members[i] != kind)


def _place(
    matchmaker: Matchmaker,
    gang: Gang,
    index: int,
    regions: frozenset[str] | None,
    others: Collection[Placement],
    now: int,
) -> Placement | NoMatch:
    """One member inside *regions*, with or apart from the *others* that have their places."""
    hosts = frozenset(p.host for p in others)
    wanted = _narrowed(gang.members[index], regions, hosts if gang.spread else frozenset())
    found = None
    if not gang.spread:
        rows = sorted(matchmaker.fleet.row_of[h] for h in hosts)
        found = matchmaker.attempt(wanted, now, np.array(rows)) if rows else None
    return found or matchmaker.attempt(wanted, now) or matchmaker.refusal(wanted, now)


def _narrowed(wanted: Request, regions: frozenset[str] | None, apart: frozenset[str]) -> Request:
    """*wanted* and all that would do in its place, inside *regions* and on none of *apart*."""
    inside = wanted.regions
    if regions is not None:
        inside = (wanted.regions & regions if wanted.regions else regions) or _NOWHERE
    return replace(
        wanted,
        regions=inside,
        avoid=wanted.avoid | apart,
        any_of=tuple(_narrowed(one, regions, apart) for one in wanted.any_of),
    )
