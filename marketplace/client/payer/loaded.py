"""A channel as its journal has it: what is known of it, and its book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marketplace.client.payer.decide import Book
from marketplace.domain.money.channel_stage import USABLE, ChannelStage
from marketplace.domain.money.keep import KEEP_MS
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.payer import PayerBook
from marketplace.domain.money.terms import SignedTerms

_ROUTED = ("router", "hop", "route_bps")


@dataclass(frozen=True)
class ChannelFacts:
    """What a payer must know about a channel beside its book. *amount* is what was put in.

    *open_tx* is hex, empty before the open transaction was sent; *state*: as far as this consumer
    saw, never CLOSING; *keep_ms*: how long it stays open for other jobs once it is idle, 0 ends it
    at once; *payout* is the provider's address (Bech32), where it said one.

    Of a hop *router* is the router's offer, signed, and whom the refund goes to, as hex of body,
    signature and key hash; its *provider* is the router. Of a lease that is paid over a hop *hop*
    is that one's session key (hex), and *route_bps* the router's fee: there is no channel under the
    lease's own key.
    """

    session_vk: bytes
    market: str
    magic: int
    provider: str
    asset: str
    amount: int
    open_tx: str = ""
    index: int = 0
    state: ChannelStage = ChannelStage.OPENING
    settled_tx: str = ""
    keep_ms: int = 0
    payout: str = ""
    router: tuple[str, ...] = ()
    hop: str = ""
    route_bps: int = 0

    def cost(self, approved: int) -> int:
        """What *approved* lovelace of a lease cost with the router's fee, if one pays for it."""
        return with_fee(approved, self.route_bps)

    @property
    def usable(self) -> bool:
        """Whether a further lease may be paid over it: it was opened, and is not ending."""
        return self.state in USABLE and bool(self.open_tx)

    def to_json(self) -> dict[str, Any]:
        """For the journal and for ``--json``."""
        fields = {**vars(self), "session_vk": self.session_vk.hex()}
        return {k: v for k, v in fields.items() if v or k not in _ROUTED}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> ChannelFacts:
        """The reverse."""
        fields: dict[str, Any] = {**row, "session_vk": bytes.fromhex(str(row["session_vk"]))}
        if fields.pop("keep", False):  # as it was once said: kept, and for no stated time
            fields["keep_ms"] = KEEP_MS
        fields["router"] = tuple(fields.get("router", ()))
        if "state" in fields:
            fields["state"] = ChannelStage(fields["state"])
        return ChannelFacts(**fields)


@dataclass
class Loaded:
    """A book as the journal has it, in this process's monotonic time."""

    facts: ChannelFacts | None = None
    book: Book = field(default_factory=lambda: Book(b""))
    terms: dict[str, SignedTerms] = field(default_factory=dict[str, SignedTerms])
    latest: dict[str, SignedReceipt] = field(default_factory=dict[str, SignedReceipt])
    final: set[str] = field(default_factory=set[str])
    end_sent: bool = False
    end_ms: int | None = None
    hop: PayerBook | None = None
    """What a hop pays for."""
    heard_wall_ms: int = 0
    """When it last heard or signed something, Unix ms; 0: never."""

    def cost(self, approved: int) -> int:
        """As :meth:`ChannelFacts.cost`."""
        return self.facts.cost(approved) if self.facts is not None else approved

    @property
    def has_member(self) -> bool:
        """Whether a cluster's member that is paid over it lives."""
        leases = self.book.leases.items()
        return any(one.orders is not None and name not in self.final for name, one in leases)
