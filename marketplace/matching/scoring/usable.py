"""How much of a device's free share the demand to come could use: the tables behind every score.

A device's free share is *usable* by a kind of demand when that kind could run there: its cores, its
memory, its model, its share (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4).
The expectation over all kinds is exact and yet a handful of look-ups: kinds are summed once into
cumulative tables over (model, cores, memory, share), so the time to score a host does not depend on
how many kinds there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Ints, Small
from marketplace.matching.model import WHOLE, Request

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weights:
    """The scoring's numbers.

    ``share_power``: every kind of demand counts the same, however often it comes and however many
    devices it takes, times its share of a device to this power; below zero, room is kept for small
    shares, which can use what others leave. ``spare_cores`` and ``short_cores`` are idle GPUs per
    core-equivalent beyond, and below, what the free devices need at the mix's own cores per device.
    ``scarcity``: see :mod:`marketplace.matching.scoring.demand`.
    """

    share_power: float = -1.0
    spare_cores: float = 0.2
    short_cores: float = 0.5
    scarcity: float = 0.8


CORES_PER_GPU: Final = 12_000.0
"""Milli-cores taken to go with a device while the mix says nothing."""


MOST_PLAIN: Final = 1 << 14
"""Lines kept in plain numbers: about 10 MB."""


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
        self.flat, self.width = self.one.ravel(), len(milli) + 1
        self.many = many.reshape(-1, most + 1)
        self.per_model, self._per_core_level = shape[1] * shape[2], shape[2]
        self._plain: dict[int, tuple[list[float], list[float]]] = {}
        self._cpus: list[int] = self.cpu_levels.tolist()
        self._mems: list[int] = self.mem_levels.tolist()

    def lines(self, model: Small, cpu: Ints, mem: Ints) -> Ints:
        """The tables' line for hosts of these models with this much left."""
        line = self.cpu_levels.searchsorted(cpu, "right")
        line *= self._per_core_level
        line += self.mem_levels.searchsorted(mem, "right")
        return line + model * self.per_model

    def line(self, first: int, cpu: int, mem: int) -> int:
        """The line of one host; *first* is the first line of its model."""
        cores = bisect_right(self._cpus, cpu) * self._per_core_level
        return first + cores + bisect_right(self._mems, mem)

    def plain(self, line: int) -> tuple[list[float], list[float]]:
        """A line of both tables in plain numbers: for single devices by level, for several by how
        many are idle.
        """
        known = self._plain.get(line)
        if known is None:
            if len(self._plain) >= MOST_PLAIN:
                self._plain.clear()
            known = self._plain[line] = (self.one[line].tolist(), self.many[line].tolist())
        return known
