"""Requests that are placed all together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.model import Gang, NoMatch, Placement, Request


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
    """One attempt inside *regions*; the largest members first, since they have the fewest
    homes.
    """
    order = sorted(
        range(len(gang.members)),
        key=lambda i: (-gang.members[i].gpu_demand, -gang.members[i].cpu_milli, i),
    )
    done: dict[int, Placement] = {}
    for index in order:
        wanted = gang.members[index]
        if regions is not None:
            allowed = wanted.regions & regions if wanted.regions else regions
            wanted = replace(wanted, regions=allowed or frozenset({"\0nowhere"}))
        hosts = {p.host for p in done.values()}
        if gang.spread and hosts:
            wanted = replace(wanted, avoid=wanted.avoid | hosts)
        found = None
        if not gang.spread:
            rows = sorted(matchmaker.fleet.row_of[h] for h in hosts)
            found = matchmaker.attempt(wanted, now, np.array(rows)) if rows else None
        found = found or matchmaker.attempt(wanted, now)
        if found is None:
            refusal = matchmaker.refusal(wanted, now)
            for placed in done.values():
                matchmaker.release(placed)
            return refusal
        done[index] = found
    return tuple(done[i] for i in range(len(gang.members)))
