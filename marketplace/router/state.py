"""All that a router writes down: its book, and what it knows of hops and routes beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route.hop import Earning, Paying
from marketplace.domain.money.route.leaves import Leaf
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.route import SignedRoute
from marketplace.domain.money.route.router_book import Carried, RouterBook

SKIPPED: Final = 2**20
"""Numbers of statements left out after a restore: what was signed meanwhile, and a provider hides,
makes no fork.
"""


class Seen(StrEnum):
    """What the chain shows of a hop."""

    AWAITED = "AWAITED"  # no block has it
    OPEN = "OPEN"
    CLOSING = "CLOSING"
    ENDED = "ENDED"
    UNFIT = "UNFIT"  # it is not what the router's offer says


@dataclass(frozen=True)
class HopIn:
    """A channel of consumer *account* to this router: output *index* of *tx* (hex), under *offer*.

    *claimed*: what was claimed, as the chain showed it last; *owed_since_ms*: since when something
    of it is due and not claimed; *ending*: the consumer signed its end, *ending_ms*: when; *fork*:
    a second statement of one number, with its signature (hex).
    """

    session_vk: bytes
    account: str
    consumer_vkh: bytes
    tx: str
    index: int
    offer: SignedRouterOffer
    payout_address: str
    seen: Seen = Seen.AWAITED
    claimed: int = 0
    owed_since_ms: int = 0
    ending: bool = False
    ending_ms: int = 0
    fork: str = ""

    @property
    def terms(self) -> RouterOffer:
        """The router's offer that it was opened under."""
        return RouterOffer.decode(self.offer.body)

    @property
    def magic(self) -> int:
        """The network's."""
        return self.terms.magic

    @property
    def asset(self) -> str:
        """ADA."""
        return ""

    def consts(self) -> Consts:
        """What its datum must say."""
        return self.terms.consts(self.session_vk, self.consumer_vkh)


@dataclass(frozen=True)
class HopOut:
    """This router's channel to *provider*, with the constants of the provider's offer; *tx* (hex)
    is empty before its open transaction was built.

    *asked_ms*: since when it is to end (its provider was asked), 0: it is not; *unsure*: nothing is
    signed on it until its provider has spoken, because what was signed may be forgotten.
    """

    session_vk: bytes
    magic: int
    provider: str
    adapter_vkh: bytes
    payout: bytes
    payout_address: str
    close_period_ms: int
    fee_bps: int
    owner: bytes
    tx: str = ""
    index: int = 0
    seen: Seen = Seen.AWAITED
    claimed: int = 0
    used_ms: int = 0
    asked_ms: int = 0
    unsure: bool = False

    @property
    def asset(self) -> str:
        """ADA."""
        return ""

    def consts(self) -> Consts:
        """Of its channel."""
        return Consts(
            self.session_vk, self.adapter_vkh, self.payout, self.owner, self.close_period_ms,
            self.fee_bps,
        )  # fmt: skip


@dataclass(frozen=True)
class Rest:
    """What is known of a provider before it gets a hop out once more. *ended_ms*: when its last one
    was first seen ended, 0: it stands; *had*: lovelace of leases that it had to show for that one;
    *over*: what it claimed of it.
    """

    ended_ms: int = 0
    had: int = 0
    over: int = 0


@dataclass(frozen=True)
class Routed:
    """A route that was signed for a lease, and what opens it; *terms*: hash of the lease's terms,
    empty until both signed them; *over*: it will owe no more.
    """

    carried: Carried
    account: str
    provider: str
    signed: SignedRoute
    salt_in: bytes
    salt_out: bytes
    expires_ms: int
    terms: bytes = b""
    over: bool = False

    def kept(self, now_ms: int) -> bool:
        """Whether the lease lives, or may still be signed."""
        return not self.over if self.terms else self.expires_ms > now_ms


@dataclass(frozen=True)
class State:
    """The *book* that signs; hops by session key, routes by lease; *rests* by provider that had a
    hop out, kept when that is forgotten.
    """

    book: RouterBook
    hops_in: Mapping[bytes, HopIn] = field(default_factory=dict[bytes, HopIn])
    hops_out: Mapping[bytes, HopOut] = field(default_factory=dict[bytes, HopOut])
    routes: Mapping[str, Routed] = field(default_factory=dict[str, Routed])
    rests: Mapping[str, Rest] = field(default_factory=dict[str, Rest])

    def with_hop_in(self, hop: HopIn) -> State:
        """With a new hop in, of which nothing was seen."""
        vk, first = hop.session_vk, Leaf(hop.terms.hash, hop.terms.hop_fee)
        ends = {**self.book.hops_in, vk: Earning(vk, 0)}
        book = replace(self.book, hops_in=ends, first={**self.book.first, vk: first})
        return replace(self, book=book).with_in(hop)

    def with_hop_out(self, hop: HopOut) -> State:
        """With a new hop out, that can pay nothing yet."""
        vk = hop.session_vk
        ends = {**self.book.hops_out, vk: Paying(vk)}
        book = replace(self.book, hops_out=ends, room={**self.book.room, vk: 0})
        return replace(self, book=book).with_out(hop)

    def with_in(self, hop: HopIn) -> State:
        """With *hop* as it is now."""
        return replace(self, hops_in={**self.hops_in, hop.session_vk: hop})

    def with_out(self, hop: HopOut) -> State:
        """The same of a hop out."""
        return replace(self, hops_out={**self.hops_out, hop.session_vk: hop})

    def with_route(self, route: Routed) -> State:
        """The same of a lease's route."""
        return replace(self, routes={**self.routes, route.carried.lease: route})

    def with_rest(self, provider: str, rest: Rest) -> State:
        """With what is known of *provider*'s last hop."""
        return replace(self, rests={**self.rests, provider: rest})

    def to(self, provider: str) -> HopOut | None:
        """The hop that carries new leases to *provider*."""
        for hop in self.hops_out.values():
            if hop.provider == provider and hop.seen is Seen.OPEN and not hop.asked_ms:
                return hop
        return None

    def busy(self, hop: bytes, now_ms: int) -> bool:
        """Whether a lease lives, or may begin, over *hop*."""
        return any(
            hop in (one.carried.hop_in, one.carried.hop_out) and one.kept(now_ms)
            for one in self.routes.values()
        )

    def held(self, now_ms: int) -> RouterBook:
        """The book with what is reserved for leases that may still be signed."""
        made = {
            one.signed.body: one.carried
            for one in self.routes.values()
            if not one.terms and one.expires_ms > now_ms
        }
        return replace(self.book, leases={**self.book.leases, **made})


def recovering(state: State) -> State:
    """*state* of books that lacked what their second copy had: nothing is signed on a hop out
    before its provider has spoken, and then with a number far beyond the last that is known.
    """
    paying = {key: replace(one, skip=SKIPPED) for key, one in state.book.hops_out.items()}
    hops = {key: replace(one, unsure=True) for key, one in state.hops_out.items()}
    return replace(state, book=replace(state.book, hops_out=paying), hops_out=hops)
