"""The scores of ``scores.score`` for one host, in plain numbers.

In a market that is nearly full few of the hosts that changed have room for what is asked. For so
little, arrays cost several times what the sums cost. The operations and their order are those of
the arrays, so both give the same number to the last bit and hosts that are alike stay tied,
whichever way was taken. Devices with nothing free are worth nothing and are passed over.
"""

from __future__ import annotations

import numpy as np

from marketplace.matching.fleet import Fleet
from marketplace.matching.model import WHOLE, Request
from marketplace.matching.scoring.standing import Line, Standing, added, stranded
from marketplace.matching.scoring.usable import Usable


def score_row(
    fleet: Fleet,
    standing: Standing,
    row: int,
    request: Request,
    fits: list[bool],
    price_weight: float,
) -> tuple[float, int]:
    """Cost of *request* on *row*, which has room for it, and the first device to use (0 where it
    asks for none or for several: those are chosen at placement).

    *fits* says per device whether one device of the request may go there; empty when it asks for
    no device.
    """
    usable = standing.usable
    host = standing.line(fleet, row)
    cpu = host.cpu - request.cpu_milli
    one, many = usable.plain(usable.line(host.first, cpu, host.memory - request.memory_mib))
    if request.gpu_count == 1:
        dear: list[float] = fleet.gpu_dear[row].tolist() if fleet.priced else []
        best, slot = _one(usable, host, request.gpu_milli, fits, one, many, dear, price_weight)
    else:
        best, slot = _several(usable, host, request.gpu_count, one, many), 0
        if fleet.priced:
            rate = _dearness(fleet, row, request, fits)
            best -= price_weight * float(np.log2(1.0 + rate))
    best -= stranded(usable, cpu, host.total - request.gpu_demand, host.devices)
    return host.value - best, slot


def _one(
    usable: Usable,
    host: Line,
    milli: int,
    fits: list[bool],
    one: list[float],
    many: list[float],
    dear: list[float],
    price_weight: float,
) -> tuple[float, int]:
    """Value left after *milli* of the device where most is left, and that device."""
    reached, idle, most = usable.levels, host.idle, usable.most
    rest_same = many[min(idle, most)] * idle
    rest_fewer = many[min(idle - 1, most)] * (idle - 1) if idle else 0.0
    now = [0.0] * host.columns
    best, slot = -float("inf"), 0
    for at, share, level in host.open:
        now[at] = worth = one[level] * share
        if not fits[at]:
            continue
        after = share - milli
        kept = one[reached[after]] * after - worth
        kept += rest_fewer if share == WHOLE else rest_same
        if dear:
            kept -= price_weight * dear[at]
        if kept > best:
            best, slot = kept, at
    return best + added(now), slot


def _several(usable: Usable, host: Line, count: int, one: list[float], many: list[float]) -> float:
    """Value left after *count* whole devices, or none, are taken."""
    left = max(host.idle - count, 0)
    now = [0.0] * host.columns
    for at, share, level in host.open:
        if not count or share != WHOLE:
            now[at] = one[level] * share
    best = added(now)
    if count:
        best += one[usable.levels[WHOLE]] * WHOLE * left
    return best + many[min(left, usable.most)] * left


def _dearness(fleet: Fleet, row: int, request: Request, fits: list[bool]) -> int:
    """Rate of the *gpu_count* cheapest devices that fit, or of a core or a GB."""
    if not request.gpu_count:
        return int(fleet.unit_rates(request)[row])
    rates: list[int] = fleet.gpu_rate[row].tolist()
    return sum(
        sorted(rate for rate, fit in zip(rates, fits, strict=True) if fit)[: request.gpu_count]
    )
