"""A bill that holds: its lines by lease, its totals by channel, and what they sum up to.

Money is lovelace, time milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from marketplace.domain.units import Resource


@dataclass(frozen=True)
class LostTime:
    """Time of a lease that was not billed, with its cause; always 0 lovelace."""

    cause: str
    ms: int


@dataclass(frozen=True)
class Line:
    """One lease: what was delivered, at which rate, and what that makes."""

    lease: str
    provider: str
    channel: bytes
    resource: Resource
    units_milli: int
    rate_micro: int
    ticks: int
    started_wall_ms: int
    ended_wall_ms: int
    lease_ms: int
    unit_ms: int
    owed: int
    ceiling: int
    final: bool
    lost: tuple[LostTime, ...]


@dataclass(frozen=True)
class Total:
    """One channel: what its leases owe, what was signed for, claimed, sent home and is still held.

    *signed* is the greatest voucher. What it holds beyond *owed* is *ahead*: an allowance for later
    ticks, no word about what was delivered, and nobody's due.
    """

    channel: bytes
    owed: int
    signed: int
    ahead: int
    claimed: int | None
    refunded: int | None
    held: int | None
    funded: int | None
    ended: bool | None


@dataclass(frozen=True)
class Invoice:
    """A bill that holds: *owed* is this job's share of its channels."""

    job: str
    lines: tuple[Line, ...]
    channels: tuple[Total, ...]

    @property
    def owed(self) -> int:
        """What the job cost."""
        return sum(line.owed for line in self.lines)

    @property
    def unsigned(self) -> int:
        """Delivered and never paid for: the provider's loss, two ticks a lease at most."""
        return sum(max(total.owed - total.signed, 0) for total in self.channels)

    @property
    def ahead(self) -> int:
        """Signed for beyond what was delivered; none of it may be claimed."""
        return sum(total.ahead for total in self.channels)

    @property
    def reconciled(self) -> bool:
        """Whether every channel has ended on the ledger, with its due to the lovelace."""
        return bool(self.channels) and all(
            t.ended and t.claimed == min(t.signed, t.owed) for t in self.channels
        )

    def to_json(self) -> dict[str, Any]:
        """For programs; bytes as hex."""
        return {
            "job": self.job,
            "owed": self.owed,
            "unsigned": self.unsigned,
            "ahead": self.ahead,
            "reconciled": self.reconciled,
            "lines": [_plain(line) for line in self.lines],
            "channels": [_plain(total) for total in self.channels],
        }


def _plain(value: Line | Total) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, part in vars(value).items():
        if isinstance(part, bytes):
            row[name] = part.hex()
        elif isinstance(part, tuple):
            lost = cast("tuple[LostTime, ...]", part)
            row[name] = [{"cause": item.cause, "ms": item.ms} for item in lost]
        else:
            row[name] = part
    return row
