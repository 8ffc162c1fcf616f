"""What each transaction in a block did to the adapter's money: kept for good, about 150 bytes each.

From it comes what was really earned: what was claimed, less the chain's fees and the settlers'
bounties. A row is one transaction; a rollback takes it out again. All of it is in memory as well,
so that whoever asks for the status waits for no disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import cbor2

from adapter.journal.journal import Journal

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Payment:
    """One transaction in a block. Money in lovelace, but *claimed* and *arrived* in the asset that
    the channels hold. *at_ms*: its block's time; *channels*: by session key, what it took from each
    of ours; *fee*: what our fee key paid to the chain, 0 for somebody else's transaction; *spent*:
    by how much the fee key's money fell (negative: it rose); *arrived*: what the payout got.
    """

    tx: bytes
    at_ms: int
    height: int
    purpose: str
    fee: int = 0
    spent: int = 0
    arrived: int = 0
    channels: Mapping[bytes, int] = field(default_factory=dict[bytes, int])

    @property
    def claimed(self) -> int:
        """What left our channels for us."""
        return sum(self.channels.values())

    @property
    def net(self) -> int:
        """What we have more than before. For ADA; in a token the two are not one sum."""
        return self.arrived - self.spent

    @property
    def moved(self) -> int:
        """Of the fee key's own money: what now lies at the payout."""
        return max(0, self.spent - self.fee)

    @property
    def day(self) -> str:
        """The day of its block, in UTC: ``2027-01-31``."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class Sum:
    """Of many payments, as in :class:`Payment`."""

    transactions: int = 0
    claimed: int = 0
    fees: int = 0
    moved: int = 0
    net: int = 0

    def plus(self, one: Payment) -> Sum:
        """With *one* more."""
        return Sum(
            self.transactions + 1, self.claimed + one.claimed, self.fees + one.fee,
            self.moved + one.moved, self.net + one.net,
        )  # fmt: skip


class Payments:
    """The journal's payments. Reading is free; what writes blocks: call it in a thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows = {bytes(row[0]): _read(row) for row in journal.payments()}

    def put(self, one: Payment) -> None:
        """Durable when it returns. What is known of the same transaction's channels stays."""
        known = self._rows.get(one.tx)
        whole = one if known is None else replace(one, channels={**known.channels, **one.channels})
        body = cbor2.dumps(
            [whole.height, whole.purpose, whole.fee, whole.spent, whole.arrived,
             [[vk, n] for vk, n in sorted(whole.channels.items())]]
        )  # fmt: skip
        self._journal.put_payment(whole.tx, whole.at_ms, body)
        self._rows = {**self._rows, whole.tx: whole}

    def drop(self, tx: bytes) -> None:
        """A rollback took it out of the chain."""
        self._journal.drop_payment(tx)
        self._rows = {key: one for key, one in self._rows.items() if key != tx}

    def get(self, tx: bytes) -> Payment | None:
        """What is known of the transaction *tx*."""
        return self._rows.get(tx)

    def booked(self, session_vk: bytes) -> int:
        """What was claimed from one channel by transactions that are known."""
        return sum(one.channels.get(session_vk, 0) for one in self._rows.values())

    def since(self, height: int) -> list[Payment]:
        """Those in blocks from *height* on."""
        return [one for one in self._rows.values() if one.height >= height]

    def rows(self) -> list[Payment]:
        """All, oldest first."""
        return sorted(self._rows.values(), key=lambda one: (one.at_ms, one.height, one.tx))

    @property
    def total(self) -> Sum:
        """Of all of them."""
        return _sum(self._rows.values())

    def days(self) -> dict[str, Sum]:
        """By day (UTC), the earliest first."""
        found: dict[str, list[Payment]] = {}
        for one in self.rows():
            found.setdefault(one.day, []).append(one)
        return {day: _sum(rows) for day, rows in found.items()}


def _sum(rows: Iterable[Payment]) -> Sum:
    total = Sum()
    for one in rows:
        total = total.plus(one)
    return total


def _read(row: tuple[bytes, int, bytes]) -> Payment:
    tx, at_ms, body = row
    height, purpose, fee, spent, arrived, channels = cbor2.loads(body)
    taken = {bytes(vk): int(n) for vk, n in channels}
    return Payment(tx, at_ms, height, purpose, fee, spent, arrived, taken)
