"""How much a channel can pay, and how much of it to rely on while a rollback is still likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# (blocks, lovelace): value from an open or a top-up that this many blocks hold may be relied on up
# to this much; None is no cap. A rollback takes back young blocks and, with them, the money.
DEPTH_CAPS: Final[tuple[tuple[int, int | None], ...]] = (
    (15, None),
    (5, 60_000_000),
    (1, 3_000_000),
)


@dataclass(frozen=True, slots=True)
class Funding:
    """Value that an open or a top-up put in; *depth* counts blocks, its own included (0: none);
    *tx*: that transaction's id.
    """

    amount: int
    depth: int
    tx: bytes = b""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Cumulative amounts, of the channel's asset: the most it can pay, and the most to rely on now.

    Both count from the channel's beginning, as vouchers do. *reserve* stays inside for Close and
    the refund.
    """

    most: int
    now: int
    reserve: int


def capacity(fundings: Sequence[Funding], reserve: int) -> Capacity:
    """Value and claimed together are what was ever put in, so both limits follow from
    *fundings*.
    """
    most = sum(f.amount for f in fundings)
    return Capacity(max(0, most - reserve), max(0, relied_on(fundings) - reserve), reserve)


def relied_on(fundings: Sequence[Funding]) -> int:
    """What to rely on: each depth's value up to its cap."""
    total, deeper = 0, None
    for blocks, cap in DEPTH_CAPS:
        held = sum(
            f.amount for f in fundings if f.depth >= blocks and (deeper is None or f.depth < deeper)
        )
        total += held if cap is None else min(held, cap)
        deeper = blocks
    return total
