"""What the market remembers: plain values with a version each. Tables are the store's affair.

Every record has ``KEY`` (the fields that name it) and ``FIXED`` (the fields that never change
after the insert). A record with a ``version`` is written by compare-and-set; one without is only
ever inserted, or replaced by a greater one. Money is lovelace, time ms, as everywhere.
"""

from marketplace.market.base.records.accounts import (
    Account,
    ApiKey,
    Login,
    PortLink,
    PublicImage,
    Standing,
)
from marketplace.market.base.records.hooks import Delivery, Hook
from marketplace.market.base.records.jobs import (
    Blob,
    Event,
    Gang,
    Job,
    LogRecord,
    Output,
    Preemption,
)
from marketplace.market.base.records.leases import (
    SIGNED,
    ClusterWord,
    KeptStore,
    Lease,
    LeaseKey,
    Word,
)
from marketplace.market.base.records.money import Channel, ReceiptRecord, Tx, VoucherRecord
from marketplace.market.base.records.offers import (
    ImageRecord,
    InUseHour,
    OfferRecord,
    PresenceDay,
    StockRecord,
)
from marketplace.market.base.records.operations import (
    Audit,
    Lock,
    Process,
    Remembered,
    Sent,
    Setting,
)
from marketplace.market.base.records.record import Json, Record
from marketplace.market.base.records.services import Replica, Service, ServiceLoad

__all__ = [
    "SIGNED",
    "Account",
    "ApiKey",
    "Audit",
    "Blob",
    "Channel",
    "ClusterWord",
    "Delivery",
    "Event",
    "Gang",
    "Hook",
    "ImageRecord",
    "InUseHour",
    "Job",
    "Json",
    "KeptStore",
    "Lease",
    "LeaseKey",
    "Lock",
    "LogRecord",
    "Login",
    "OfferRecord",
    "Output",
    "PortLink",
    "Preemption",
    "PresenceDay",
    "Process",
    "PublicImage",
    "ReceiptRecord",
    "Record",
    "Remembered",
    "Replica",
    "Sent",
    "Service",
    "ServiceLoad",
    "Setting",
    "Standing",
    "StockRecord",
    "Tx",
    "VoucherRecord",
    "Word",
]
