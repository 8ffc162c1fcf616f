"""What adapters, payers and the market say to each other: every message there is, in one list.

Each class is a kind of frame and is sent by its name; ``codec`` says how.  What is signed, paid or
decided upon is in fields without a default; a field with one came later and may be absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol.cluster_messages import MeshPlaced as MeshPlaced
from marketplace.domain.protocol.cluster_messages import MeshRelay as MeshRelay
from marketplace.domain.protocol.cluster_messages import MeshSeen as MeshSeen
from marketplace.domain.protocol.cluster_messages import OrderSent as OrderSent
from marketplace.domain.protocol.cluster_messages import StoreAsked as StoreAsked
from marketplace.domain.protocol.cluster_messages import StoreGiven as StoreGiven
from marketplace.domain.protocol.hop_messages import HopOpened as HopOpened
from marketplace.domain.protocol.hop_messages import HopPaid as HopPaid
from marketplace.domain.protocol.hop_messages import HopRefused as HopRefused
from marketplace.domain.protocol.hop_messages import PaidSent as PaidSent
from marketplace.domain.protocol.hop_messages import RouteProposed as RouteProposed
from marketplace.domain.protocol.message import Message as Message
from marketplace.domain.protocol.stock_messages import ManifestTold as ManifestTold
from marketplace.domain.protocol.stock_messages import StockTold as StockTold
from marketplace.domain.protocol.workload_messages import RelayLooked as RelayLooked
from marketplace.domain.protocol.workload_messages import ShellOpened as ShellOpened
from marketplace.domain.protocol.workload_messages import ShellSized as ShellSized
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec


@dataclass(frozen=True)
class Hello(Message):
    """First frame of a client: who it is (*key*, Ed25519), in which *role*, what it received, the
    *market*'s origin (``site.origin_of``), and *capabilities* beyond the first version, sorted.
    *session* names its process run: another starts both numberings anew."""

    role: str
    key: bytes
    session: bytes
    received: int
    magic: int
    software: str
    market: str
    capabilities: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Challenge(Message):
    """The market's answer: sign this nonce."""

    nonce: bytes


@dataclass(frozen=True)
class Proof(Message):
    """Signature over ``conversation.hello_message(nonce, hello)``."""

    signature: bytes


@dataclass(frozen=True)
class Welcome(Message):
    """Authenticated; the market has received up to *received* of this session; its clock is
    *now_ms*. Whoever stated *capabilities* is told the market's: both use what both have."""

    received: int
    session: bytes
    now_ms: int
    capabilities: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Rejected(Message):
    """The connection or one message is refused; nothing was changed by it."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Data(Message):
    """A numbered payload: delivered once and in order, across reconnects of the same session."""

    seq: int
    payload: bytes


@dataclass(frozen=True)
class Ack(Message):
    """Everything up to *seq* has been handled."""

    seq: int


@dataclass(frozen=True)
class OfferPosted(Message):
    """The adapter's offer as it is now (also after a change of health, price or schedule)."""

    offer: Offer
    draining: bool


@dataclass(frozen=True)
class LeasesHeld(Message):
    """After every welcome: the leases that the adapter still holds. The market ends all others."""

    leases: list[str]


@dataclass(frozen=True)
class LeaseAccepted(Message):
    """The adapter signed the terms that were proposed."""

    lease: str
    terms: SignedTerms


@dataclass(frozen=True)
class LeaseDeclined(Message):
    """It did not, and why; *remedy* says what the consumer can do, where it can do something."""

    lease: str
    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class LeaseProgress(Message):
    """A step of a lease at the provider.

    *stage*: CHANNEL_SEEN, PULLING, STARTING, STARTED, PAUSED, RESUMED, AT_TIP, OFF_TIP, ORDERED,
    STOPPING, FINISHED, SETTLED.  *detail* holds plain facts: reason (``EndReason``), code, message,
    exit_code, done/total of a pull, tx of a settlement.
    """

    lease: str
    stage: str
    at_ms: int
    detail: dict[str, Any]


@dataclass(frozen=True)
class LogChunk(Message):
    """Bytes of a workload's output from *offset*; *stream* is stdout or stderr."""

    lease: str
    offset: int
    stream: str
    data: bytes


@dataclass(frozen=True)
class Telemetry(Message):
    """Evidence for charts, about once a second: GPU, CPU, memory, energy. Never the price."""

    lease: str
    at_ms: int
    values: dict[str, int]


@dataclass(frozen=True)
class OutputReady(Message):
    """One output was archived: content-addressed; fetched by ``BlobWanted``/``BlobPart``.
    *signature*: the adapter's (``SignedOutput``).
    """

    lease: str
    path: str
    sha256: str
    size: int
    signature: bytes = b""


@dataclass(frozen=True)
class BlobWanted(Message):
    """Please send part of a blob (either side may ask the other)."""

    lease: str
    sha256: str
    offset: int
    length: int


@dataclass(frozen=True)
class BlobPart(Message):
    """The part that was asked for; empty *data* at the end; *total* in bytes."""

    lease: str
    sha256: str
    offset: int
    total: int
    data: bytes


@dataclass(frozen=True)
class LeaseProposed(Message):
    """Will you run *job* under *terms* (canonical bytes, unsigned)?"""

    lease: str
    job: JobSpec
    terms: bytes


@dataclass(frozen=True)
class LeaseSigned(Message):
    """Both signed. *channel_tx* is the open transaction (hex id), *secrets* sealed to the
    adapter; *open_tx* its bytes, where the payer handed them over to be served before a block.
    """

    lease: str
    terms: SignedTerms
    channel_tx: str
    secrets: dict[str, bytes]
    open_tx: bytes = b""


@dataclass(frozen=True)
class LeaseCancelled(Message):
    """The proposal or lease is over for the market: stop at once; what is owed stays owed."""

    lease: str
    reason: str


@dataclass(frozen=True)
class ReceiptSent(Message):
    """A tick, from the adapter."""

    lease: str
    receipt: SignedReceipt


@dataclass(frozen=True)
class VoucherSent(Message):
    """A tick's answer, from the payer. *lease* is the one whose receipt it answers."""

    lease: str
    voucher: Voucher


@dataclass(frozen=True)
class EndSent(Message):
    """The consumer wants the channel ended now: stop its leases, claim, finish."""

    end: End


@dataclass(frozen=True)
class KeepSent(Message):
    """The consumer wants the channel kept open for its next lease, and ended once it was idle for
    so long.
    """

    keep: Keep


@dataclass(frozen=True)
class EndOffered(Message):
    """An adapter's channel is to be ended, and waits until *until_ms* (the chain's clock) for a
    transaction that ends others' too (capability ``ends``).

    Its output is *index* of *tx_id* (32 bytes); the voucher is its *cumulative* amount with its
    *signature*, and *take_to* how much of it is taken; 0, 0 and no bytes where nothing is due.
    """

    session_vk: bytes
    tx_id: bytes
    index: int
    cumulative: int
    take_to: int
    signature: bytes
    until_ms: int


@dataclass(frozen=True)
class EndDeclined(Message):
    """The market ends this channel with no others: its adapter does so by itself, at once."""

    session_vk: bytes
    code: str
    message: str


@dataclass(frozen=True)
class EndsProposed(Message):
    """Will you sign *tx* (unsigned, whole), which ends channels of yours that you offered?
    *round* names the question.
    """

    round: str
    tx: bytes


@dataclass(frozen=True)
class EndsSigned(Message):
    """The adapter's *signature* over the body's hash, by the key (*verify_key*) that ends its
    channels.
    """

    round: str
    verify_key: bytes
    signature: bytes


@dataclass(frozen=True)
class EndsRefused(Message):
    """It signs nothing in this round; *code* is the rule that the transaction breaks."""

    round: str
    code: str
    message: str


@dataclass(frozen=True)
class StopAsked(Message):
    """The consumer wants this one lease stopped; the channel stays open for others."""

    lease: str
    reason: str


@dataclass(frozen=True)
class ExecAsked(Message):
    """Run a command inside the workload."""

    lease: str
    call: str
    command: list[str]


@dataclass(frozen=True)
class ExecDone(Message):
    """What it printed, bounded, and its exit code."""

    lease: str
    call: str
    exit_code: int
    output: bytes


@dataclass(frozen=True)
class StreamOpened(Message):
    """A connection to a port of the workload, through the market."""

    lease: str
    stream_id: str
    port: int


@dataclass(frozen=True)
class StreamData(Message):
    """Bytes of such a connection, either way."""

    lease: str
    stream_id: str
    data: bytes


@dataclass(frozen=True)
class StreamTaken(Message):
    """Of such a connection *taken* was passed on, in all, as ``flow`` counts (capability
    ``flow``).
    """

    lease: str
    stream_id: str
    taken: int


@dataclass(frozen=True)
class StreamClosed(Message):
    """It is closed; *error* says why, empty for an ordinary end."""

    lease: str
    stream_id: str
    error: str


@dataclass(frozen=True)
class Subscribe(Message):
    """The payer speaks for this channel: *signature* by its session key over the hello's nonce."""

    session_vk: bytes
    signature: bytes


@dataclass(frozen=True)
class Subscribed(Message):
    """All later receipts of the channel come here, beginning with the unanswered ones."""

    session_vk: bytes
