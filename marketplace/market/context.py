"""What all use cases share: the ports that they need, and what one process remembers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from marketplace.domain.app_origin import AppDomain
from marketplace.domain.errors import NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_store import StorePlace
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.market.base.bus import Bus
from marketplace.market.base.errors import Offline
from marketplace.market.base.ports import (
    Clock,
    Ids,
    Ledger,
    OwnRegistry,
    OwnStores,
    Payers,
    Providers,
    Store,
)
from marketplace.market.base.records import Audit, Event, Gang, Job, Lease, ReceiptRecord
from marketplace.market.base.routing import Router
from marketplace.market.base.settings import Settings
from marketplace.market.state.counted_channels import Paying
from marketplace.market.state.directory import Directory
from marketplace.market.state.exchange import Exchange
from marketplace.market.state.loads import Loads
from marketplace.market.state.looks import Looks
from marketplace.market.state.open_quotes import OpenQuotes
from marketplace.market.state.postings import Postings
from marketplace.market.state.reputes import Reputes
from marketplace.market.state.starts import Starts
from marketplace.market.state.tick_book import Book, Ticks, UsedKeys
from marketplace.market.state.told import Told

log = structlog.get_logger("market")
MATCHER: Final = "matcher"
FEE: Final = "fee_bps"  # the setting: the least settlement fee that an offer must grant
TRIES: Final = 8


class NoProviders:
    """No adapter is connected here: the command line's view, and before the start."""

    def connected(self, provider: str) -> bool:
        """Never."""
        return False

    def able(self, provider: str, capability: str) -> bool:
        """Nothing."""
        return False

    def tell(self, provider: str, message: wire.Message) -> bool:
        """To nobody."""
        return False

    async def ask(self, provider: str, name: str, message: wire.Message, seconds: float) -> Any:
        """Nobody answers."""
        raise Offline("no provider is connected here")


class NoPayers:
    """No payer is connected here."""

    def tell(self, session_vk: bytes, message: wire.Message) -> bool:
        """To nobody."""
        return False


@dataclass
class Market:
    """Everything a use case may touch. *names*: the origins at which clients dial this market, its
    public one first (``site.origin_of``); what they sign names one of them. *apps*: under which
    each port of a workload has an origin of its own; none: they are under the market's address.
    """

    store: Store
    clock: Clock
    ids: Ids
    process: str
    settings: Settings = field(default_factory=Settings)
    ledger: Ledger | None = None
    router: Router | None = None  # pays leases over hops of its own; none: all go direct
    bus: Bus = field(default_factory=Bus)
    directory: Directory = field(default_factory=Directory)
    providers: Providers = field(default_factory=NoProviders)
    payers: Payers = field(default_factory=NoPayers)
    names: tuple[str, ...] = ()
    apps: AppDomain | None = None
    hook_key: bytes = field(default=b"", repr=False)  # 32 bytes, or none: no webhooks
    has_chain: bool = False  # one is configured, be it away; else there is only the adapters' word
    paying: Paying = field(default_factory=Paying)
    open_quotes: OpenQuotes = field(default_factory=OpenQuotes)
    loads: Loads = field(default_factory=Loads)
    looks: Looks = field(default_factory=Looks)
    told: Told = field(default_factory=Told)
    postings: Postings = field(default_factory=Postings)
    starts: Starts = field(init=False)
    relays: set[str] = field(default_factory=set[str])  # leases of relays, to be looked at here
    mesh_relay: RelayPlace | None = None  # none: members reach each other by themselves
    stores: StorePlace | None = None  # none: this market keeps none of its own
    own_stores: OwnStores | None = None  # who serves them; none where *stores* is none
    own_registry: OwnRegistry | None = None  # none: it keeps no images
    asked_manifests: dict[str, int] = field(default_factory=dict[str, int])  # digest: when
    popular: tuple[int, Any] = (0, None)  # when it was worked out, and what (``upkeep.popular``)
    exchange: Exchange | None = None  # what an ADA is worth elsewhere: shown, never charged by
    epoch: int = 0  # of the matcher's lock while this process holds it, else 0
    book: Book = field(init=False)
    used: UsedKeys = field(init=False)
    ticks: Ticks = field(init=False)
    reputes: Reputes = field(init=False)

    def __post_init__(self) -> None:
        self.book, self.used = Book(self.store), UsedKeys(self.store)
        self.ticks, self.reputes = Ticks(self.store), Reputes(self.store)
        self.starts = self.directory.starts = Starts(self.settings.starts_new)

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

    def runs(self, job: Job) -> None:
        """At an adapter that is connected here: a relay is looked at from here, too."""
        if job.lease and job.parsed.relay is not None:
            self.relays.add(job.lease)

    async def lease(self, lease_id: str) -> tuple[Lease, Job]:
        """Both, or NotFound."""
        lease = await self.store.get(Lease, lease_id)
        job = await self.store.get(Job, lease.job) if lease is not None else None
        if lease is None or job is None:
            raise NotFound(f"no lease {lease_id}")
        return lease, job

    async def gang(self, gang_id: str) -> tuple[Gang, list[Job]]:
        """It and its members, in their order; or NotFound."""
        gang = await self.store.get(Gang, gang_id)
        if gang is None:
            raise NotFound(f"no gang {gang_id}")
        return gang, await self.store.find(Job, gang=gang_id, order=("id",), limit=1000)

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
