"""A router at a table: its real books on disk, a consumer and a provider with theirs, and what the
market carries between them. The chain is what a test says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from marketplace import disk
from marketplace.chain.encoding import address as addresses
from marketplace.client.wallet.purse import Purse
from marketplace.disk import Files
from marketplace.domain.canonical import blake2b_224
from marketplace.domain.keys import Signer
from marketplace.domain.money.route import payee, payer
from marketplace.domain.money.route.hop import Earning, Paying
from marketplace.domain.money.route.messages import Outcome, Owes, Send
from marketplace.domain.money.route.offer import RouterOffer, SignedRouterOffer
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.transaction import FINAL_DEPTH
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import frame_of, payment_of
from marketplace.domain.supply.offer import Offer
from marketplace.keystore import Keys
from marketplace.market.base.routing import RouteAsked, RouteMade
from marketplace.router.desk import RouterDesk
from marketplace.router.exposure import Fund
from marketplace.router.journal import Journal, Opened
from marketplace.router.keys import RouterKeys
from marketplace.router.limits import ADA, Limits
from marketplace.router.post import Post
from marketplace.router.sights import Sight, sighted_in, sighted_out
from marketplace.router.state import HopIn, HopOut, Seen
from marketplace.router.writer import Writer
from tests.fakes import FakeClock, FakeIds, seed
from tests.unit.support.adapter import ADAPTER, core_job, offer, terms_for

ROUTER, END, PURSE, OUT = (seed(f"router {name}") for name in ("vk", "end", "purse", "out"))
CONSUMER, HOP = seed("consumer"), seed("hop in")
ACCOUNT = CONSUMER.key_hash.hex()
TICK = 1000
RESERVE = 60_000
LIMITS = Limits(gather_ms=0)
PAYOUT = addresses.to_text(addresses.key_address(b"\x17" * 28, None, False))


def opened_under(limits: Limits) -> SignedRouterOffer:
    """The router's offer."""
    body = RouterOffer(
        42, ROUTER.verify_key, END.key_hash, b"\x17" * 28, limits.close_period_ms, limits.route_bps,
        limits.hop_fee, limits.hop_ms, limits.hop_cap, limits.lease_cap,
    ).encode()  # fmt: skip
    return SignedRouterOffer(body, ROUTER.sign(body))


def deep(amount: int = 10 * ADA, depth: int = FINAL_DEPTH, tx: bytes = b"\x01" * 32) -> Sight:
    """A hop that holds *amount*."""
    return Sight(Seen.OPEN, amount, funds=(Fund(tx, amount, depth),))


class PowerCut(BaseException):
    """The machine stops here."""


@dataclass
class Table:
    """*sent*: frames on their way to the provider, to the payer; *cut*: how many frames still leave
    before the power does (-1: all).
    """

    folder: Path
    limits: Limits = LIMITS
    files: Files = disk.OS
    supply: Offer = field(default_factory=offer)
    clock: FakeClock = field(default_factory=FakeClock)
    to_provider: list[wire.Message] = field(default_factory=list[wire.Message])
    to_payer: list[wire.Message] = field(default_factory=list[wire.Message])
    sight: Sight = field(default_factory=deep)
    cut: int = -1
    online: bool = True
    desk: RouterDesk = field(init=False)
    journal: Journal = field(init=False)
    opened: Opened = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def books(self) -> tuple[Path, Path]:
        return self.folder / "journal.jsonl", self.folder / "tower" / "book.jsonl"

    def start(self) -> None:
        """The router's process, from what is on disk."""
        self.journal, self.opened = Journal.hold(*self.books, self.files)
        sessions = {OUT.verify_key: OUT}
        keys = RouterKeys(Purse(self.folder, Keys(self.folder, bytes(32))), ROUTER, END, sessions)
        post = Post(keys, self.limits)
        writer = Writer(self.journal, self.opened.state, keys, post, self.clock, self.limits)

        async def look(_hop: HopIn) -> Sight:
            return self.sight

        self.desk = RouterDesk(
            writer, keys, post, self.limits, opened_under(self.limits), PAYOUT, look, self.clock,
            FakeIds(),
        )  # fmt: skip
        self.desk.heard_by(self._tell_provider, self._tell_payer)

    def stop(self) -> None:
        """As a killed process leaves it: the kernel gives the locks back."""
        self.journal.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _leave(self) -> None:
        if self.cut == 0:
            raise PowerCut
        self.cut -= self.cut > 0

    def _tell_provider(self, provider: str, message: wire.Message) -> bool:
        assert provider == self.supply.provider
        self._leave()
        if self.online:
            self.to_provider.append(message)
        return self.online

    def _tell_payer(self, hop: bytes, message: wire.Message) -> bool:
        self._leave()
        self.to_payer.append(message)
        return True

    # ---- the hops --------------------------------------------------------------------------------

    async def hops(self, capacity: int = 10 * ADA) -> Table:
        """A hop out that stands, and the consumer's announced."""
        if OUT.verify_key not in self.desk.state.hops_out:
            out = HopOut(
                OUT.verify_key, 42, self.supply.provider, self.supply.adapter_vkh, self.supply.payout,
                "", self.supply.close_period_ms, self.supply.fee_bps, PURSE.key_hash, "bb" * 32,
            )  # fmt: skip
            await self.desk.writer.change(lambda s: Outcome(s.with_hop_out(out)))
            await self.look_out(capacity)
        if HOP.verify_key not in self.desk.state.hops_in:
            await self.announce()
        self.desk.sights[HOP.verify_key] = self.sight
        return self

    async def announce(self, hop: Signer = HOP, tx: str = "aa" * 32) -> None:
        await self.desk.announce(ACCOUNT, hop.verify_key, CONSUMER.key_hash, tx, 0)

    async def look_out(self, capacity: int) -> None:
        sight, now = Sight(Seen.OPEN, capacity), self.clock.now_ms()
        await self.desk.writer.change(lambda s: Outcome(sighted_out(s, OUT.verify_key, sight, now)))

    async def look_in(self, sight: Sight, hop: Signer = HOP) -> None:
        """What the next look at the chain shows of the consumer's hop."""
        self.sight = self.desk.sights[hop.verify_key] = sight
        keys = self.desk.writer.signers
        await self.desk.writer.change(
            lambda s: sighted_in(
                s, hop.verify_key, sight, self.limits, self.clock.now_ms(), keys(s)
            )
        )


class Place(Protocol):
    """Where a lease is carried: a :class:`Table`, or a router on a chain."""

    @property
    def desk(self) -> RouterDesk: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def supply(self) -> Offer: ...

    @property
    def to_provider(self) -> list[wire.Message]: ...

    @property
    def to_payer(self) -> list[wire.Message]: ...

    def now_ms(self) -> int: ...


@dataclass
class Trip:
    """One lease over a place: its key, its terms, and both ends' books."""

    table: Place
    name: str = "lease_1"
    hop: Signer = HOP
    reserve: int = RESERVE
    account: str = ACCOUNT
    made: RouteMade = field(init=False)
    routed: RoutedTerms = field(init=False)

    @property
    def key(self) -> Signer:
        return seed(f"key of {self.name}")

    @property
    def asked(self) -> RouteAsked:
        now = self.table.now_ms()
        return RouteAsked(
            self.name, self.key.verify_key, self.account, self.table.supply, self.hop.verify_key,
            self.reserve, 1000, now + 60_000, now + 60_000,
        )  # fmt: skip

    async def make(self) -> Trip:
        self.made = await self.table.desk.make(self.asked)
        self.agree()
        return self

    def agree(self) -> None:
        """Terms as the market would write them."""
        terms = terms_for(
            self.table.supply, core_job(), self.name, self.key, ceiling=self.reserve,
            consumer_vkh=blake2b_224(self.key.verify_key),
        )  # fmt: skip
        self.routed = RoutedTerms(terms, self.made.signed.verify().hash)

    async def admit(self) -> Trip:
        await self.table.desk.admit(self.name, self.routed.encode())
        return self


@dataclass
class Ends:
    """The consumer's and the provider's books, over the frames of a place."""

    table: Place
    consumer: payer.PayerBook = field(
        default_factory=lambda: payer.PayerBook(Paying(HOP.verify_key))
    )
    provider: payee.PayeeBook = field(
        default_factory=lambda: payee.PayeeBook(Earning(OUT.verify_key, 10 * ADA))
    )
    tick_lovelace: int = TICK
    signed: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Every statement that the provider was shown, by number."""

    def begin(self, trip: Trip) -> None:
        """Both have signed the terms."""
        key, hash_ = trip.key.verify_key, trip.routed.hash
        served = payee.Served(trip.name, key, self.tick_lovelace, trip.reserve)
        self.provider = payee.admit(self.provider, hash_, served)
        bps = self.table.limits.route_bps
        bought = payer.Bought(
            trip.name, key, ADAPTER.verify_key, bps, self.tick_lovelace, trip.reserve
        )
        offered = self.table.desk.terms
        done = payer.admit(self.consumer, hash_, bought, offered.hash, offered.hop_fee, HOP)
        self.consumer = done.state

    async def pay(self, everything: bool = False) -> Sequence[str]:
        """The consumer's last payment, to the router."""
        last = self.consumer.paying.last
        assert last is not None
        since = None if everything else self.table.desk.state.book.hops_in[HOP.verify_key].last
        return await self.table.desk.hop_paid(frame_of(last, since))

    async def tick(self, trip: Trip) -> bool:
        """One is served, if the provider dares to, and the consumer answers what it owes."""
        done = payee.meter(self.provider, trip.routed.hash)
        if not done.effects:
            return False
        self.provider = done.state
        owed = self.provider.leases[trip.routed.hash].owed
        await self.table.desk.owes(trip.name, owed, False)
        self.owes(trip, owed)
        return True

    def owes(self, trip: Trip, owed: int) -> None:
        self.consumer = payer.decide(self.consumer, Owes(trip.routed.hash, owed), HOP).state

    async def carry(self) -> None:
        """All that is on its way arrives, and what follows."""
        while self.table.to_provider or self.table.to_payer:
            while self.table.to_provider:
                await self._at_provider(self.table.to_provider.pop(0))
            while self.table.to_payer:
                await self._at_payer(self.table.to_payer.pop(0))

    async def _at_provider(self, message: wire.Message) -> None:
        if not isinstance(message, wire.HopPaid):
            return
        payment = payment_of(message, self.provider.earning.last)
        statement = payment.signed.statement
        known = self.signed.setdefault(statement.n, payment.signed.body)
        assert known == payment.signed.body, "the router signed two statements of one number"
        done = payee.decide(self.provider, payment, ADAPTER)
        self.provider = done.state
        await self._said(done.effects)

    async def _said(self, effects: tuple[Send, ...]) -> None:
        for one in effects:
            assert isinstance(one.message, Paid)
            said = one.message
            frame = wire.PaidSent(said.lease, said.amount, said.signature)
            await self.table.desk.paid(self.table.supply.provider, frame)

    async def _at_payer(self, message: wire.Message) -> None:
        if isinstance(message, wire.PaidSent):
            lease = next(one for one in self.consumer.leases.values() if one.lease == message.lease)
            said = Paid(lease.lease_vk, lease.lease, message.amount, message.signature)
            self.consumer = payer.decide(self.consumer, said, HOP).state

    async def reconnect(self) -> None:
        """Both come back after the router's restart and say what they last said."""
        desk = self.table.desk
        self.table.to_provider.extend(desk.welcome(self.table.supply.provider))
        self.table.to_payer.extend(desk.resume(HOP.verify_key))
        for one in payee.resume(self.provider, ADAPTER):
            if isinstance(one.message, Paid):
                await self._said((one,))
            elif isinstance(one.message, Owes):
                name = self.provider.leases[one.message.terms].lease
                await desk.owes(name, one.message.owed, False)
                self.consumer = payer.decide(self.consumer, one.message, HOP).state
        if self.consumer.paying.last is not None:
            await self.pay(everything=True)


def with_depth(sight: Sight, depth: int) -> Sight:
    """The same money, so deep."""
    return replace(sight, funds=tuple(replace(one, depth=depth) for one in sight.funds))
