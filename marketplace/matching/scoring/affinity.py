"""Where owners already are, and what one kind of request costs there, kept like a shape's costs.

Shares of a device have one owner unless hardware parts them, so whoever holds one may go where
nobody else may. An owner with many leases asks about all of their hosts for every new one; only
those that changed are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from marketplace.matching.fleet import Fleet, Rows
from marketplace.matching.scoring.scores import Slots
from marketplace.matching.scoring.usable import Floats

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


class Owners:
    """Who holds something now: each with a number, and on how many leases in which rows."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rows: dict[str, dict[int, int]] = {}
        self._seen = 0

    def number(self, owner: str) -> int | None:
        """0 for the anonymous owner, None for one who holds nothing."""
        return self._numbers.get(owner) if owner else 0

    def name(self, number: int) -> str:
        """Whose number it is; empty when it is nobody's in particular."""
        return next((name for name, n in self._numbers.items() if number and n == number), "")

    def rows(self, owner: str) -> Mapping[int, int]:
        """The rows where an owner is, and with how many placements in each."""
        return self._rows.get(owner, {})

    def took(self, owner: str, row: int) -> int:
        """One more placement of *owner* in *row*; the owner's number."""
        if not owner:
            return 0
        number = self._numbers.get(owner, 0)
        if not number:
            self._seen += 1
            number = self._numbers[owner] = self._seen
        held = self._rows.setdefault(owner, {})
        held[row] = held.get(row, 0) + 1
        return number

    def gave(self, owner: str, row: int) -> None:
        """One placement less; an owner without any has no number any more."""
        if not owner:
            return
        held = self._rows[owner]
        held[row] -= 1
        if not held[row]:
            del held[row]
        if not held:
            del self._rows[owner], self._numbers[owner]
