"""One consumer, twenty providers and a market's settler on a devnet, for ``tally bench purse``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from marketplace.chain.actions.session import Desk, deploy, finish_channels, open_channels, pay
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.build.wallet import COLLATERAL, Wallet
from marketplace.chain.channels.finder import ChannelFinder, ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.node.blockfrost import ChainReader, connect
from marketplace.chain.node.submit import MemoryLog
from marketplace.chain.settlement.batched_ends import MOST, EndBatcher, OfferedEnd
from marketplace.chain.settlement.consent import Consent, Ending, Known, consent, to_resolve
from marketplace.chain.settlement.costs import finish_fee
from marketplace.chain.settlement.next_step import Due, Policy, batch_until_ms, batched_end
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.scripts import scripts_for
from marketplace.client.jobs.agreements import ROOM
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts, Open
from marketplace.domain.money.voucher import Voucher
from marketplace.market.base.settings import Settings

ADA: Final = 1_000_000
JOBS: Final = 100
PROVIDERS: Final = 20
JOB: Final = 50_000
"""Lovelace of one job: 5 s at 10,000 a second."""
PAYERS: Final = ("consumer", "provider", "market", "router")
WAIT_MS: Final = 900_000
"""How long an end waits for others' (``treasury.batch_wait``)."""


def key(name: str) -> Signer:
    """The same key for the same name, in every run."""
    return Signer(sha256(b"tally bench purse " + name.encode()).digest())


@dataclass(frozen=True)
class Provider:
    """Its keys: one ends channels, one pays; and where it is paid."""

    name: str

    @property
    def end(self) -> Signer:
        return key(f"end {self.name}")

    @property
    def fees(self) -> Wallet:
        return Wallet(key(f"fees {self.name}"), False)

    @property
    def payout(self) -> bytes:
        return addresses.key_address(key(f"payout {self.name}").key_hash, None, False)


ROUTER: Final = Provider("router")


@dataclass
class Channel:
    """One that stands, *by* whom it was opened, and what its session key signed."""

    provider: Provider
    session: Signer
    ref: OutRef
    amount: int
    signed: int = 0
    by: str = "consumer"

    def pay(self, lovelace: int) -> None:
        """Answer the receipts of a job that cost *lovelace*."""
        self.signed += lovelace

    @property
    def voucher(self) -> Voucher:
        return Voucher.sign(self.session, self.signed)


@dataclass
class World:
    """Everybody, and what was done since :meth:`begin_counting`. The devnet makes a block for each
    transaction.
    """

    chain: ChainReader
    consumer: Desk
    operator: Desk
    till: Desk
    providers: tuple[Provider, ...]
    reserve: int
    open_now: list[Channel] = field(default_factory=list[Channel])
    opened: int = 0
    billed: int = 0
    locked: int = 0
    fees: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    had: dict[bytes, int] = field(default_factory=dict[bytes, int])
    owed_then: int = 0
    router_had: int = 0
    route_fee: int = 0

    def provider_of(self, number: int) -> Provider:
        """Jobs go round."""
        return self.providers[number % PROVIDERS]

    async def open(self, provider: Provider, room: int, by: str = "consumer") -> Channel:
        """A channel for one job and *room* more."""
        return (await self.open_all([provider], room, by))[0]

    async def open_all(self, providers: Sequence[Provider], room: int, by: str) -> list[Channel]:
        """One to each, in one transaction."""
        desk = self.till if by == "router" else self.consumer
        assert desk.wallet.stake is not None
        stake, amount = Credential(desk.wallet.stake), JOB + self.reserve + room
        sessions = [key(f"session {self.opened + n}") for n in range(len(providers))]
        self.opened += len(providers)
        openings: list[Opening] = []
        for provider, session in zip(providers, sessions, strict=True):
            consts = Consts(
                session.verify_key, provider.end.key_hash, addresses.payout_hash(provider.payout),
                desk.wallet.signer.key_hash, 86_400_000, 0,
            )  # fmt: skip
            openings.append(Opening(amount, lambda _f, _i, c=consts: c, stake))
        done = await open_channels(desk, openings)
        self.paid(by, done.sent.fee)
        made = [
            Channel(provider, session, ref, amount, by=by)
            for provider, session, ref in zip(providers, sessions, done.refs, strict=True)
        ]
        self.open_now += made
        self.look_locked()
        return made

    def look_locked(self) -> None:
        """The most that the consumer had in channels."""
        mine = sum(one.amount for one in self.open_now if one.by == "consumer")
        self.locked = max(self.locked, mine)

    async def jobs(self) -> None:
        """A hundred of them, each on a channel that is kept, with the room that every client puts
        aside.
        """
        for number in range(JOBS):
            provider = self.provider_of(number)
            kept = next((one for one in self.open_now if one.provider == provider), None)
            if kept is None:
                purse = await self.balance(self.consumer.wallet.address)
                kept = await self.open(provider, min(ROOM, purse // 4))
            kept.pay(JOB)

    async def view(self, channel: Channel) -> ChannelView:
        """As the chain shows it."""
        found = await ChannelFinder(self.chain, scripts_for()).find(
            channel.session.verify_key, channel.ref
        )
        assert isinstance(found, ChannelView)
        return found

    async def end_alone(self, channel: Channel) -> None:
        """By its provider, with the money of its fee key."""
        provider = channel.provider
        desk = Desk(self.chain, provider.fees, "", MemoryLog())
        payouts = {addresses.payout_hash(provider.payout): provider.payout}
        finishes = [(await self.view(channel), channel.voucher)]
        done = await finish_channels(desk, finishes, payouts, provider.end)
        self.paid("provider", done.sent.fee)
        self.open_now.remove(channel)

    async def end_by_policy(self) -> None:
        """Every channel, each when the one rule of adapters lets it: together while it waits, with
        what can be claimed there; alone once that is over.
        """
        snapshot = await self.chain.snapshot(scripts_for())
        now = snapshot.tip.time_ms
        policy = Policy(batch_ms=WAIT_MS, end_cost=finish_fee(snapshot))
        for since in (now, now - WAIT_MS):  # wanted just now; and once they have waited
            offers: list[tuple[Channel, OfferedEnd, ChannelView]] = []
            for one in self.open_now:
                due = Due(await self.view(one), one.voucher, one.provider.payout, end=True)
                until = batch_until_ms(due, snapshot, policy, since)
                if until <= now:
                    continue
                claim = batched_end(due, snapshot, policy, since).claim
                offers.append((one, self._offer(one, claim, until + WAIT_MS), due.view))
            await self._together(offers)
        for one in tuple(self.open_now):
            await self.end_alone(one)

    def _offer(self, one: Channel, claim: Any, until_ms: int) -> OfferedEnd:
        provider = one.provider
        return OfferedEnd(
            provider.name, provider.end.key_hash, one.session.verify_key, one.ref, claim,
            provider.payout, until_ms,
        )  # fmt: skip

    async def _together(self, offers: Sequence[tuple[Channel, OfferedEnd, ChannelView]]) -> None:
        """As many as go together, signed by each adapter and paid by the market's operator."""
        rest = list(offers)
        while rest:
            some = rest[:MOST]
            desk = replace(self.operator, log=MemoryLog())  # each is in a block at once
            done = await EndBatcher(desk, Settings().end_share).round(
                [offer for _, offer, _ in some], lambda name, tx, s=some: self._consent(name, tx, s)
            )
            if done.sent is None:
                return
            self.paid("market", done.sent.sent.fee)
            gone = {one.session_vk for one in done.ended}
            self.open_now = [c for c in self.open_now if c.session.verify_key not in gone]
            rest = [one for one in rest if one[1].session_vk not in gone]

    async def _consent(
        self, name: str, tx: bytes, some: Sequence[tuple[Channel, OfferedEnd, ChannelView]]
    ) -> Consent | str:
        snapshot = await self.chain.snapshot(scripts_for())
        refs = to_resolve(tx)
        outputs = [await self.chain.output(ref) for ref in refs]
        resolved = {o.utxo.ref: o.utxo for o in outputs if o and o.spent_by is None}
        asked: dict[OutRef, Ending] = {}
        for channel, offer, view in some:
            if offer.adapter == name and offer.ref in refs:
                took = offer.claim.take_to if offer.claim else view.claimed
                asked[offer.ref] = Ending(view.utxo, channel.voucher if offer.claim else None, took)
        end = next(p.end for p in self.providers if p.name == name)
        return consent(tx, Known(end.key_hash, asked, resolved, snapshot), end)

    def begin_counting(self) -> None:
        """What was done so far was to warm up."""
        self.fees.clear()
        self.route_fee = 0
        self.owed_then = sum(c.signed for c in self.open_now if c.provider in self.providers)

    def paid(self, who: str, fee: int) -> None:
        self.fees.setdefault(who, []).append(fee)

    async def balance(self, address: bytes) -> int:
        """Lovelace at *address*."""
        return sum(u.lovelace for u in await self.chain.utxos(address))

    async def told(self) -> dict[str, int]:
        """The figures of a row. What a provider has is the ledger's, and what of its channels it
        may still claim.
        """
        net = [await self._net(provider) for provider in self.providers]
        fees = {who: sum(self.fees.get(who, ())) for who in PAYERS}
        return {
            "transactions": sum(len(some) for some in self.fees.values()),
            **{f"{who}_fees": lovelace for who, lovelace in fees.items()},
            "locked": self.locked,
            "least_net": min(net),
            "net": sum(net),
            "billed": JOBS * JOB,
            "route_fee": self.route_fee,
            "router_net": await self.router_worth() - self.router_had,
        }

    async def router_worth(self) -> int:
        """What the router has: its money, what stands in its own channels beyond what it signed,
        and what was signed to it and not claimed.
        """
        held = sum([await self.balance(at) for at in (ROUTER.payout, self.till.wallet.address)])
        own = sum(one.amount - one.signed for one in self.open_now if one.by == "router")
        return held + own + sum(one.signed for one in self.open_now if one.provider == ROUTER)

    async def _net(self, provider: Provider) -> int:
        held = sum([await self.balance(at) for at in (provider.payout, provider.fees.address)])
        due = sum(one.signed for one in self.open_now if one.provider == provider)
        return held + due - self.had[provider.payout] - self.owed_then // PROVIDERS


async def begun(served: Any) -> World:
    """A fresh devnet with the scripts, a purse of 1,000 ADA, and fee keys that hold a little."""
    chain = await connect(served.url)
    consumer = Wallet(key("consumer"), False, key("consumer stake").key_hash)
    operator = Wallet(key("operator"), False)
    till = Wallet(key("till"), False, key("till stake").key_hash)
    providers = tuple(Provider(f"p{n}") for n in range(PROVIDERS))
    purses = ((consumer, 1_000), (till, 3_000), (operator, 200))
    for wallet, ada in (*purses, *((p.fees, 40) for p in providers)):
        served.devnet.faucet(addresses.to_text(wallet.address), ada * ADA)
        if wallet is not consumer:
            served.devnet.faucet(addresses.to_text(wallet.address), COLLATERAL)
    desk = Desk(chain, operator, "", MemoryLog())
    await deploy(replace(desk, log=MemoryLog()))
    await pay(replace(desk, log=MemoryLog()), [Out(operator.address, COLLATERAL)])
    snapshot = await chain.snapshot(scripts_for())
    stub = addresses.channel_address(snapshot.scripts.stub_hash, Credential(bytes(28)), False)
    blank = datum.stage_bytes(
        Open(Consts(bytes(32), bytes(28), bytes(28), bytes(28), 86_400_000, 0), 0)
    )
    reserve = plans.reserve(snapshot, Out(stub, JOB, datum=blank))
    world = World(
        chain, Desk(chain, consumer, "", MemoryLog()), desk, Desk(chain, till, "", MemoryLog()),
        providers, reserve,
    )  # fmt: skip
    for provider in providers:
        at = (provider.payout, provider.fees.address)
        world.had[provider.payout] = sum([await world.balance(one) for one in at])
    world.router_had = await world.router_worth()
    return world
