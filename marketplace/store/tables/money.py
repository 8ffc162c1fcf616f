"""The tables of :mod:`records.money`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index
from sqlmodel import Field, SQLModel

from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.transaction import TxState
from marketplace.store.tables.columns import Named, as_big, as_key


class ChannelRow(SQLModel, table=True):
    """:class:`records.Channel`."""

    __tablename__ = "channels"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = as_key()
    account: str = Field(index=True)
    provider: str = Field(index=True)
    terms: bytes
    payout_address: str
    created_ms: int = as_big()
    open_tx: str
    state: ChannelStage = Field(sa_type=Named(ChannelStage, None), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    end_cumulative: int = as_big()
    end_signature: bytes
    keep_ms: int = as_big()
    keep_signature: bytes
    settled_tx: str
    claimed: int = as_big()
    paid: bool
    version: int


class ReceiptRow(SQLModel, table=True):
    """:class:`records.ReceiptRecord`."""

    __tablename__ = "receipts"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = as_key()
    seq: int = as_key(sa_type=BigInteger)
    lease: str
    tick: int = as_big()
    body: bytes
    signature: bytes
    unit_ms: int = as_big()
    lease_owed: int = as_big()
    channel_owed: int = as_big()
    final: bool
    at_ms: int = as_big()


Index("receipts_by_lease", ReceiptRow.lease, ReceiptRow.tick, unique=True)  # pyright: ignore[reportArgumentType] (columns at class level)


class VoucherRow(SQLModel, table=True):
    """:class:`records.VoucherRecord`."""

    __tablename__ = "vouchers"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = as_key()
    cumulative: int = as_big()
    signature: bytes
    lease: str
    at_ms: int = as_big()


class TxRow(SQLModel, table=True):
    """:class:`records.Tx`."""

    __tablename__ = "transactions"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    kind: str
    account: str = Field(index=True)
    session_vk: bytes = Field(index=True)
    lease: str = Field(index=True)
    state: TxState = Field(sa_type=Named(TxState, None), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    body: bytes
    fee: int = as_big()
    at_ms: int = as_big()
    version: int
