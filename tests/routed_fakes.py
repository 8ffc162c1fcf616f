"""A fake adapter and a fake payer that know routes: the pure books of either side, real keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.route import payee, payer
from marketplace.domain.money.route.hop import Earning, Paying, Payment
from marketplace.domain.money.route.messages import Outcome, Owes
from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.route import SignedRoute, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms, SignedRoutedTerms
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.conversation import subscribe_message
from marketplace.domain.protocol.hop_frames import frame_of, payment_of
from marketplace.domain.units import owed, unit_ms
from tests.fakes import FakeAdapter, FakePayer, Running, until

HELD = 50_000_000


def tick_of(terms: Terms) -> int:
    return owed(unit_ms(terms.tick_ms, terms.units_milli), terms.rate_micro)


@dataclass
class RoutedAdapter(FakeAdapter):
    """Takes every hop that it is told of; *no* is what it says to a route."""

    books: dict[bytes, payee.PayeeBook] = field(default_factory=dict)
    on: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # lease -> hop, hash of terms
    proposals: list[wire.RouteProposed] = field(default_factory=list)
    no: str = ""
    silent: bool = False  # says no Paid

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handler = self._routed

    async def _routed(self, message: wire.Message) -> None:
        match message:
            case wire.HopOpened(session_vk):
                self.books.setdefault(session_vk, payee.PayeeBook(Earning(session_vk, HELD)))
            case wire.RouteProposed(lease):
                self.proposals.append(message)
                if self.no or message.hop not in self.books:
                    no = self.no or "HOP_UNSEEN"
                    await self.send(wire.LeaseDeclined(lease, no, "the fake says no"))
                    return
                await self.send(wire.LeaseAccepted(lease, self.agree(message)))
            case wire.HopPaid():
                book = self.books[message.voucher.session_vk]
                payment = payment_of(message, book.earning.last)
                await self._took(payee.decide(book, payment, self.signer))
            case _:
                pass

    def agree(self, asked: wire.RouteProposed) -> SignedTerms:
        routed = RoutedTerms.decode(asked.terms)
        route = check_route(SignedRoute(asked.route, asked.route_signature), routed)
        assert route.out_commit == commit(asked.hop, asked.salt)
        served = payee.Served(
            asked.lease, routed.terms.session_vk, tick_of(routed.terms), route.reserve
        )
        self.books[asked.hop] = payee.admit(self.books[asked.hop], routed.hash, served)
        self.on[asked.lease] = asked.hop, routed.hash
        self.leases[asked.lease] = Running(routed.terms, asked.job)
        return SignedRoutedTerms(asked.terms, self.signer.sign(asked.terms))

    async def _took(self, outcome: Outcome[payee.PayeeBook]) -> None:
        self.books[outcome.state.earning.session_vk] = outcome.state
        for send in outcome.effects:
            assert isinstance(send.message, Paid)
            if not self.silent:
                said = send.message
                await self.send(wire.PaidSent(said.lease, said.amount, said.signature))

    async def tick(self, lease: str, ms: int = 1000, final: bool = False) -> Receipt:
        signed = self.receipt(lease, ms, final)
        if lease in self.on:
            hop, terms = self.on[lease]
            book = self.books[hop]
            served = replace(book.leases[terms], owed=signed.receipt.lease_owed)
            self.books[hop] = replace(book, leases={**book.leases, terms: served})
        await self.send(wire.ReceiptSent(lease, signed))
        return signed.receipt

    def got(self, lease: str) -> int:
        """What was signed for the lease over its hop."""
        hop, terms = self.on[lease]
        return self.books[hop].earning.amount(terms)


@dataclass
class RoutedPayer(FakePayer):
    """Pays over *hop*; its leases' keys and the hop's are in *sessions*."""

    hop: Signer = field(default_factory=lambda: Signer(bytes(32)))
    book: payer.PayerBook = field(init=False)
    leases: dict[str, bytes] = field(default_factory=dict)  # hash of the terms
    paid: list[wire.PaidSent] = field(default_factory=list)
    refused: list[wire.HopRefused] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sessions[self.hop.verify_key] = self.hop
        self.book = payer.PayerBook(Paying(self.hop.verify_key))

    async def speak(self, session: Signer) -> None:
        """For one key more, and until the market has taken it."""
        self.sessions[session.verify_key] = session
        client = self.socket.client
        asked = subscribe_message(client.nonce, client.market, session.verify_key)
        await self.socket.send(wire.Subscribe(session.verify_key, session.sign(asked)))
        await until(lambda: session.verify_key in self.subscribed)

    async def admit(self, lease: str, body: bytes, bps: int, offer: SignedRouterOffer) -> None:
        """The lease is signed: its leaf of 0 goes to the router."""
        routed, mine = RoutedTerms.decode(body), offer.verify()
        terms = routed.terms
        bought = payer.Bought(lease, terms.session_vk, terms.adapter_vk, bps, tick_of(terms),
                              terms.ceiling)  # fmt: skip
        self.leases[lease] = routed.hash
        done = payer.admit(self.book, routed.hash, bought, mine.hash, mine.hop_fee, self.hop)
        await self._send(done)

    async def _message(self, message: wire.Message) -> None:
        match message:
            case wire.ReceiptSent(lease, signed) if lease in self.leases:
                self.receipts.append(signed.receipt)
                if self.pays:
                    owes = Owes(self.leases[lease], signed.receipt.lease_owed)
                    await self._send(payer.decide(self.book, owes, self.hop))
            case wire.PaidSent(lease, amount, signature):
                self.paid.append(message)
                said = Paid(self.book.leases[self.leases[lease]].lease_vk, lease, amount, signature)
                if self.pays:
                    await self._send(payer.decide(self.book, said, self.hop))
            case wire.HopRefused():
                self.refused.append(message)
                if self.book.paying.last is not None:
                    await self.socket.send(frame_of(self.book.paying.last, None))
            case _:
                await super()._message(message)

    async def _send(self, outcome: Outcome[payer.PayerBook]) -> None:
        before, self.book = self.book, outcome.state
        for send in outcome.effects:
            assert isinstance(send.message, Payment)
            await self.socket.send(frame_of(send.message, before.paying.last))
