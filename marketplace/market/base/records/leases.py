"""One job on one offer, under its terms; the key of one that is paid over a route; and what is
signed of one that runs a cluster's member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.supply.grant import Grant
from marketplace.domain.work.cluster_order import SignedOrder
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.records.record import Record
from marketplace.market.base.routing import RouteMade, made_of


@dataclass(frozen=True)
class Lease(Record):
    """One job on one offer. Usage and owed live in the receipts; the totals here are set at its
    end.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {
            "job", "offer", "provider", "account", "session_vk", "rate_micro", "units_milli",
             "resource", "gpus", "share", "cpu_milli", "memory_mib", "disk_mib",
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
    renewal: bytes = b""  # terms by which it would go on, while not both signed them
    renewal_signature: bytes = b""  # the adapter's over them
    renewal_refused: str = ""  # why the last one was declined
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


Word = Literal["order", "place", "sight", "store"]
"""What is kept of a cluster's member. Signed: its consumer's order, by the lease's session key;
where its mesh is reached, and whom it hears there, by its adapter. Unsigned: the market's store,
which it was given leave for.
"""
SIGNED: Final[tuple[Word, ...]] = ("order", "place", "sight")


@dataclass(frozen=True)
class ClusterWord(Record):
    """The newest of what is signed of the member that *lease* runs, verified, as it came: the one
    with the greatest *number*.
    """

    KEY: ClassVar[tuple[str, ...]] = ("lease", "word")
    lease: str
    word: Word
    number: int  # an order's version, a sight's number; of a place when it came, ms
    body: bytes
    signature: bytes
    at_ms: int

    @property
    def order(self) -> SignedOrder:
        """The order, if it is one."""
        return SignedOrder(self.body, self.signature)


@dataclass(frozen=True)
class KeptStore(Record):
    """A store of the market's own that a cluster of *account* named, and when one did last. How
    much is in it, and whether it is still there, its server says.
    """

    KEY: ClassVar[tuple[str, ...]] = ("account", "name")
    account: str
    name: str
    used_ms: int
