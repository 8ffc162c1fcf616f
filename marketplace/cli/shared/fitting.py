"""Which columns of a table fit a width: those that may go are left out in a stated order, and no
word is ever broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

GAP: Final = 2


def widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]
) -> tuple[list[int], list[int]]:
    """(least, most) of each column in characters: without breaking a word, and without folding at
    all. Columns of *whole* are never folded.
    """
    least: list[int] = []
    most: list[int] = []
    for place, column in enumerate(columns):
        texts = [column, *(row[place] for row in rows)]
        parts = texts if column in whole else [word for text in texts for word in text.split()]
        least.append(max(map(cell_len, parts), default=0))
        most.append(max(map(cell_len, texts)))
    return least, most


def fitting(
    columns: Sequence[str], needs: Sequence[int], room: int, drop: Sequence[str]
) -> list[int]:
    """The places of the columns that stay: all that fit into *room* characters, *needs* wide each,
    once those of *drop* went, in that order. Without the last of them it may be too wide still.
    """
    kept = list(range(len(columns)))
    for name in (None, *drop):
        kept = [place for place in kept if columns[place] != name]
        if taken(needs, kept) <= room:
            break
    return kept


def taken(needs: Sequence[int], kept: Sequence[int]) -> int:
    """Characters that the columns *kept* take with the gaps between them."""
    return sum(needs[place] for place in kept) + GAP * max(0, len(kept) - 1)


def shared(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths within *room*: what each column needs, and of what is left the first that want
    more.
    """
    left = room - taken(least, range(len(least)))
    wide: list[int] = []
    for low, high in zip(least, most, strict=True):
        more = min(left, high - low)
        left -= more
        wide.append(low + more)
    return wide
