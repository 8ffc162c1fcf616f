"""The scores of ``scores.score`` for one device on one host, in plain numbers.

A placement changes one host, and that host is what every later request looks at again: for so little,
arrays cost several times what the sums cost. The operations and their order are those of the arrays, so
both give the same number to the last bit and hosts that are alike stay tied, whichever way was taken.
"""

from __future__ import annotations

import numpy as np

from marketplace.matching.fleet import Fleet
from marketplace.matching.model import WHOLE, Request
from marketplace.matching.scores import Standing

_IN_ORDER = 8
"""Fewer terms than this numpy adds one after the other; more it adds in pairs."""


def score_row(
    fleet: Fleet,
    standing: Standing,
    row: int,
    request: Request,
    fits: list[bool],
    price_weight: float,
) -> tuple[float, int]:
    """Lowest cost of *request*, which asks for one device, on *row* and the device; infinite if it does not fit.

    *fits* says per device whether it may go there.
    """
    usable = standing.usable
    cpu, mem = int(fleet.cpu[row]) - request.cpu_milli, int(fleet.mem[row]) - request.memory_mib
    if cpu < 0 or mem < 0 or not any(fits):
        return float("inf"), 0
    if request.disk_mib and int(fleet.disk[row]) < request.disk_mib:
        return float("inf"), 0
    line = usable.line(int(fleet.model0[row]), cpu, mem)
    table: list[float] = usable.one[line].tolist()
    many: list[float] = usable.many[line].tolist()
    free: list[int] = fleet.free[row].tolist()
    levels: list[int] = standing.level[row].tolist()
    dear: list[float] | None = fleet.gpu_dear[row].tolist() if fleet.priced else None
    whole = int(standing.whole[row])
    fewer = max(whole - 1, 0)
    rest_same = many[min(whole, usable.most)] * whole
    rest_fewer = many[min(fewer, usable.most)] * fewer
    now = [table[level] * share for level, share in zip(levels, free, strict=True)]
    best, slot = -float("inf"), 0
    for at, share in enumerate(free):
        if not fits[at]:
            continue
        after = share - request.gpu_milli
        kept = rest_fewer if share == WHOLE else rest_same
        kept += table[usable.levels[after]] * after - now[at]
        if dear is not None:
            kept -= price_weight * dear[at]
        if kept > best:
            best, slot = kept, at
    best += total(now)
    best -= stranded(standing, row, cpu, int(standing.total[row]) - request.gpu_milli, fleet)
    return float(standing.value[row]) - best, slot


def open_slots(fleet: Fleet, row: int, request: Request, owner: int | None) -> list[bool]:
    """Per device: free enough for *request* by *owner* (see ``filters.free_devices``); its terms are not looked at."""
    free: list[int] = fleet.free[row].tolist()
    milli = request.gpu_milli
    if milli == WHOLE:
        return [share == WHOLE for share in free]
    if owner == 0 and not fleet.named:
        return [share >= milli for share in free]
    jobs: list[int] = fleet.owners_jobs[row].tolist()
    owners: list[int] = fleet.owner[row].tolist()
    return [
        share >= milli and (jobs[at] == 0 or owners[at] == owner) for at, share in enumerate(free)
    ]


def stranded(standing: Standing, row: int, cpu: int, total: int, fleet: Fleet) -> float:
    """``scores.stranding`` of one row."""
    usable = standing.usable
    w = usable.weights
    apart = cpu * (1 / usable.cores_per_gpu) - total * (1 / WHOLE)
    return max(w.spare_cores * apart, -w.short_cores * apart) / int(fleet.count1[row])


def total(values: list[float]) -> float:
    """The sum as numpy makes it along a row."""
    if len(values) < _IN_ORDER:
        return sum(values)
    return float(np.add.reduce(np.array(values)))
