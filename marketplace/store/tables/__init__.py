"""The tables: one for each record, column for field. Nothing but the store sees them.

Ids are text, money and time are 64-bit integers, enumerations are stored by name, lists and maps
as JSON. The indexes are those that a query of the service uses.
"""

from __future__ import annotations

from sqlmodel import SQLModel

from marketplace.market.base import records
from marketplace.store.tables.accounts import (
    AccountRow,
    ApiKeyRow,
    LoginRow,
    PortLinkRow,
    PublicImageRow,
    StandingRow,
)
from marketplace.store.tables.hooks import DeliveryRow, HookRow
from marketplace.store.tables.jobs import (
    BlobRow,
    EventRow,
    GangRow,
    JobRow,
    LogRow,
    OutputRow,
    PreemptionRow,
)
from marketplace.store.tables.leases import ClusterWordRow, KeptStoreRow, LeaseKeyRow, LeaseRow
from marketplace.store.tables.money import ChannelRow, ReceiptRow, TxRow, VoucherRow
from marketplace.store.tables.offers import (
    ImageRow,
    InUseHourRow,
    OfferRow,
    PresenceDayRow,
    StockRow,
)
from marketplace.store.tables.operations import (
    AuditRow,
    LockRow,
    ProcessRow,
    RememberedRow,
    SentRow,
    SettingRow,
)
from marketplace.store.tables.services import ReplicaRow, ServiceLoadRow, ServiceRow

ROWS: dict[type[records.Record], type[SQLModel]] = {
    records.Account: AccountRow,
    records.Login: LoginRow,
    records.PortLink: PortLinkRow,
    records.PublicImage: PublicImageRow,
    records.ApiKey: ApiKeyRow,
    records.OfferRecord: OfferRow,
    records.StockRecord: StockRow,
    records.ImageRecord: ImageRow,
    records.Job: JobRow,
    records.Gang: GangRow,
    records.Lease: LeaseRow,
    records.Preemption: PreemptionRow,
    records.Channel: ChannelRow,
    records.LeaseKey: LeaseKeyRow,
    records.ClusterWord: ClusterWordRow,
    records.KeptStore: KeptStoreRow,
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
    records.Service: ServiceRow,
    records.Replica: ReplicaRow,
    records.ServiceLoad: ServiceLoadRow,
}
