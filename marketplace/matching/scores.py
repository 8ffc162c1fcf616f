"""What a placement costs the market: how much of the demand to come could no longer use what is left.

A device's free share is *usable* by a kind of demand when that kind could run there: its cores, its memory, its
model, its share (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4). The expectation over all
kinds is exact and yet a handful of look-ups: kinds are summed once into cumulative tables over (model, cores,
memory, share), so the time to score a host does not depend on how many kinds there are.

The value of a host is its usable devices less a little for cores out of proportion to them, which strand one or the
other in the end. The cost of a placement is the value that it takes away. ``docs/decisions/0040-scoring.md`` has what each term brought.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Bools, Fleet, Ints, Rows
from marketplace.matching.model import WHOLE, Request

Floats = NDArray[np.float64]
Slots = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Weights:
    """The scoring's numbers.

    ``share_power``: every kind of demand counts the same, however often it comes and however many devices it takes,
    times its share of a device to this power; below zero, room is kept for small shares, which can use what others
    leave. ``spare_cores`` and ``short_cores`` are idle GPUs per core-equivalent beyond, and below, what the
    free devices need at the mix's own cores per device. ``scarcity``: see :mod:`marketplace.matching.demand`.
    """

    share_power: float = -1.0
    spare_cores: float = 0.2
    short_cores: float = 0.5
    scarcity: float = 0.8


CORES_PER_GPU: Final = 12_000.0
"""Milli-cores taken to go with a device while the mix says nothing."""


FEW: Final = 4
"""Up to this many changed rows are looked at one by one."""


class Usable:
    """Expected usable share of devices under a demand mix, as tables."""

    def __init__(
        self, mix: Sequence[tuple[Request, float]], models: Mapping[str, int], weights: Weights
    ) -> None:
        kinds = [(r, w) for r, w in mix if r.gpu_count and w > 0]
        self.weights = weights
        devices = sum(r.gpu_demand * w for r, w in kinds) / WHOLE
        cores = sum(r.cpu_milli * w for r, w in mix if w > 0)
        self.cores_per_gpu = max(cores / devices, 1.0) if devices else CORES_PER_GPU
        raw = np.array([(r.gpu_milli / WHOLE) ** weights.share_power for r, _ in kinds])
        share = raw / raw.sum() if len(kinds) else raw
        self.cpu_levels = np.unique([r.cpu_milli for r, _ in kinds]).astype(np.int64)
        self.mem_levels = np.unique([r.memory_mib for r, _ in kinds]).astype(np.int64)
        milli = sorted({r.gpu_milli for r, _ in kinds if r.gpu_count == 1})
        level_of = np.searchsorted(np.array(milli, np.int64), np.arange(WHOLE + 1), "right")
        self.level_of = level_of.astype(np.int64)
        self.levels: list[int] = level_of.tolist()
        most = max((r.gpu_count for r, _ in kinds), default=0)
        self.most = most
        shape = (len(models) + 1, len(self.cpu_levels) + 1, len(self.mem_levels) + 1)
        one = np.zeros((*shape, len(milli) + 1))
        many = np.zeros((*shape, most + 1))
        everyone = list(range(shape[0]))
        for (r, _), w in zip(kinds, share, strict=True):
            ic = int(np.searchsorted(self.cpu_levels, r.cpu_milli)) + 1
            im = int(np.searchsorted(self.mem_levels, r.memory_mib)) + 1
            on = [models[m] for m in r.gpu_models if m in models] if r.gpu_models else everyone
            if r.gpu_count == 1:
                one[on, ic, im, milli.index(r.gpu_milli) + 1] += w
            else:
                many[on, ic, im, r.gpu_count] += w
        for axis in (1, 2, 3):
            np.cumsum(one, axis, out=one)
            np.cumsum(many, axis, out=many)
        # Usable GPUs, so that a share in per-mille needs no division later.
        self.one = one.reshape(-1, len(milli) + 1) / WHOLE
        self.many = many.reshape(-1, most + 1)
        self._strides = (shape[1] * shape[2], shape[2])
        self._cpus: list[int] = self.cpu_levels.tolist()
        self._mems: list[int] = self.mem_levels.tolist()

    def at(self, model: NDArray[np.int32], cpu: Ints, mem: Ints) -> Ints:
        """The tables' line for hosts of these models with this much left."""
        ic = self.cpu_levels.searchsorted(cpu, "right")
        im = self.mem_levels.searchsorted(mem, "right")
        return model * self._strides[0] + ic * self._strides[1] + im

    def line(self, model: int, cpu: int, mem: int) -> int:
        """The same for one host."""
        ic, im = bisect_right(self._cpus, cpu), bisect_right(self._mems, mem)
        return model * self._strides[0] + ic * self._strides[1] + im


class Standing:
    """What each host is worth as it stands, kept for the rows that changed since the last look."""

    def __init__(self, usable: Usable) -> None:
        self.usable = usable
        self._mark = -1
        self.level: Ints = np.zeros((0, 0), np.int64)
        self.whole: Ints = np.zeros(0, np.int64)
        self.total: Ints = np.zeros(0, np.int64)
        self.value: Floats = np.zeros(0)

    def refresh(self, fleet: Fleet) -> None:
        """Bring the rows changed in *fleet* up to date."""
        if self._mark == fleet.log.end:
            return
        rows = fleet.log.since(self._mark) if self._mark >= 0 else None
        if rows is None or self.level.shape != fleet.free.shape:
            shape = fleet.free.shape
            self.level = np.zeros(shape, np.int64)
            self.whole, self.total = (np.zeros(shape[0], np.int64) for _ in range(2))
            self.value = np.zeros(shape[0])
            rows = np.arange(shape[0])
        self._mark = fleet.log.end
        if len(rows) <= FEW:
            for row in rows.tolist():
                self._refresh_one(fleet, row)
            return
        free = fleet.free[rows]
        level = self.usable.level_of[free]
        whole = (free == WHOLE).sum(1)
        total = free.sum(1)
        self.level[rows], self.whole[rows] = level, whole
        self.total[rows] = total
        line = self.usable.at(fleet.model0[rows], fleet.cpu[rows], fleet.mem[rows])
        held = (self.usable.one[line[:, None], level] * free).sum(1)
        held += self.usable.many[line, np.minimum(whole, self.usable.most)] * whole
        strands = stranding(self.usable, fleet.cpu[rows], total, fleet.count1[rows])
        self.value[rows] = np.round(held - strands, 9)

    def _refresh_one(self, fleet: Fleet, row: int) -> None:
        """The same for one row: for so little, plain numbers are several times faster than arrays."""
        usable, w = self.usable, self.usable.weights
        free: list[int] = fleet.free[row].tolist()
        level = [usable.levels[share] for share in free]
        whole, total = free.count(WHOLE), sum(free)
        cpu = int(fleet.cpu[row])
        line = usable.line(int(fleet.model0[row]), cpu, int(fleet.mem[row]))
        table: list[float] = usable.one[line].tolist()
        held = sum([table[at] * share for at, share in zip(level, free, strict=True)])
        held += float(usable.many[line, min(whole, usable.most)]) * whole
        apart = cpu / usable.cores_per_gpu - total / WHOLE
        strands = max(w.spare_cores * apart, -w.short_cores * apart) / int(fleet.count1[row])
        self.level[row] = level
        self.whole[row], self.total[row] = whole, total
        self.value[row] = round(held - strands, 9)


def stranding(usable: Usable, cpu: Ints, total: Ints, devices: NDArray[np.int32]) -> Floats:
    """What cores out of proportion to free devices are held to cost, per device of the host; one value per host."""
    w = usable.weights
    apart = cpu * (1 / usable.cores_per_gpu) - total * (1 / WHOLE)
    return np.maximum(w.spare_cores * apart, -w.short_cores * apart) / devices


def score(
    fleet: Fleet,
    standing: Standing,
    rows: Rows,
    request: Request,
    fits: Bools | None,
    price_weight: float,
) -> tuple[Floats, Slots]:
    """Lowest cost of *request* on each of *rows* and the first device to use; infinite where it does not fit.

    *fits* says per device whether one device of the request may go there; None when it asks for no device.
    """
    cpu = fleet.cpu[rows] - request.cpu_milli
    mem = fleet.mem[rows] - request.memory_mib
    enough = (cpu >= 0) & (mem >= 0)
    if request.disk_mib:
        enough &= fleet.disk[rows] >= request.disk_mib
    usable = standing.usable
    line = usable.at(fleet.model0[rows], cpu, mem)
    if request.gpu_count == 1 and fits is not None:
        kept, slot = _one(fleet, standing, rows, request, fits, line, cpu, price_weight)
    else:
        kept, slot = _several(fleet, standing, rows, request, fits, line, cpu, price_weight)
    cost = standing.value[rows] - kept
    cost[~enough] = np.inf
    return cost, slot


def _one(
    fleet: Fleet,
    standing: Standing,
    rows: Rows,
    request: Request,
    fits: Bools,
    line: Ints,
    cpu: Ints,
    price_weight: float,
) -> tuple[Floats, Slots]:
    """Value left after the best single device is taken, and that device."""
    usable = standing.usable
    free, level = fleet.free[rows], standing.level[rows]
    was_whole = free == WHOLE
    # Where it does not fit this is negative and looks up nonsense, which *fits* throws away below.
    after = free - request.gpu_milli
    column = line[:, None]
    now = usable.one[column, level] * free
    then = usable.one[column, usable.level_of[after]] * after
    whole = standing.whole[rows]
    total = standing.total[rows] - request.gpu_milli
    # Only whether the device was whole matters to what remains of whole ones: two cases, not one per device.
    fewer = np.maximum(whole - 1, 0)
    rest_same = usable.many[line, np.minimum(whole, usable.most)] * whole
    rest_fewer = usable.many[line, np.minimum(fewer, usable.most)] * fewer
    kept = np.where(was_whole, rest_fewer[:, None], rest_same[:, None])
    kept += then - now
    if fleet.priced:
        kept -= price_weight * fleet.gpu_dear[rows]
    kept[~fits] = -np.inf
    slot = kept.argmax(1)
    best = kept[np.arange(len(rows)), slot] + now.sum(1)
    best -= stranding(usable, cpu, total, fleet.count1[rows])
    return best, slot.astype(np.int16)


def _several(
    fleet: Fleet,
    standing: Standing,
    rows: Rows,
    request: Request,
    fits: Bools | None,
    line: Ints,
    cpu: Ints,
    price_weight: float,
) -> tuple[Floats, Slots]:
    """Value left after whole devices, or none, are taken; the devices themselves are chosen at placement."""
    usable = standing.usable
    taken = request.gpu_count
    free, level = fleet.free[rows], standing.level[rows]
    whole = standing.whole[rows] - taken
    short = np.zeros(len(rows), np.bool_)
    now = usable.one[line[:, None], level] * free
    if taken and fits is not None:
        short = fits.sum(1) < taken
        now[free == WHOLE] = 0.0
        top = usable.one[line, usable.level_of[WHOLE]] * WHOLE
        kept = now.sum(1) + top * np.maximum(whole, 0)
    else:
        kept = now.sum(1)
    left = np.maximum(whole, 0)
    kept += usable.many[line, np.minimum(left, usable.most)] * left
    total = standing.total[rows] - taken * WHOLE
    kept -= stranding(usable, cpu, total, fleet.count1[rows])
    if fleet.priced:
        rates = fleet.core_rate[rows]
        if taken and fits is not None:
            dear = np.where(fits, fleet.gpu_rate[rows], np.iinfo(np.int64).max // 64)
            rates = np.sort(dear, axis=1)[:, :taken].sum(1)
        kept -= price_weight * np.log2(1.0 + rates)
    kept[short] = -np.inf
    return kept, np.zeros(len(rows), np.int16)
