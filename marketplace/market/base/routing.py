"""What a market asks of a router, if it runs one: a consumer's channel to it pays leases anywhere.

The router keeps its own books and keys and decides about its own money. The market matches, checks
and stores what is said, asks for a route, and tells the router what it stored. All that changes
something here is durable when it returns and may be said again: after a crash the market says what
its store has. Session keys are 32 bytes, money lovelace, times ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from marketplace.domain.money.route.evidence import HopEvidence, RouteEvidence
from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.domain.money.route.route import SignedRoute
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Offer

TellProvider = Callable[[str, wire.Message], bool]
"""To the adapter of that key (hex); False: it is not connected here."""
TellPayer = Callable[[bytes, wire.Message], bool]
"""To whoever speaks for that hop in; False: nobody does here."""


@dataclass(frozen=True)
class RouteAsked:
    """*lease* (its own key: *lease_vk*) of *account* at the provider of *offer* is to be paid over
    the account's hop *hop_in*, up to *reserve* lovelace. The hop out has the *offer*'s constants.

    *expires_ms*: when the quote ends, wall time: ``expires_at_ms`` of the route. *kept_ms*: until
    then both hops keep the reserve for it, unless it is admitted or dropped before.
    """

    lease: str
    lease_vk: bytes
    account: str
    offer: Offer
    hop_in: bytes
    reserve: int
    tick_ms: int
    expires_ms: int
    kept_ms: int

    @property
    def provider(self) -> str:
        """Hex of :attr:`adapter_vk`."""
        return self.offer.provider

    @property
    def adapter_vk(self) -> bytes:
        """What signs the provider's receipts and its Paid."""
        return bytes.fromhex(self.offer.provider)


@dataclass(frozen=True)
class RouteMade:
    """A route, and what opens its commitments to the two hops."""

    signed: SignedRoute
    hop_in: bytes
    salt_in: bytes
    hop_out: bytes
    salt_out: bytes


@dataclass(frozen=True)
class HopView:
    """A consumer's hop as the router sees it. *state*: ``ANNOUNCED`` (no block shows it),
    ``SEEN`` (in a block, too young to rely on), ``FINAL``, ``CLOSING``, ``ENDED``, or ``FORKED``.

    *capacity*: what it can still pay in all, *claimed* included; *spoken_for*: what leases reserve
    beyond what is signed; *total*: signed; *depth*: blocks.
    """

    session_vk: bytes
    state: str
    capacity: int
    spoken_for: int
    total: int
    claimed: int
    depth: int


@dataclass(frozen=True)
class Sums:
    """A lease in the router's books, lovelace: *owed* by its receipts; *received* over its hop in,
    the fee apart; *confirmed* by the provider's last Paid. *gone*: that hop has ended, so that
    nothing more can come.
    """

    owed: int
    received: int
    confirmed: int
    gone: bool = False


@dataclass(frozen=True)
class HopUse:
    """Leases over a hop in: *waiting* are those with a reserve of which nothing was paid yet,
    *paid* those of which something was, over or not.
    """

    waiting: int
    paid: int


def made_json(made: RouteMade) -> dict[str, str]:
    """For a record: hex by name."""
    return {
        "body": made.signed.body.hex(),
        "signature": made.signed.signature.hex(),
        "hop_in": made.hop_in.hex(),
        "salt_in": made.salt_in.hex(),
        "hop_out": made.hop_out.hex(),
        "salt_out": made.salt_out.hex(),
    }


def made_of(row: Mapping[str, str]) -> RouteMade:
    """The reverse."""
    body, signature, *rest = (
        bytes.fromhex(row[name])
        for name in ("body", "signature", "hop_in", "salt_in", "hop_out", "salt_out")
    )
    return RouteMade(SignedRoute(body, signature), *rest)


class Router(Protocol):
    """The router of this market. Every refusal leaves all as it was."""

    @property
    def offer(self) -> SignedRouterOffer:
        """What it asks of a hop in, today."""
        ...

    def free(self) -> int:
        """Lovelace that it could still reserve on its hops out, in all."""
        ...

    def hops_out(self) -> int:
        """How many it has."""
        ...

    def carries(self, offer: Offer, reserve: int, tick_ms: int) -> bool:
        """Whether it has a hop to the provider of *offer*, and carries a lease that may owe
        *reserve* lovelace and is billed each *tick_ms*. It says nothing of the room on that hop:
        whoever asks with one amount after another would read from it what the provider earns.
        """
        ...

    def heard_by(self, tell_provider: TellProvider, tell_payer: TellPayer) -> None:
        """Said once, before anything else: how it speaks. What could not be told is told by
        :meth:`welcome` or :meth:`resume`.
        """
        ...

    # ---- a consumer's hop ------------------------------------------------------------------------

    async def announce(
        self, account: str, session_vk: bytes, consumer_vkh: bytes, tx: str, index: int
    ) -> HopView:
        """*account* says that output *index* of *tx* (hex id) opens a hop in. ``LeaseUnknown`` for
        another's, or one that is known by another output; refused if a block shows another channel
        there than the offer's ``consts``.
        """
        ...

    def hop(self, account: str, session_vk: bytes) -> HopView:
        """``LeaseUnknown`` unless *account* announced it."""
        ...

    async def end(self, end: End) -> bool:
        """The consumer's signed End of its hop: finished once no lease is over it. False for a key
        that is no hop here; ``VoucherRefused``.
        """
        ...

    def use(self, hop_in: bytes) -> HopUse:
        """Nothing of a hop that it does not know."""
        ...

    # ---- a lease, from its quote to its end ------------------------------------------------------

    async def make(self, asked: RouteAsked) -> RouteMade:
        """A route with what it pays kept free on both hops. ``HeadroomShort``, ``LeaseUnknown``, or
        another refusal: the market then places the lease directly.
        """
        ...

    async def admit(self, lease: str, terms: bytes) -> None:
        """Both signed *terms* (of version 2): it is in the books, and its leaf of 0 is on its way
        to the provider. ``LeaseUnknown`` if it was never made, lapsed or was dropped. Said before
        the market's own store has the consumer's signature: :meth:`drop` takes it back.
        """
        ...

    async def drop(self, lease: str) -> None:
        """It never began: what is kept for it is free, also if it was admitted."""
        ...

    async def owes(self, lease: str, owed: int, final: bool) -> None:
        """A receipt that the market has checked and stored; a smaller one changes nothing. After a
        *final* one no more than *owed* is kept for it. ``LeaseUnknown``.
        """
        ...

    async def over(self, lease: str) -> None:
        """Nothing more will be owed: no more than what is, is kept for it."""
        ...

    def carried(self) -> Mapping[str, bool]:
        """Leases for which something is kept, and whether each was admitted."""
        ...

    def sums(self, lease: str) -> Sums | None:
        """What is known of its money; None for one that was never admitted."""
        ...

    # ---- payments --------------------------------------------------------------------------------

    async def hop_paid(self, message: wire.HopPaid) -> Sequence[str]:
        """From a payer that speaks for the hop: the leases of which more is paid now. One that is
        not taken is answered with HopRefused to the payer; ``Malformed`` if it cannot be read,
        ``LeaseUnknown`` if there is no such hop. Leaves are counted and known
        (``Payment.check_leaves``) before anything is hashed or a signature is checked.
        """
        ...

    async def hop_refused(self, provider: str, message: wire.HopRefused) -> None:
        """From an adapter, of a hop to it; ``LeaseUnknown`` for another's."""
        ...

    async def paid(self, provider: str, message: wire.PaidSent) -> None:
        """From the adapter of the lease, which the market has compared; told to the consumer's
        payer. ``LeaseUnknown``, ``PaidRefused``.
        """
        ...

    def welcome(self, provider: str) -> Sequence[wire.Message]:
        """To an adapter that just connected: a HopOpened for each hop to it, then each hop's last
        payment with all its leaves, and its End or Keep.
        """
        ...

    def resume(self, session_vk: bytes) -> Sequence[wire.Message]:
        """To a payer that just subscribed to this hop in: the greatest Paid of each of its leases
        that is not over and paid; nothing for a key that is no hop.
        """
        ...

    def evidence(
        self, lease: str, side: Literal["consumer", "provider"]
    ) -> tuple[RouteEvidence, HopEvidence | None] | None:
        """For a bill (``docs/invoice.md``): the route as that side may see it, and its hop with its
        last statement; no hop where nothing was signed over it. None for a lease never admitted.
        """
        ...
