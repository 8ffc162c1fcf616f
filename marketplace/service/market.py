"""The shell of all use cases: what they share. Load, decide, apply, and only then act."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog

from marketplace.domain import wire
from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.job import JobState
from marketplace.service.bus import Bus
from marketplace.service.decide import Outcome
from marketplace.service.matcher import Matcher
from marketplace.service.openquotes import OpenQuotes, unfunded
from marketplace.service.openstarts import Starts
from marketplace.service.paying import Paying
from marketplace.service.ports import Change, Clock, Ids, Ledger, Payers, Providers, Store
from marketplace.service.records import ApiKey, Audit, Event, Job, Lease, ReceiptRecord
from marketplace.service.ticks import Book, Ticks, UsedKeys

log = structlog.get_logger("market")
MATCHER: Final = "matcher"
FEE: Final = "fee_bps"  # the setting: the least settlement fee that an offer must grant
TRIES: Final = 8


@dataclass(frozen=True)
class Settings:
    """What an operator may choose; times in ms, sizes in bytes."""

    magic: int = 42
    quote_ttl_ms: int = 300_000
    propose_ttl_ms: int = 10_000
    start_ttl_ms: int = (
        1_800_000  # from signature to start: the channel's block and a large image ...
    )
    start_ttl_new_ms: int = 600_000  # ... and at a provider of which no receipt was ever paid
    starts_new: int = 4  # leases at once at such a provider, while another would do
    start_wait_ms: int = 60_000  # behind all others after a start that lapsed; doubles with each
    start_wait_most_ms: int = 86_400_000
    let_down_ms: int = 3_600_000  # so long an account that one let down is given proven ones first
    resume_window_ms: int = 600_000
    process_lease_ms: int = 10_000
    end_grace_ms: int = 3_000
    unpaid_grace_ms: int = 600_000
    lost_grace_ms: int = 86_400_000
    notice_ms: int = 60_000  # before a lease ends for a job of higher priority
    room_ttl_ms: int = 180_000  # after it, until the room made is given up
    log_limit: int = 4 << 20
    blob_limit: int = 64 << 20
    blob_quota: int = 4 << 30  # of one account's files together ...
    blob_quota_new: int = 512 << 20  # ... and of one that never paid
    queued_jobs: int = 1_000  # of one account, waiting for a place
    quotes_new: int = 4  # open or not funded at once, of an account that never paid ...
    quotes_paying: int = 64  # ... and of one that did
    quotes_address: int = 16  # of all accounts at one network address that never paid
    quote_ttl_new_ms: int = 45_000  # to sign within, for an account that never paid
    starts_in_turn: bool = True  # of an account that never paid: one lease after the other
    turn_wait_ms: int = 55_000  # so long a signed lease waits for its turn ...
    turn_wait_funded_ms: int = 110_000  # ... while a channel of the one before it is seen
    unpaid_wait_ms: int = 10_000  # after a lease that ended unpaid; doubles with each
    unpaid_wait_most_ms: int = 3_600_000
    unpaid_forget_ms: int = 3_600_000  # one lapse or unpaid end less in each such time
    settle_every_ms: int = 30_000
    token_ttl_ms: int = 43_200_000
    challenge_ttl_ms: int = 300_000
    requests_per_minute: int = 1_200
    logins_per_minute: int = 30
    hellos_per_minute: int = 600  # of one address: websockets that are to prove a key
    open_per_address: int = 2_000  # requests and sockets at once
    blob_folder: str = ""
    allow_private_hooks: bool = False


class NoProviders:
    """No adapter is connected here: the command line's view, and before the start."""

    def connected(self, provider: str) -> bool:
        """Never."""
        return False

    def tell(self, provider: str, message: wire.Message) -> bool:
        """To nobody."""
        return False


class NoPayers:
    """No payer is connected here."""

    def tell(self, session_vk: bytes, message: wire.Message) -> bool:
        """To nobody."""
        return False


@dataclass
class Market:
    """Everything a use case may touch. *names*: the origins at which clients dial this market, its
    public one first (``site.origin_of``); what they sign names one of them.
    """

    store: Store
    clock: Clock
    ids: Ids
    process: str
    settings: Settings = Settings()
    ledger: Ledger | None = None
    bus: Bus = field(default_factory=Bus)
    matcher: Matcher = field(default_factory=Matcher)
    providers: Providers = field(default_factory=NoProviders)
    payers: Payers = field(default_factory=NoPayers)
    names: tuple[str, ...] = ()
    hook_key: bytes = field(default=b"", repr=False)  # 32 bytes, or none: no webhooks
    has_chain: bool = False  # one is configured, be it away; else there is only the adapters' word
    paying: Paying = field(default_factory=Paying)
    open_quotes: OpenQuotes = field(default_factory=OpenQuotes)
    starts: Starts = field(init=False)
    epoch: int = 0  # of the matcher's lock while this process holds it, else 0
    book: Book = field(init=False)
    used: UsedKeys = field(init=False)
    ticks: Ticks = field(init=False)

    def __post_init__(self) -> None:
        self.book, self.used = Book(self.store), UsedKeys(self.store)
        self.ticks = Ticks(self.store)
        self.starts = self.matcher.starts = Starts(self.settings.starts_new)

    @property
    def now(self) -> int:
        """Milliseconds since 1970."""
        return self.clock.now_ms()

    @property
    def fence(self) -> tuple[str, int] | None:
        """What a change that leases something must carry."""
        return (MATCHER, self.epoch) if self.epoch else None

    def event(self, job: Job, kind: str, detail: dict[str, Any], lease: str = "") -> Event:
        """A line of the job's story."""
        return Event(
            self.ids.new("ev"), job.id, lease or job.lease, job.account, self.now, kind, detail
        )

    async def lease(self, lease_id: str) -> tuple[Lease, Job]:
        """Both, or NotFound."""
        lease = await self.store.get(Lease, lease_id)
        job = await self.store.get(Job, lease.job) if lease is not None else None
        if lease is None or job is None:
            raise NotFound(f"no lease {lease_id}")
        return lease, job

    async def change(
        self,
        lease_id: str,
        decide: Callable[[Lease, Job], Outcome],
        extra: Callable[[Outcome], Change] | None = None,
    ) -> Outcome:
        """Load, decide and apply until nobody else was faster; then release and rematch."""
        for attempt in range(TRIES):
            lease, job = await self.lease(lease_id)
            out = decide(lease, job)
            change = extra(out) if extra is not None else Change()
            if out.lease == lease and out.job == job and not out.sends and extra is None:
                return out
            await self._fill(change, out, lease, job)
            try:
                await self.store.apply(change)
            except Conflict:
                if attempt == TRIES - 1:
                    raise
                continue
            self.after(out)
            return out
        raise Conflict(f"{lease_id} keeps changing")

    async def _fill(self, change: Change, out: Outcome, lease: Lease, job: Job) -> None:
        if out.lease != lease:
            change.sets.append(out.lease)
        if out.job != job:
            change.sets.append(out.job)
            if out.job.state is JobState.ENDED and job.state is not JobState.ENDED:
                await self.free_budget(change, out.job, out.lease)
        change.sends += [(f"adapter:{lease.provider}", message) for message in out.sends]
        if out.kind:
            change.puts.append(self.event(out.job, out.kind, out.detail, lease.id))
        change.topics += [f"job:{job.id}", f"lease:{lease.id}"]
        if out.released or out.rematch:
            change.topics.append(MATCHER)

    def after(self, out: Outcome) -> None:
        """The acts that follow a commit."""
        if out.released:
            self.matcher.release(out.lease.id, self.now)
        if not unfunded(out.lease):
            self.open_quotes.drop(out.lease.id)
        log.info(
            "lease", lease=out.lease.id, state=out.lease.state.name, job=out.job.id,
            job_state=out.job.state.name, what=out.kind,
        )  # fmt: skip

    async def free_budget(self, change: Change, job: Job, lease: Lease | None) -> None:
        """Into *change*: what the job did not spend goes back to its API key, audited."""
        key = await self.store.get(ApiKey, job.api_key) if job.api_key else None
        if key is None:
            return
        spent = job.spent_before + (lease.owed if lease is not None else 0)
        unspent = max(job.parsed.price.budget - spent, 0)
        change.sets.append(replace(key, committed=max(key.committed - unspent, 0)))
        change.puts.append(self.note("market", "budget.free", key.id, job=job.id, amount=unspent))

    def note(self, actor: str, action: str, subject: str, **detail: object) -> Audit:
        """A line for the audit log: who did what to whom. Never a secret in it."""
        return Audit(self.ids.new("audit"), self.now, actor, action, subject, detail)

    async def owed_by(self, lease_id: str) -> int:
        """What the lease owes by its latest receipt."""
        last = await self.last_receipt(lease_id)
        return last.lease_owed if last is not None else 0

    async def last_receipt(self, lease_id: str) -> ReceiptRecord | None:
        """The lease's latest receipt."""
        found = await self.store.find(ReceiptRecord, lease=lease_id, order=("-tick",), limit=1)
        return found[0] if found else None


def digest(secret: str) -> str:
    """sha256 in hex: how secrets are kept."""
    return hashlib.sha256(secret.encode()).hexdigest()
