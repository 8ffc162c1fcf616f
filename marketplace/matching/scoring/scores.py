"""What a placement costs the market: how much of the demand to come could no longer use what is
left.

The value of a host is its usable devices (:mod:`marketplace.matching.scoring.usable`) less a
little for cores out of proportion to them, which strand one or the other in the end. The cost of a
placement is the value that it takes away. ``docs/decisions/0040-scoring.md`` has what each term
brought.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Bools, Fleet, Ints, Rows
from marketplace.matching.model import WHOLE, Request
from marketplace.matching.scoring.standing import Standing, stranding
from marketplace.matching.scoring.usable import Floats, Usable

Slots: TypeAlias = NDArray[np.int16]


def score(
    fleet: Fleet,
    standing: Standing,
    rows: Rows,
    request: Request,
    fits: Bools | None,
    price_weight: float,
) -> tuple[Floats, Slots]:
    """Lowest cost of *request* on each of *rows*, which all have room for it, and the first device
    to use.

    *fits* says per device whether one device of the request may go there; None when it asks for no
    device.
    """
    usable = standing.usable
    free, cpu = fleet.free[rows], fleet.cpu[rows] - request.cpu_milli
    line = usable.lines(fleet.model0[rows], cpu, fleet.mem[rows] - request.memory_mib)
    column = (line * usable.width)[:, None]
    now = usable.flat.take(column + usable.level_of.take(free))
    now *= free
    idle = free == WHOLE
    strands = stranding(usable, cpu, free.sum(1) - request.gpu_demand, fleet.count1[rows])
    if request.gpu_count == 1 and fits is not None:
        after = free - request.gpu_milli
        # Where it does not fit *after* is negative and looks up nonsense, which *fits* throws away.
        then = usable.flat.take(column + usable.level_of.take(after))
        then *= after
        then -= now
        kept = _rest(usable, line, idle)
        kept += then
        if fleet.priced:
            kept -= price_weight * fleet.gpu_dear[rows]
        np.copyto(kept, -np.inf, where=~fits)
        slot, best = kept.argmax(1).astype(np.int16), kept.max(1)
        best += now.sum(1)
    else:
        slot = np.zeros(len(rows), np.int16)
        best = _several(fleet, usable, rows, request, fits, line, idle, now, price_weight)
    best -= strands
    return standing.values(fleet)[rows] - best, slot


def _rest(usable: Usable, line: Ints, idle: Bools) -> Floats:
    """Per device, what the devices left wholly free are worth to those who want several, once it is
    taken.

    Only whether the device itself was whole matters: two cases, not one per device.
    """
    same: Ints = idle.sum(1)
    fewer = np.maximum(same - 1, 0)
    rest_same = usable.many[line, np.minimum(same, usable.most)] * same
    rest_fewer = usable.many[line, np.minimum(fewer, usable.most)] * fewer
    rest: Floats = np.where(idle, rest_fewer[:, None], rest_same[:, None])
    return rest


def _several(
    fleet: Fleet,
    usable: Usable,
    rows: Rows,
    request: Request,
    fits: Bools | None,
    line: Ints,
    idle: Bools,
    now: Floats,
    price_weight: float,
) -> Floats:
    """Value left after whole devices, or none, are taken; the devices themselves are chosen at
    placement.
    """
    left = np.maximum(idle.sum(1) - request.gpu_count, 0)
    if fits is None:
        best = now.sum(1)
        rates = fleet.unit_rates(request)[rows]
    else:
        now[idle] = 0.0
        best = now.sum(1) + usable.one[line, usable.level_of[WHOLE]] * WHOLE * left
        dear = np.where(fits, fleet.gpu_rate[rows], np.iinfo(np.int64).max // 64)
        rates = np.sort(dear, axis=1)[:, : request.gpu_count].sum(1)
    best += usable.many[line, np.minimum(left, usable.most)] * left
    if fleet.priced:
        best -= price_weight * np.log2(1.0 + rates)
    return best
