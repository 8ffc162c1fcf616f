"""What the market remembers: plain values with a version each. Tables are the store's affair.

Every record has ``KEY`` (the fields that name it) and ``FIXED`` (the fields that never change
after the insert). A record with a ``version`` is written by compare-and-set; one without is only
ever inserted, or replaced by a greater one. Money is lovelace, time ms, as everywhere.
Over 400 lines: all that is remembered, in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from marketplace.domain import canonical
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.transaction import TxState
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.offer import Offer, OfferState
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.preemption import PreemptionState
from marketplace.market.base.routing import RouteMade, made_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """Base of all; see the module."""

    KEY: ClassVar[tuple[str, ...]] = ("id",)
    FIXED: ClassVar[frozenset[str]] = frozenset()

    def but(self, **changes: object) -> Self:
        """``dataclasses.replace`` at a sixth of its cost, for what every job goes through."""
        if not changes.keys() <= self.__dict__.keys():
            raise TypeError(f"{type(self).__name__} has no {changes.keys() - self.__dict__.keys()}")
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other


@dataclass(frozen=True)
class Account(Record):
    """A consumer: hex of its payment key hash (CIP-8 sign-in binds to nothing else)."""

    id: str
    created_ms: int
    suspended: str = ""  # why, empty when it is not
    version: int = 0


@dataclass(frozen=True)
class Login(Record):
    """A challenge that waits for its signature, or (once *account* is set) a signed-in session; or
    a port's token: then *address* names the port, and *account* is the sha256 of what it was made
    from.
    """

    id: str  # the nonce's or the token's sha256, hex
    address: str
    account: str
    expires_ms: int


@dataclass(frozen=True)
class ApiKey(Record):
    """A scoped key: only the sha256 of its secret is kept; *committed* is what its jobs may
    cost, *month_committed* those of *month* (``202611``), which *month_cap* bounds unless it is 0.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"account", "hash", "name", "verbs", "budget", "month_cap"}
    )
    id: str
    account: str
    hash: str
    name: str
    verbs: list[str]
    budget: int
    created_ms: int
    expires_ms: int
    committed: int = 0
    revoked_ms: int = 0
    month_cap: int = 0
    month: int = 0
    month_committed: int = 0
    version: int = 0


@dataclass(frozen=True)
class OfferRecord(Record):
    """An offer as its provider last posted it, where its adapter is connected, and since when
    not.
    """

    id: str
    provider: str
    state: OfferState
    body: bytes  # canonical CBOR of Offer.to_wire()
    created_ms: int
    seen_ms: int
    process: str = ""  # the market process that holds the connection
    away_ms: int = 0  # since when it is not connected; 0 while it is
    suspended: str = ""
    version: int = 0

    @property
    def offer(self) -> Offer:
        """The offer itself."""
        return Offer.from_wire(canonical.decode(self.body))


@dataclass(frozen=True)
class Job(Record):
    """A consumer's job; *needs* names what the consumer must bring before it can go on."""

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {
            "account", "api_key", "name", "kind", "spec", "created_ms", "consumer_vkh", "gang",
            "hop",
        }
    )  # fmt: skip
    id: str
    account: str
    api_key: str
    name: str
    kind: str
    spec: Json
    consumer_vkh: bytes
    channels: list[str]
    state: JobState
    created_ms: int
    updated_ms: int
    session_vk: bytes  # the fresh key for the next channel; empty once it was used
    spares: list[str] = field(default_factory=list[str])
    priority: int = 0
    lease: str = ""
    provider: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    needs: str = ""
    retries: int = 0
    spent_before: int = 0  # owed by earlier leases of this job
    avoid: list[str] = field(default_factory=list[str])  # providers that declined or were lost
    explain: Json = field(default_factory=dict[str, Any])
    gang: str = ""  # the id that it shares with the other members of its gang
    busy: dict[str, int] = field(
        default_factory=dict[str, int]
    )  # by provider: how often it was still clearing up when it was asked
    not_before_ms: int = 0  # no provider is asked until then
    hop: bytes = b""  # to this market's router: its leases may be paid over it; empty: none
    direct: list[str] = field(default_factory=list[str])  # providers that declined a route
    version: int = 0

    @property
    def parsed(self) -> JobSpec:
        """The job as its consumer wrote it."""
        return JobSpec.from_wire(self.spec)


@dataclass(frozen=True)
class Gang(Record):
    """Jobs that are placed, and end, all together: those whose ``gang`` it is, in the order of
    their ids.

    *reason*: why its members are to end, once they are.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset({"account"})
    id: str
    account: str
    state: GangState
    reason: str = ""
    version: int = 0


@dataclass(frozen=True)
class Lease(Record):
    """One job on one offer. Usage and owed live in the receipts; the totals here are set at its
    end.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {
            "job", "offer", "provider", "account", "session_vk", "terms", "rate_micro", "ceiling",
            "units_milli", "resource", "gpus", "share", "cpu_milli", "memory_mib", "disk_mib",
            "device", "simulated", "reused", "created_ms", "expires_ms", "block", "hop", "route",
        }
    )  # fmt: skip
    id: str
    job: str
    offer: str
    provider: str
    account: str
    session_vk: bytes
    state: LeaseState
    terms: bytes
    rate_micro: int
    ceiling: int
    units_milli: int
    resource: str
    gpus: list[str]
    share: int
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    block: int
    device: str  # what a person reads
    simulated: bool
    reused: bool
    created_ms: int
    expires_ms: int
    adapter_signature: bytes = b""
    session_signature: bytes = b""
    channel_tx: str = ""
    secrets: dict[str, str] = field(default_factory=dict[str, str])  # sealed, hex; dropped at start
    open_tx: bytes = b""  # as its payer handed it over; dropped once its adapter is told
    reason: str = ""
    message: str = ""
    stage: str = ""
    exit_code: int | None = None
    started_ms: int = 0
    finished_ms: int = 0
    ended_ms: int = 0
    stop_asked: str = ""
    settled_tx: str = ""
    owed: int = 0
    hop: bytes = b""  # the consumer's hop to the router that pays for it; empty: a direct lease
    route: dict[str, str] = field(default_factory=dict[str, str])  # of a routed one: RouteMade
    version: int = 0

    @property
    def agreed(self) -> Terms:
        """The decoded terms, of a routed lease those that its route is added to."""
        return self.signed.terms

    @property
    def signed(self) -> SignedTerms:
        """The terms with the signatures that there are."""
        plain = SignedTerms(self.terms, self.adapter_signature, self.session_signature or None)
        return either(plain)

    @property
    def made(self) -> RouteMade:
        """The route of a routed lease."""
        return made_of(self.route)

    @property
    def grant(self) -> Grant:
        """What it holds on its host."""
        return Grant(
            tuple(self.gpus), self.share, self.cpu_milli, self.memory_mib, self.disk_mib
        )  # fmt: skip


@dataclass(frozen=True)
class Preemption(Record):
    """Room for a waiting job of higher priority: on which devices, and whose leases make way. One a
    job.
    """

    KEY: ClassVar[tuple[str, ...]] = ("job",)
    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"account", "offer", "gpus", "block", "victims", "created_ms", "deadline_ms", "expires_ms"}
    )
    job: str
    account: str
    state: PreemptionState
    offer: str
    gpus: list[str]
    block: int
    victims: list[str]  # leases
    created_ms: int
    deadline_ms: int  # the victims run until then at most
    expires_ms: int  # the room is kept until then
    version: int = 0


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
class LeaseKey(Record):
    """The key of a lease that is paid over *hop*, from when its consumer signed: it names this
    lease's receipts and nothing else, ever. *paid* as a channel's.
    """

    KEY: ClassVar[tuple[str, ...]] = ("session_vk",)
    FIXED: ClassVar[frozenset[str]] = frozenset({"lease", "account", "provider", "hop"})
    session_vk: bytes
    lease: str
    account: str
    provider: str
    hop: bytes
    paid: bool = False
    version: int = 0


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
class Event(Record):
    """Something that happened to a job, in words that both sides may read."""

    id: str
    job: str
    lease: str
    account: str
    at_ms: int
    kind: str
    detail: Json


@dataclass(frozen=True)
class LogRecord(Record):
    """Output bytes of a lease's workload from *offset*; the oldest are dropped beyond the limit."""

    KEY: ClassVar[tuple[str, ...]] = ("lease", "offset")
    lease: str
    job: str
    offset: int
    stream: str
    data: bytes
    at_ms: int = 0  # when it came in; 0: nobody noted it


@dataclass(frozen=True)
class Sent(Record):
    """A message in the outbox: leaves it once the other side has acknowledged it."""

    id: str
    target: str  # adapter:<hex key>
    payload: bytes  # a wire frame's message
    at_ms: int


@dataclass(frozen=True)
class Remembered(Record):
    """The answer to an idempotency key: the same question gets the same answer."""

    KEY: ClassVar[tuple[str, ...]] = ("account", "key")
    account: str
    key: str
    question: str  # hash of method, path and body
    status: int
    answer: Json
    at_ms: int


@dataclass(frozen=True)
class Output(Record):
    """A file that a workload gave back; its bytes are a blob."""

    KEY: ClassVar[tuple[str, ...]] = ("job", "path")
    job: str
    lease: str
    path: str
    sha256: str
    size: int
    at_ms: int


@dataclass(frozen=True)
class Blob(Record):
    """Content-addressed bytes that *account* put or got; the bytes lie in the blob folder."""

    KEY: ClassVar[tuple[str, ...]] = ("account", "sha256")
    account: str
    sha256: str
    size: int
    at_ms: int


@dataclass(frozen=True)
class Hook(Record):
    """A webhook: where and what for. Its secret is derived (``service.hooks.secret_of``), never
    kept.
    """

    id: str
    account: str
    url: str
    kinds: list[str]
    created_ms: int
    rotation: int = 1  # which of its secrets signs; 0: one that its owner was never shown
    failures: int = 0
    version: int = 0


@dataclass(frozen=True)
class Delivery(Record):
    """One delivery of a webhook: owed while *done_ms* is 0, then kept a while for its owner to
    see.
    """

    id: str
    hook: str
    body: Json
    next_ms: int
    attempts: int = 0
    done_ms: int = 0  # when it was delivered or given up
    status: int = 0  # what was answered last; 0: nothing was
    error: str = ""  # why nothing was
    version: int = 0


@dataclass(frozen=True)
class Audit(Record):
    """Who did what to whom; never changed, never dropped."""

    id: str
    at_ms: int
    actor: str
    action: str
    subject: str
    detail: Json


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


@dataclass(frozen=True)
class Standing(Record):
    """What is remembered of an account (*name*: its id) or of a network address (``address.`` and a
    hash): whether it ever paid, quotes that it let lapse or never funded, and leases that ended
    unpaid. Of a provider (its id): whether it was ever paid, and starts that lapsed; of an account
    that such a start let down (``letdown.`` and its id): when.
    """

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    paid: int = 0  # channels that money was seen to move over
    lapses: int = 0
    strikes: int = 0  # leases that ended for want of payment
    last_ms: int = 0  # when the last lapse or unpaid end was
    owing: list[str] = field(default_factory=list[str])  # leases that are over and unpaid
    turn: str = ""  # the one lease that an account which never paid has under way
    address: str = ""  # of an account: the name of the address that it last asked from
    version: int = 0


@dataclass(frozen=True)
class InUseHour(Record):
    """Sums over the *looks* of one hour at what is listed and held (``upkeep.series``)."""

    KEY: ClassVar[tuple[str, ...]] = ("at_ms",)
    at_ms: int  # the hour's beginning
    looks: int = 0
    offers: int = 0
    gpu_milli: int = 0
    gpu_milli_held: int = 0
    core_milli: int = 0
    core_milli_held: int = 0
    running: int = 0  # jobs
    waiting: int = 0
    version: int = 0


@dataclass(frozen=True)
class PresenceDay(Record):
    """Of the *looks* of one day at a provider, how often it was *there*."""

    KEY: ClassVar[tuple[str, ...]] = ("provider", "day")
    provider: str
    day: int  # since 1970, UTC
    looks: int = 0
    there: int = 0
    version: int = 0


@dataclass(frozen=True)
class Setting(Record):
    """One of the operator's settings, or a secret of this market."""

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    value: str
    version: int = 0


@dataclass(frozen=True)
class Lock(Record):
    """A lease lock: whoever raised *epoch* last holds it while *beat* keeps changing."""

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    holder: str
    epoch: int
    beat: int
    version: int = 0


@dataclass(frozen=True)
class Process(Record):
    """A market process and its heartbeat."""

    id: str
    started_ms: int
    beat_ms: int
    version: int = 0
