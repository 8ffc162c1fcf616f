"""Making room for a higher priority: whom to give notice, and until when they may run.

Only work of lower priority is ever named, on one host, and as little of it as will do: first the lowest priority
that suffices, then the fewest devices interrupted, then the fewest jobs. Nothing is released here: the service gives
notice, and releases when the notice is over or the workload has ended by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.matching.engine import Matchmaker
from marketplace.matching.model import Placement, Request

NOTICE_MS: Final = 60_000
"""How long a preempted job may go on, to save its work."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Where *request* will fit once *victims* have ended, at the latest at ``deadline_ms``."""

    request: Request
    host: str
    victims: tuple[Placement, ...]
    deadline_ms: int


def plan_preemption(
    market: Matchmaker, request: Request, now: int, notice_ms: int = NOTICE_MS
) -> Preemption | None:
    """The gentlest preemption that lets a plain *request* in, or None. The market is left as it was."""
    lower: dict[str, list[Placement]] = {}
    for placed in market.live():
        if placed.request.priority < request.priority:
            lower.setdefault(placed.host, []).append(placed)
    best: tuple[tuple[int, int, int, str], tuple[Placement, ...]] | None = None
    for host, placed in lower.items():
        victims = _victims(market, host, placed, request, now)
        if victims is None:
            continue
        worth = (
            max(v.request.priority for v in victims),
            sum(v.request.gpu_demand for v in victims),
            len(victims),
            host,
        )
        if best is None or worth < best[0]:
            best = (worth, victims)
    if best is None:
        return None
    return Preemption(request, best[0][3], best[1], now + notice_ms)


def _victims(
    market: Matchmaker, host: str, placed: list[Placement], request: Request, now: int
) -> tuple[Placement, ...] | None:
    """The least of *placed* on *host* that must end: end them in order until it fits, then spare who need not."""
    order = sorted(placed, key=lambda p: (p.request.priority, p.request.gpu_demand, -p.id))
    ended: list[Placement] = []
    try:
        for victim in order:
            if market.fits_on(host, request, now):
                break
            _lift(market, victim)
            ended.append(victim)
        if not ended or not market.fits_on(host, request, now):
            return None
        for spared in sorted(ended, key=lambda p: (-p.request.priority, -p.request.gpu_demand)):
            _put_back(market, spared)
            if market.fits_on(host, request, now):
                ended.remove(spared)
            else:
                _lift(market, spared)
        return tuple(ended)
    finally:
        for victim in ended:
            _put_back(market, victim)


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
