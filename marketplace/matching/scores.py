"""What a placement costs the market: how much of the demand to come could no longer use what is left.

A device's free share is *usable* by a kind of demand when that kind could run there: its cores, its memory, its
model, its share (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4). Here the expectation over
all kinds is a handful of table look-ups: kinds are summed into cumulative tables over (model, cores, memory,
share), so that a host is scored exactly in time that does not depend on how many kinds there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Bools, Fleet, Ints
from marketplace.matching.model import WHOLE, Request

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Weights:
    """The scoring's few numbers, in idle GPUs. See docs/decisions for what each brought."""

    idle_gpu: float = 0.021
    idle_cpu: float = 0.013
    imbalance: float = 0.119
    demand_power: float = 0.5


class Usable:
    """Expected usable share of devices under a demand mix, as tables."""

    def __init__(
        self, mix: Sequence[tuple[Request, float]], models: Mapping[str, int], weights: Weights
    ) -> None:
        kinds = [(r, w) for r, w in mix if r.gpu_count and w > 0]
        self.weights = weights
        raw = np.array([(r.gpu_demand / WHOLE * w) ** weights.demand_power for r, w in kinds])
        share = raw / raw.sum() if len(kinds) else raw
        self.cpu_levels = np.unique([r.cpu_milli for r, _ in kinds]).astype(np.int64)
        self.mem_levels = np.unique([r.memory_mib for r, _ in kinds]).astype(np.int64)
        milli = sorted({r.gpu_milli for r, _ in kinds if r.gpu_count == 1})
        self.level_of = np.searchsorted(np.array(milli, np.int64), np.arange(WHOLE + 1), "right")
        most = max((r.gpu_count for r, _ in kinds), default=0)
        self.most = most
        shape = (len(models) + 1, len(self.cpu_levels) + 1, len(self.mem_levels) + 1)
        one = np.zeros((*shape, len(milli) + 1))
        many = np.zeros((*shape, most + 1))
        everyone = np.arange(shape[0])
        for (r, _), w in zip(kinds, share, strict=True):
            ic = int(np.searchsorted(self.cpu_levels, r.cpu_milli)) + 1
            im = int(np.searchsorted(self.mem_levels, r.memory_mib)) + 1
            on = [models[m] for m in r.gpu_models if m in models] if r.gpu_models else everyone
            if r.gpu_count == 1:
                one[on, ic, im, milli.index(r.gpu_milli) + 1] += w
            else:
                many[on, ic, im, r.gpu_count] += w
        for axis in (1, 2, 3):
            one = np.cumsum(one, axis)
            many = np.cumsum(many, axis)
        self.one, self.many = one, many

    def held(
        self, model: Ints, cpu: Ints, mem: Ints, levels: Ints, free: Ints, whole: Ints
    ) -> Floats:
        """Usable GPUs of each host; *levels* and *free* have a column per device, the rest one value per host."""
        ic = np.searchsorted(self.cpu_levels, cpu, "right")
        im = np.searchsorted(self.mem_levels, mem, "right")
        one = self.one[model[:, None], ic[:, None], im[:, None], levels]
        many = self.many[model, ic, im, np.minimum(whole, self.most)]
        return (one * free).sum(1) / WHOLE + many * whole


def score(
    fleet: Fleet,
    usable: Usable,
    rows: Rows,
    request: Request,
    fits: Bools,
    price_weight: float,
) -> tuple[Floats, NDArray[np.int16]]:
    """Lowest cost of *request* on each of *rows* and the first device to use; infinite where it does not fit.

    *fits* says per device whether one device of the request may go there.
    """
    free = fleet.free[rows]
    model = fleet.model0[rows]
    cpu, mem = fleet.cpu[rows], fleet.mem[rows]
    levels = usable.level_of[free]
    whole = np.count_nonzero(free == WHOLE, axis=1)
    before = usable.held(model, cpu, mem, levels, free, whole)
    cpu2, mem2 = cpu - request.cpu_milli, mem - request.memory_mib
    enough = (cpu2 >= 0) & (mem2 >= 0) & (fleet.disk[rows] >= request.disk_mib)
    n = len(rows)
    if request.gpu_count == 1:
        ic = np.searchsorted(usable.cpu_levels, cpu2, "right")
        im = np.searchsorted(usable.mem_levels, mem2, "right")
        table = usable.one[model, ic, im]
        at = np.arange(n)[:, None]
        now = table[at, levels] * free
        after = free - request.gpu_milli
        then = table[at, usable.level_of[np.maximum(after, 0)]] * after
        many = usable.many[model, ic, im]
        was_whole = free == WHOLE
        left = np.minimum(whole[:, None] - was_whole, usable.most)
        rest = many[at, np.maximum(left, 0)] * (whole[:, None] - was_whole)
        kept = (now.sum(1)[:, None] - now + then) / WHOLE + rest
        cost = np.where(fits, before[:, None] - kept, np.inf)
        if fleet.priced:
            cost += price_weight * np.log2(1.0 + fleet.gpu_rate[rows])
        slot = cost.argmin(1)
        best = cost[np.arange(n), slot]
    else:
        taken = request.gpu_count
        slot = np.zeros(n, np.int64)
        if taken:
            enough &= np.count_nonzero(fits, axis=1) >= taken
            chosen = fits & (np.cumsum(fits, axis=1) <= taken)
            free = np.where(chosen, 0, free)
            levels = usable.level_of[free]
            slot = fits.argmax(1)
        best = before - usable.held(
            model,
            np.maximum(cpu2, 0),
            np.maximum(mem2, 0),
            levels,
            free,
            np.maximum(whole - taken, 0),
        )
        if fleet.priced:
            rates = fleet.gpu_rate[rows]
            paid = np.sort(np.where(fits, rates, rates.max(initial=0)), axis=1)[:, :taken].sum(1)
            best += price_weight * np.log2(1.0 + (paid if taken else fleet.core_rate[rows]))
    w = usable.weights
    total = fleet.free[rows].sum(1) - request.gpu_demand
    # Small terms: prefer what is nearly full, and leave cores in proportion to devices.
    cores = cpu2 / 12_000.0
    best = best + w.idle_gpu * total / WHOLE + w.idle_cpu * cores
    best += w.imbalance * np.abs(cores - total / WHOLE) / np.maximum(fleet.count[rows], 1)
    return np.where(enough, best, np.inf), slot.astype(np.int16)
