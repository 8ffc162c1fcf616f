"""What one kind of request costs on the hosts where its owner already is, kept like a shape's
costs.

Shares of a device have one owner unless hardware parts them, so whoever holds one may go where
nobody else may. An owner with many leases asks about all of their hosts for every new one; only
those that changed are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.scores import Slots
from marketplace.matching.usable import Floats

CELLS: Final = 4_000_000
"""Costs kept over all owners: about 40 MB, whatever the market's size; the least recently used go
first.
"""

Score = Callable[[Rows], tuple[Floats, Slots]]


class Own:
    """Costs per row, infinite where the owner holds nothing."""

    __slots__ = ("cost", "number", "seen", "slot", "version")

    def __init__(self, rows: int, number: int, version: int) -> None:
        self.cost: Floats = np.full(rows, np.inf)
        self.slot: Slots = np.zeros(rows, np.int16)
        self.seen = -1
        self.number, self.version = number, version


class Beside:
    """Those of all owners that asked lately, by shape and owner."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, str], Own] = {}

    def of(
        self,
        fleet: Fleet,
        key: tuple[Any, str],
        number: int,
        held: Mapping[int, int],
        version: int,
        score: Score,
    ) -> Own:
        """Brought up to date. *held*: the rows where the owner is; *version*: of the demand that
        scores follow.
        """
        own = self._kept.pop(key, None)
        if (
            own is None
            or (own.number, own.version) != (number, version)
            or len(own.cost) != fleet.rows
        ):
            own = Own(fleet.rows, number, version)
        changed = fleet.log.since(own.seen) if own.seen >= 0 else None
        if changed is None:
            own.cost.fill(np.inf)
            rows = sorted(held)
        else:
            own.cost[changed] = np.inf
            rows = [row for row in set(changed.tolist()) if row in held]
        if rows:
            at: Rows = np.array(rows, np.int64)
            own.cost[at], own.slot[at] = score(at)
        own.seen = fleet.log.end
        self._kept[key] = own
        while len(self._kept) > max(4, CELLS // max(fleet.rows, 1)):
            self._kept.pop(next(iter(self._kept)))
        return own
