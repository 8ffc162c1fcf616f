"""The tables: one for each record, column for field. Nothing but the store sees them.

Ids are text, money and time are 64-bit integers, enumerations are stored by name, lists and maps
as JSON. The indexes are those that a query of the service uses. Over 400 lines: a table a record,
and a schema is read in one place.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Index, String
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel

from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.transaction import TxState
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.preemption import PreemptionState
from marketplace.market.base import records


class Named(TypeDecorator[Enum]):
    """An enumeration stored by the names of its members."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[Enum], length: int | None = 20) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: Enum | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else value.name

    def process_result_value(self, value: str | None, dialect: Dialect) -> Enum | None:
        """From it."""
        return None if value is None else self.kind[value]


def _key(**more: Any) -> Any:
    return Field(primary_key=True, **more)


def _big(**more: Any) -> Any:
    return Field(sa_type=BigInteger, **more)


def _json() -> Any:
    return Field(sa_type=JSON)


class AccountRow(SQLModel, table=True):
    """:class:`records.Account`."""

    __tablename__ = "accounts"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    created_ms: int = _big()
    suspended: str
    version: int


class LoginRow(SQLModel, table=True):
    """:class:`records.Login`."""

    __tablename__ = "logins"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    address: str
    account: str
    expires_ms: int = _big(index=True)


class ApiKeyRow(SQLModel, table=True):
    """:class:`records.ApiKey`."""

    __tablename__ = "api_keys"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    account: str = Field(index=True)
    hash: str = Field(unique=True)
    name: str
    verbs: list[str] = _json()
    budget: int = _big()
    created_ms: int = _big()
    expires_ms: int = _big()
    committed: int = _big()
    revoked_ms: int = _big()
    month_cap: int = _big()
    month: int
    month_committed: int = _big()
    version: int


class OfferRow(SQLModel, table=True):
    """:class:`records.OfferRecord`."""

    __tablename__ = "offers"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    provider: str = Field(unique=True)
    state: OfferState = Field(sa_type=Named(OfferState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    body: bytes
    created_ms: int = _big()
    seen_ms: int = _big()
    process: str
    away_ms: int = _big()
    suspended: str
    version: int


class JobRow(SQLModel, table=True):
    """:class:`records.Job`."""

    __tablename__ = "jobs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    account: str
    api_key: str = Field(index=True)
    name: str
    kind: str
    spec: dict[str, Any] = _json()
    consumer_vkh: bytes
    channels: list[str] = _json()
    state: JobState = Field(sa_type=Named(JobState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    created_ms: int = _big()
    updated_ms: int = _big()
    session_vk: bytes
    spares: list[str] = _json()
    priority: int
    lease: str
    provider: str
    reason: str
    message: str
    exit_code: int | None
    needs: str
    retries: int
    spent_before: int = _big()
    avoid: list[str] = _json()
    explain: dict[str, Any] = _json()
    gang: str = Field(index=True)
    busy: dict[str, int] = _json()
    not_before_ms: int = _big()
    hop: bytes
    direct: list[str] = _json()
    version: int


Index("jobs_by_account", JobRow.account, JobRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class GangRow(SQLModel, table=True):
    """:class:`records.Gang`."""

    __tablename__ = "gangs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    account: str
    state: GangState = Field(sa_type=Named(GangState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    reason: str
    version: int


class LeaseRow(SQLModel, table=True):
    """:class:`records.Lease`."""

    __tablename__ = "leases"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    job: str = Field(index=True)
    offer: str
    provider: str = Field(index=True)
    account: str = Field(index=True)
    session_vk: bytes = Field(index=True)
    state: LeaseState = Field(sa_type=Named(LeaseState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    terms: bytes
    rate_micro: int = _big()
    ceiling: int = _big()
    units_milli: int = _big()
    resource: str
    gpus: list[str] = _json()
    share: int
    cpu_milli: int = _big()
    memory_mib: int = _big()
    disk_mib: int = _big()
    block: int
    device: str
    simulated: bool
    reused: bool
    created_ms: int = _big()
    expires_ms: int = _big()
    adapter_signature: bytes
    session_signature: bytes
    channel_tx: str
    secrets: dict[str, str] = _json()
    open_tx: bytes
    reason: str
    message: str
    stage: str
    exit_code: int | None
    started_ms: int = _big()
    finished_ms: int = _big()
    ended_ms: int = _big()
    stop_asked: str
    settled_tx: str
    owed: int = _big()
    hop: bytes
    route: dict[str, str] = _json()
    version: int


class PreemptionRow(SQLModel, table=True):
    """:class:`records.Preemption`."""

    __tablename__ = "preemptions"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    job: str = _key()
    account: str = Field(index=True)
    state: PreemptionState = Field(sa_type=Named(PreemptionState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    offer: str
    gpus: list[str] = _json()
    block: int
    victims: list[str] = _json()
    created_ms: int = _big()
    deadline_ms: int = _big()
    expires_ms: int = _big()
    version: int


class ChannelRow(SQLModel, table=True):
    """:class:`records.Channel`."""

    __tablename__ = "channels"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = _key()
    account: str = Field(index=True)
    provider: str = Field(index=True)
    terms: bytes
    payout_address: str
    created_ms: int = _big()
    open_tx: str
    state: ChannelStage = Field(sa_type=Named(ChannelStage, None), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    end_cumulative: int = _big()
    end_signature: bytes
    keep_ms: int = _big()
    keep_signature: bytes
    settled_tx: str
    claimed: int = _big()
    paid: bool
    version: int


class LeaseKeyRow(SQLModel, table=True):
    """:class:`records.LeaseKey`."""

    __tablename__ = "lease_keys"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = _key()
    lease: str
    account: str
    provider: str
    hop: bytes = Field(index=True)
    paid: bool
    version: int


class ReceiptRow(SQLModel, table=True):
    """:class:`records.ReceiptRecord`."""

    __tablename__ = "receipts"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = _key()
    seq: int = _key(sa_type=BigInteger)
    lease: str
    tick: int = _big()
    body: bytes
    signature: bytes
    unit_ms: int = _big()
    lease_owed: int = _big()
    channel_owed: int = _big()
    final: bool
    at_ms: int = _big()


Index("receipts_by_lease", ReceiptRow.lease, ReceiptRow.tick, unique=True)  # pyright: ignore[reportArgumentType] (columns at class level)


class VoucherRow(SQLModel, table=True):
    """:class:`records.VoucherRecord`."""

    __tablename__ = "vouchers"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = _key()
    cumulative: int = _big()
    signature: bytes
    lease: str
    at_ms: int = _big()


class EventRow(SQLModel, table=True):
    """:class:`records.Event`."""

    __tablename__ = "events"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    job: str
    lease: str
    account: str
    at_ms: int = _big()
    kind: str
    detail: dict[str, Any] = _json()


Index("events_by_job", EventRow.job, EventRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class LogRow(SQLModel, table=True):
    """:class:`records.LogRecord`."""

    __tablename__ = "logs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    lease: str = _key()
    offset: int = _key(sa_type=BigInteger)
    job: str = Field(index=True)
    stream: str
    data: bytes
    at_ms: int = _big()


class SentRow(SQLModel, table=True):
    """:class:`records.Sent`: the outbox."""

    __tablename__ = "outbox"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    target: str
    payload: bytes
    at_ms: int = _big()


Index("outbox_by_target", SentRow.target, SentRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class RememberedRow(SQLModel, table=True):
    """:class:`records.Remembered`."""

    __tablename__ = "remembered"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    account: str = _key()
    key: str = _key()
    question: str
    status: int
    answer: dict[str, Any] = _json()
    at_ms: int = _big(index=True)


class OutputRow(SQLModel, table=True):
    """:class:`records.Output`."""

    __tablename__ = "outputs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    job: str = _key()
    path: str = _key()
    lease: str
    sha256: str = Field(index=True)
    size: int = _big()
    at_ms: int = _big()


class BlobRow(SQLModel, table=True):
    """:class:`records.Blob`."""

    __tablename__ = "blobs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    account: str = _key()
    sha256: str = _key()
    size: int = _big()
    at_ms: int = _big()


class HookRow(SQLModel, table=True):
    """:class:`records.Hook`."""

    __tablename__ = "webhooks"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    account: str = Field(index=True)
    url: str
    kinds: list[str] = _json()
    created_ms: int = _big()
    rotation: int
    failures: int
    version: int


class DeliveryRow(SQLModel, table=True):
    """:class:`records.Delivery`."""

    __tablename__ = "deliveries"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    hook: str = Field(index=True)
    body: dict[str, Any] = _json()
    next_ms: int = _big(index=True)
    attempts: int
    done_ms: int = _big(index=True)
    status: int
    error: str
    version: int


class AuditRow(SQLModel, table=True):
    """:class:`records.Audit`."""

    __tablename__ = "audit"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    at_ms: int = _big()
    actor: str = Field(index=True)
    action: str
    subject: str = Field(index=True)
    detail: dict[str, Any] = _json()


class TxRow(SQLModel, table=True):
    """:class:`records.Tx`."""

    __tablename__ = "transactions"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    kind: str
    account: str = Field(index=True)
    session_vk: bytes = Field(index=True)
    lease: str = Field(index=True)
    state: TxState = Field(sa_type=Named(TxState, None), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    body: bytes
    fee: int = _big()
    at_ms: int = _big()
    version: int


class InUseHourRow(SQLModel, table=True):
    """:class:`records.InUseHour`."""

    __tablename__ = "in_use_hours"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    at_ms: int = _key(sa_type=BigInteger)
    looks: int = _big()
    offers: int = _big()
    gpu_milli: int = _big()
    gpu_milli_held: int = _big()
    core_milli: int = _big()
    core_milli_held: int = _big()
    running: int = _big()
    waiting: int = _big()
    version: int


class PresenceDayRow(SQLModel, table=True):
    """:class:`records.PresenceDay`."""

    __tablename__ = "presence_days"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    provider: str = _key()
    day: int = _key(sa_type=BigInteger, index=True)
    looks: int = _big()
    there: int = _big()
    version: int


class SettingRow(SQLModel, table=True):
    """:class:`records.Setting`."""

    __tablename__ = "settings"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = _key()
    value: str
    version: int


class LockRow(SQLModel, table=True):
    """:class:`records.Lock`."""

    __tablename__ = "locks"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = _key()
    holder: str
    epoch: int
    beat: int = _big()
    version: int = _big()


class ProcessRow(SQLModel, table=True):
    """:class:`records.Process`."""

    __tablename__ = "processes"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = _key()
    started_ms: int = _big()
    beat_ms: int = _big()
    version: int = _big()


class StandingRow(SQLModel, table=True):
    """:class:`records.Standing`."""

    __tablename__ = "standings"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = _key()
    paid: int = _big()
    lapses: int = _big()
    strikes: int = _big()
    last_ms: int = _big()
    owing: list[str] = _json()
    turn: str
    address: str
    version: int


ROWS: dict[type[records.Record], type[SQLModel]] = {
    records.Account: AccountRow,
    records.Login: LoginRow,
    records.ApiKey: ApiKeyRow,
    records.OfferRecord: OfferRow,
    records.Job: JobRow,
    records.Gang: GangRow,
    records.Lease: LeaseRow,
    records.Preemption: PreemptionRow,
    records.Channel: ChannelRow,
    records.LeaseKey: LeaseKeyRow,
    records.ReceiptRecord: ReceiptRow,
    records.VoucherRecord: VoucherRow,
    records.Event: EventRow,
    records.LogRecord: LogRow,
    records.Sent: SentRow,
    records.Remembered: RememberedRow,
    records.Output: OutputRow,
    records.Blob: BlobRow,
    records.Hook: HookRow,
    records.Delivery: DeliveryRow,
    records.Audit: AuditRow,
    records.Tx: TxRow,
    records.InUseHour: InUseHourRow,
    records.PresenceDay: PresenceDayRow,
    records.Setting: SettingRow,
    records.Lock: LockRow,
    records.Process: ProcessRow,
    records.Standing: StandingRow,
}
