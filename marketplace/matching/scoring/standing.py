"""What each host is worth as it stands, kept in two forms and brought up to date where hosts
changed.

A market that is nearly full looks at few hosts at a time, and for few hosts plain numbers are
several times faster than arrays: :meth:`Standing.line` keeps them by host. Whoever looks at many
takes the array of :meth:`values`. Both forms come from the same operations in the same order, so
hosts that are alike are worth the same to the last bit whichever way they were looked at.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from marketplace.matching.fleet import Fleet, Ints, Small
from marketplace.matching.model import WHOLE
from marketplace.matching.scoring.usable import Floats, Usable

MOST_LINES: Final = 1 << 15
"""Hosts kept in plain numbers: about 20 MB."""

_ROUND: Final = 1e9
"""Values are rounded to nine places, so that sums in another order do not part what is alike."""


class Line(NamedTuple):
    """One host in plain numbers: milli-cores, MiB, its model's first line in the tables, devices
    (at least 1), devices wholly free, per-mille free in all, columns of the tables, its devices
    with something free (which, its per-mille, the level of the tables that it reaches), its worth.
    """

    cpu: int
    memory: int
    first: int
    devices: int
    idle: int
    total: int
    columns: int
    open: list[tuple[int, int, int]]
    value: float


class Standing:
    """The worth of hosts under one set of tables."""

    def __init__(self, usable: Usable) -> None:
        self.usable = usable
        self._lines: dict[int, Line] = {}
        self._lines_mark = self._values_mark = -1
        self._values: Floats = np.zeros(0)

    def line(self, fleet: Fleet, row: int) -> Line:
        """The host of *row* in plain numbers."""
        if self._lines_mark != fleet.log.end:
            changed = fleet.log.since(self._lines_mark)
            if changed is None:
                self._lines.clear()
            else:
                for at in changed.tolist():
                    self._lines.pop(at, None)
            self._lines_mark = fleet.log.end
        known = self._lines.get(row)
        if known is None:
            if len(self._lines) >= MOST_LINES:
                self._lines.clear()
            known = self._lines[row] = self._look(fleet, row)
        return known

    def values(self, fleet: Fleet) -> Floats:
        """The worth of every host, by row."""
        if self._values_mark != fleet.log.end:
            changed = fleet.log.since(self._values_mark) if self._values_mark >= 0 else None
            if changed is None or len(self._values) != fleet.rows:
                self._values = np.zeros(fleet.rows)
                changed = np.arange(fleet.rows)
            usable, free, cpu = self.usable, fleet.free[changed], fleet.cpu[changed]
            at = usable.lines(fleet.model0[changed], cpu, fleet.mem[changed])
            held = (usable.one[at[:, None], usable.level_of[free]] * free).sum(1)
            idle = (free == WHOLE).sum(1)
            held += usable.many[at, np.minimum(idle, usable.most)] * idle
            held -= stranding(usable, cpu, free.sum(1), fleet.count1[changed])
            self._values[changed] = np.rint(held * _ROUND) / _ROUND
            self._values_mark = fleet.log.end
        return self._values

    def _look(self, fleet: Fleet, row: int) -> Line:
        usable = self.usable
        cpu, memory, devices = int(fleet.cpu[row]), int(fleet.mem[row]), int(fleet.count1[row])
        free: list[int] = fleet.free[row].tolist()
        reached = usable.levels
        some = [(at, share, reached[share]) for at, share in enumerate(free) if share]
        idle, total = free.count(WHOLE), sum(free)
        first = int(fleet.model0[row]) * usable.per_model
        one, many = usable.plain(usable.line(first, cpu, memory))
        worth = [0.0] * len(free)
        for at, share, level in some:
            worth[at] = one[level] * share
        held = added(worth)
        held += many[min(idle, usable.most)] * idle
        held -= stranded(usable, cpu, total, devices)
        value = round(held * _ROUND) / _ROUND
        return Line(cpu, memory, first, devices, idle, total, len(free), some, value)


def stranding(usable: Usable, cpu: Ints, total: Ints, devices: Small) -> Floats:
    """What cores out of proportion to free devices are held to cost, per device of the host; one
    value per host.
    """
    w = usable.weights
    apart = cpu * (1 / usable.cores_per_gpu)
    apart -= total * (1 / WHOLE)
    worst = np.maximum(w.spare_cores * apart, -w.short_cores * apart)
    worst /= devices
    return worst


def stranded(usable: Usable, cpu: int, total: int, devices: int) -> float:
    """:func:`stranding` of one host."""
    w = usable.weights
    apart = cpu * (1 / usable.cores_per_gpu) - total * (1 / WHOLE)
    return max(w.spare_cores * apart, -w.short_cores * apart) / devices


def added(terms: list[float]) -> float:
    """The sum as numpy makes it along a row: eight terms in pairs of pairs, fewer one after the
    other.
    """
    if len(terms) == 8:
        a, b, c, d, e, f, g, h = terms
        return ((a + b) + (c + d)) + ((e + f) + (g + h))
    if len(terms) < 8:
        return sum(terms)
    return float(np.add.reduce(np.array(terms)))
