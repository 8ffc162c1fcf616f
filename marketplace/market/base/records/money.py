"""What is owed and paid: channels, receipts, vouchers, transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.transaction import TxState
from marketplace.domain.money.voucher import Voucher
from marketplace.market.base.records.record import Record


@dataclass(frozen=True)
class Channel(Record):
    """A channel as the market knows it; the chain and the two parties' signatures are the truth."""

    KEY: ClassVar[tuple[str, ...]] = ("session_vk",)
    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"account", "provider", "created_ms", "terms", "payout_address"}
    )
    session_vk: bytes
    account: str
    provider: str
    terms: bytes  # of the first lease: its consts are the datum's
    payout_address: str
    created_ms: int
    open_tx: str = ""
    state: ChannelStage = ChannelStage.OPENING
    end_cumulative: int = 0
    end_signature: bytes = b""  # the consumer's End, once sent
    keep_ms: int = 0
    keep_signature: bytes = b""  # the consumer's longest Keep, once sent
    settled_tx: str = ""
    claimed: int = 0
    paid: bool = False  # money moves over it, as this market's own chain shows (``paying``)
    version: int = 0

    @property
    def keep(self) -> Keep:
        """The consumer's order, if ``keep_signature`` is there."""
        return Keep(self.session_vk, self.keep_ms, self.keep_signature)


@dataclass(frozen=True)
class ReceiptRecord(Record):
    """A verified receipt: kept for ever, it is the bill."""

    KEY: ClassVar[tuple[str, ...]] = ("session_vk", "seq")
    session_vk: bytes
    seq: int
    lease: str
    tick: int  # the lease's own count, from 1
    body: bytes
    signature: bytes
    unit_ms: int
    lease_owed: int
    channel_owed: int
    final: bool
    at_ms: int

    @property
    def signed(self) -> SignedReceipt:
        """The exact bytes and their signature."""
        return SignedReceipt(self.body, self.signature)


@dataclass(frozen=True)
class VoucherRecord(Record):
    """The greatest verified voucher of a channel."""

    KEY: ClassVar[tuple[str, ...]] = ("session_vk",)
    session_vk: bytes
    cumulative: int
    signature: bytes
    lease: str
    at_ms: int

    @property
    def voucher(self) -> Voucher:
        """As it goes over the wire and into a claim."""
        return Voucher(self.session_vk, self.cumulative, self.signature)


@dataclass(frozen=True)
class Tx(Record):
    """A transaction that was built here: its id is stored before it is sent."""

    id: str
    kind: str  # open, topup, close, claim, finish
    account: str
    session_vk: bytes
    lease: str
    state: TxState
    body: bytes
    fee: int
    at_ms: int
    version: int = 0
