"""A router beside the ports, with the pure books and real keys, and no disk and no chain: its hops
are as final as it is told. *lies* name what it does wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from marketplace.domain.errors import Conflict, Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import router as books
from marketplace.domain.money.route.evidence import HopEvidence, Opening, RouteEvidence
from marketplace.domain.money.route.fee import reach, with_fee
from marketplace.domain.money.route.hop import Earning, Paying, Payment
from marketplace.domain.money.route.messages import (
    HeadroomShort,
    LeaseUnknown,
    Outcome,
    Owes,
)
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import Route, SignedRoute, commit
from marketplace.domain.money.route.statement import StatementRefused
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of, payment_of
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer
from marketplace.market.base.routing import (
    HopUse,
    HopView,
    RouteAsked,
    RouteMade,
    Sums,
    TellPayer,
    TellProvider,
)

TX = "ab" * 32


@dataclass
class HopIn:
    account: str
    capacity: int
    tx: str = TX
    index: int = 0
    state: str = "FINAL"


@dataclass
class FakeRouter:
    """*room*: what each hop out can pay; *hop_capacity*: what an announced hop in holds."""

    key: Signer = field(default_factory=lambda: Signer(os.urandom(32)))
    bps: int = 50
    hop_fee: int = 25_000
    lease_cap: int = 100_000_000
    room: int = 50_000_000
    hop_capacity: int = 20_000_000
    lies: set[str] = field(default_factory=set)
    asked: list[RouteAsked] = field(default_factory=list)
    made: dict[str, tuple[RouteAsked, RouteMade]] = field(default_factory=dict)
    admitted: dict[str, bytes] = field(default_factory=dict)  # lease -> hash of its terms
    done: set[str] = field(default_factory=set)
    hops_in: dict[bytes, HopIn] = field(default_factory=dict)
    out: dict[str, Signer] = field(default_factory=dict)  # provider -> session key
    said: list[tuple[str, str]] = field(default_factory=list)  # what the market called, and of whom
    refused: list[wire.HopRefused] = field(default_factory=list)
    mute: bool = False  # passes no Paid on

    def __post_init__(self) -> None:
        self.signed = self._offer()
        self.began = self.signed  # the offer that its hops began with
        self.first = self.signed.verify().hash
        self.tell_provider: TellProvider = lambda *_: False
        self.tell_payer: TellPayer = lambda *_: False
        self.book = books.RouterBook(self.first, {}, {}, {})

    def _offer(self) -> SignedRouterOffer:
        offer = RouterOffer(DEVNET_MAGIC, self.key.verify_key, b"\x0a" * 28, b"\x0b" * 28,
                            86_400_000, self.bps, self.hop_fee, 250, 100_000_000,
                            self.lease_cap)  # fmt: skip
        return SignedRouterOffer(offer.encode(), self.key.sign(offer.encode()))

    def raise_fee(self, bps: int) -> None:
        self.bps = bps
        self.signed = self._offer()

    @property
    def offer(self) -> SignedRouterOffer:
        return self.signed

    def free(self) -> int:
        return sum(self.book.room.values())

    def hops_out(self) -> int:
        return len(self.out)

    def carries(self, offer: Offer, reserve: int, tick_ms: int) -> bool:
        return offer.provider in self.out and reserve <= self.lease_cap and tick_ms >= 1000

    def heard_by(self, tell_provider: TellProvider, tell_payer: TellPayer) -> None:
        self.tell_provider, self.tell_payer = tell_provider, tell_payer

    # ---- hops --------------------------------------------------------------------------------

    async def announce(
        self, account: str, session_vk: bytes, consumer_vkh: bytes, tx: str, index: int
    ) -> HopView:
        known = self.hops_in.setdefault(session_vk, HopIn(account, self.hop_capacity, tx, index))
        if known.account != account or (known.tx, known.index) != (tx, index):
            raise LeaseUnknown("another's hop")
        if session_vk not in self.book.hops_in:
            earning = Earning(session_vk, known.capacity)
            ins = {**self.book.hops_in, session_vk: earning}
            self.book = replace(self.book, hops_in=ins)
        return self.hop(account, session_vk)

    def hop(self, account: str, session_vk: bytes) -> HopView:
        known = self.hops_in.get(session_vk)
        if known is None or known.account != account:
            raise LeaseUnknown("no such hop")
        total = self.book.hops_in[session_vk].total
        state = "FORKED" if session_vk in self.book.forked else known.state
        return HopView(session_vk, state, known.capacity, self._kept(session_vk), total, 0, 12)

    def _kept(self, hop: bytes) -> int:
        return sum(with_fee(asked.reserve, self.bps) for x, (asked, _) in self.made.items()
                   if asked.hop_in == hop and x not in self.done)  # fmt: skip

    def use(self, hop_in: bytes) -> HopUse:
        earning = self.book.hops_in.get(hop_in)
        mine = [x for x, (asked, _) in self.made.items() if asked.hop_in == hop_in]
        paid = {
            x for x in mine if x in self.admitted and earning and earning.amount(self.admitted[x])
        }
        return HopUse(len([x for x in mine if x not in paid and x not in self.done]), len(paid))

    def open_to(self, provider: str) -> None:
        """A hop out to an adapter that is known."""
        key = self.out.setdefault(provider, Signer(os.urandom(32)))
        vk = key.verify_key
        self.book = replace(
            self.book,
            hops_out={**self.book.hops_out, vk: Paying(vk)},
            room={**self.book.room, vk: self.room},
        )
        for message in self.welcome(provider):
            self.tell_provider(provider, message)

    # ---- a lease -----------------------------------------------------------------------------

    async def make(self, asked: RouteAsked) -> RouteMade:
        self.asked.append(asked)
        known = self.hops_in.get(asked.hop_in)
        if known is None or known.account != asked.account or known.state != "FINAL":
            raise LeaseUnknown("no such hop of this account")
        if asked.provider not in self.out:
            raise HeadroomShort("no hop to this provider")
        earning = self.book.hops_in[asked.hop_in]
        left = known.capacity - earning.total - self._kept(asked.hop_in)
        if left < with_fee(asked.reserve, self.bps):
            raise HeadroomShort("the hop in holds less")
        salts = os.urandom(32), os.urandom(32)
        hop_out = self.out[asked.provider].verify_key
        router = Signer(os.urandom(32)) if "another router" in self.lies else self.key
        bps = self.bps + 20 if "dearer" in self.lies else self.bps
        opened = os.urandom(32) if "other hop" in self.lies else asked.hop_in
        route = Route(DEVNET_MAGIC, router.verify_key, asked.lease, asked.lease_vk,
                      commit(opened, salts[0]), commit(hop_out, salts[1]), bps, 250,
                      asked.reserve, asked.expires_ms)  # fmt: skip
        signed = SignedRoute(route.encode(), router.sign(route.encode()))
        made = RouteMade(signed, asked.hop_in, salts[0], hop_out, salts[1])
        self.made[asked.lease] = asked, made
        return made

    async def admit(self, lease: str, terms: bytes) -> None:
        self.said.append(("admit", lease))
        if lease in self.admitted:
            return
        if lease not in self.made:
            raise LeaseUnknown("never made, or lapsed")
        asked, made = self.made[lease]
        routed = RoutedTerms.decode(terms)
        route = made.signed.verify()
        carried = books.Carried(lease, asked.lease_vk, asked.adapter_vk, asked.hop_in,
                                made.hop_out, route.route_bps, asked.reserve)  # fmt: skip
        self._done(books.admit(self.book, routed.hash, carried, self._keys()))
        self.admitted[lease] = routed.hash

    async def drop(self, lease: str) -> None:
        self.said.append(("drop", lease))
        self.done.add(lease)
        self.made.pop(lease, None)

    async def owes(self, lease: str, owed: int, final: bool) -> None:
        self.said.append(("owes", lease))
        if lease not in self.admitted:
            raise LeaseUnknown("not carried")
        self._done(books.decide(self.book, Owes(self.admitted[lease], owed), self._keys()))

    async def over(self, lease: str) -> None:
        self.said.append(("over", lease))
        self.done.add(lease)

    async def end(self, end: End) -> bool:
        return end.session_vk in self.hops_in

    def carried(self) -> Mapping[str, bool]:
        return {x: x in self.admitted for x in self.made if x not in self.done}

    def sums(self, lease: str) -> Sums | None:
        terms = self.admitted.get(lease)
        if terms is None:
            return None
        known = self.book.leases[terms]
        came = self.book.hops_in[known.hop_in].amount(terms)
        confirmed = known.paid.amount if known.paid else 0
        gone = self.hops_in[known.hop_in].state == "ENDED"
        return Sums(known.owed, reach(came, known.route_bps), confirmed, gone)

    # ---- payments ----------------------------------------------------------------------------

    async def hop_paid(self, message: wire.HopPaid) -> Sequence[str]:
        hop = message.voucher.session_vk
        earning = self.book.hops_in.get(hop)
        if earning is None:
            raise LeaseUnknown("no such hop")
        before = {lease: earning.amount(terms) for lease, terms in self.admitted.items()}
        payment = payment_of(message, earning.last)
        try:
            self._done(books.decide(self.book, payment, self._keys()))
        except (StatementRefused, Malformed) as no:  # without its leaves it cannot be summed
            n = payment.signed.statement.n
            self.tell_payer(hop, wire.HopRefused(hop, n, no.code, no.message))
            return ()
        after = self.book.hops_in[hop]
        return [x for x, terms in self.admitted.items() if after.amount(terms) > before[x]]

    async def hop_refused(self, provider: str, message: wire.HopRefused) -> None:
        key = self.out.get(provider)
        if key is None or key.verify_key != message.session_vk:
            raise LeaseUnknown("a hop to somebody else")
        self.refused.append(message)
        self._send(provider, whole=True)

    async def paid(self, provider: str, message: wire.PaidSent) -> None:
        asked, _ = self.made[message.lease]
        if asked.provider != provider:
            raise Conflict("the market lets nobody speak for another's lease")
        told = Paid(asked.lease_vk, message.lease, message.amount, message.signature)
        self._done(books.decide(self.book, told, self._keys()))
        if not self.mute:
            self.tell_payer(asked.hop_in, message)

    def welcome(self, provider: str) -> Sequence[wire.Message]:
        key = self.out.get(provider)
        if key is None:
            return ()
        opened = wire.HopOpened(key.verify_key, b"\x0c" * 28, TX, 0)
        last = self.book.hops_out[key.verify_key].last
        return (opened, *([frame_of(last, None)] if last else []))

    def resume(self, session_vk: bytes) -> Sequence[wire.Message]:
        return [
            wire.PaidSent(one.lease, one.paid.amount, one.paid.signature)
            for one in self.book.leases.values()
            if one.hop_in == session_vk and one.paid is not None and not self.mute
        ]

    def evidence(
        self, lease: str, side: Literal["consumer", "provider"]
    ) -> tuple[RouteEvidence, HopEvidence | None] | None:
        terms = self.admitted.get(lease)
        if terms is None:
            return None
        known, (_, made) = self.book.leases[terms], self.made[lease]
        paid = (known.paid.amount, known.paid.signature) if known.paid else None
        into = side == "consumer"
        hop = self.book.hops_in[known.hop_in] if into else self.book.hops_out[known.hop_out]
        route = RouteEvidence(
            made.signed,
            Opening(made.hop_in, made.salt_in) if into else None,
            None if into else Opening(made.hop_out, made.salt_out),
            paid,
        )
        if hop.last is None:
            return route, None
        offer = self.began if into else None
        shown = HopEvidence(hop.session_vk, TX, 0, offer, hop.last.signed, hop.last.leaves,
                            hop.last.voucher)  # fmt: skip
        return route, shown

    # ---- inside ------------------------------------------------------------------------------

    def _keys(self) -> dict[bytes, Signer]:
        return {key.verify_key: key for key in self.out.values()}

    def _done(self, outcome: Outcome[books.RouterBook]) -> None:
        before, self.book = self.book, outcome.state
        names = {key.verify_key: provider for provider, key in self.out.items()}
        if "withholds" in self.lies:
            self.book = replace(self.book, hops_out=before.hops_out)
            return
        for send in outcome.effects:
            if isinstance(send.message, Payment) and send.hop in names:
                last = before.hops_out[send.hop].last
                self.tell_provider(names[send.hop], frame_of(send.message, last))

    def _send(self, provider: str, *, whole: bool) -> None:
        last = self.book.hops_out[self.out[provider].verify_key].last
        if last is not None and whole:
            self.tell_provider(provider, frame_of(last, None))
