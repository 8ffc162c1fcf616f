"""Making room for a higher priority: whom to give notice, and until when they may run.

Only work of lower priority is ever named, on one host, and as little of it as will do: first the
lowest priority that suffices, then the fewest devices interrupted, then the fewest jobs. Nothing is
released here: the service gives notice, keeps the room (:mod:`marketplace.matching.reservations`),
and ends who still runs when the notice is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from marketplace.matching import filters
from marketplace.matching.engine import Matchmaker
from marketplace.matching.model import Placement, Request

NOTICE_MS: Final = 60_000
"""How long a preempted job may go on, to save its work."""

MOST_HOSTS: Final = 256
"""Hosts looked at for one plan: those with the lowest priorities first, so that a plan takes a
tenth of a second at most.
"""

Rank: TypeAlias = Callable[[Placement], int]
"""The priority of what runs there; an adopted placement does not know its own."""

May: TypeAlias = Callable[[Placement, Sequence[Placement]], bool]
"""Whether the first may end too, once the others have: where fair shares are protected."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Where the plain *request* will fit, on which devices, once *victims* have ended, at the
    latest at ``deadline_ms``.
    """

    request: Request
    host: str
    gpus: tuple[int, ...]
    victims: tuple[Placement, ...]
    deadline_ms: int


def plan_preemption(
    market: Matchmaker,
    request: Request,
    now: int,
    notice_ms: int = NOTICE_MS,
    among: Iterable[Placement] | None = None,
    rank: Rank = lambda placed: placed.request.priority,
    may: May = lambda placed, ended: True,
) -> Preemption | None:
    """The gentlest preemption that lets *request* in, or None. The market is left as it was.

    *among*: who may be named at all (default: everybody); a request's alternatives are tried in
    order, each with its least count of devices.
    """
    known = market.live() if among is None else among
    # Rented disk makes way for nobody: what it holds would be lost, and not only interrupted.
    kept = [placed for placed in known if not placed.request.rents_disk]
    lower = [placed for placed in kept if rank(placed) < request.priority]
    for plain in _plain(request):
        found = _plan(market, plain, now, lower, rank, may)
        if found is not None:
            host, gpus, victims = found
            return Preemption(plain, host, gpus, victims, now + notice_ms)
    return None


def _plain(request: Request) -> list[Request]:
    """The request and its alternatives, each with the fewest devices that it accepts."""
    own = replace(request, any_of=(), gpu_count_max=None)
    return [own, *(plain for other in request.any_of for plain in _plain(other))]


def _plan(
    market: Matchmaker,
    request: Request,
    now: int,
    lower: Sequence[Placement],
    rank: Rank,
    may: May,
) -> tuple[str, tuple[int, ...], tuple[Placement, ...]] | None:
    by_host: dict[str, list[Placement]] = {}
    for placed in lower:
        by_host.setdefault(placed.host, []).append(placed)
    best: tuple[tuple[int, int, int, str], tuple[int, ...], tuple[Placement, ...]] | None = None
    for host in _suitable(market, request, now, by_host, rank):
        found = _victims(market, host, by_host[host], request, now, rank, may)
        if found is None:
            continue
        gpus, victims = found
        worth = (
            max(rank(v) for v in victims),
            sum(v.request.gpu_demand for v in victims),
            len(victims),
            host,
        )
        if best is None or worth < best[0]:
            best = (worth, gpus, victims)
    return None if best is None else (best[0][3], best[1], best[2])


def _suitable(
    market: Matchmaker, request: Request, now: int, by_host: dict[str, list[Placement]], rank: Rank
) -> list[str]:
    """Hosts whose terms hold and that take new leases, at most :data:`MOST_HOSTS`."""
    hosts = list(by_host)
    rows = np.array([market.fleet.row_of[host] for host in hosts], np.int64)
    if not len(rows):
        return []
    closed = np.isin(rows, np.array(market.closed(request, now), np.int64))
    fails = (filters.failed_terms(market.fleet, rows, request) != 0) | closed
    fails |= market.fleet.draining[rows] | filters.below_minimum(market.fleet, rows, request)
    good = [host for host, bad in zip(hosts, fails.tolist(), strict=True) if not bad]
    if len(good) > MOST_HOSTS:
        good.sort(key=lambda host: (min(rank(p) for p in by_host[host]), host))
    return good[:MOST_HOSTS]


def _victims(
    market: Matchmaker,
    host: str,
    placed: list[Placement],
    request: Request,
    now: int,
    rank: Rank,
    may: May,
) -> tuple[tuple[int, ...], tuple[Placement, ...]] | None:
    """The least of *placed* on *host* that must end: end them in order until it fits, then spare
    who need not.
    """
    order = sorted(placed, key=lambda p: (rank(p), p.request.gpu_demand, -p.id))
    ended: list[Placement] = []
    try:
        for victim in order:
            if market.fits_on(host, request, now):
                break
            if may(victim, ended):
                _lift(market, victim)
                ended.append(victim)
        if not ended or not market.fits_on(host, request, now):
            return None
        for spared in sorted(ended, key=lambda p: (-rank(p), -p.request.gpu_demand)):
            _put_back(market, spared)
            if market.fits_on(host, request, now):
                ended.remove(spared)
            else:
                _lift(market, spared)
        return tightest(market, host, request), tuple(ended)
    finally:
        for victim in ended:
            _put_back(market, victim)


def tightest(market: Matchmaker, host: str, request: Request) -> tuple[int, ...]:
    """The devices of *host* that *request* would take: the least free of those that do, the
    cheapest first.
    """
    row = market.fleet.row_of[host]
    owner = market.owner_number(request.owner)
    if not request.gpu_count:
        return ()
    fits = filters.open_devices(market.fleet, np.array([row]), request, owner)[0]
    free, rate = market.fleet.free[row], market.fleet.gpu_rate[row]
    slots = sorted(np.flatnonzero(fits).tolist(), key=lambda s: (int(free[s]), int(rate[s]), s))
    return tuple(sorted(slots[: request.gpu_count]))


def _lift(market: Matchmaker, placed: Placement) -> None:
    r = placed.request
    row = market.fleet.row_of[placed.host]
    market.fleet.give(row, placed.gpus, r.gpu_milli, (r.cpu_milli, r.memory_mib, r.disk_mib))


def _put_back(market: Matchmaker, placed: Placement) -> None:
    r = placed.request
    row = market.fleet.row_of[placed.host]
    owner = market.owner_number(r.owner) or 0
    need = (r.cpu_milli, r.memory_mib, r.disk_mib)
    market.fleet.take(row, placed.gpus, r.gpu_milli, need, owner)
