"""A consumer that hands its signed open over, and the adapter's mind, journal and eye on a devnet
whose blocks a test makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapter.core.events import Event, Examine, Outcome
from adapter.core.state import Channel, Own, Rules
from adapter.journal.journal import Journal
from adapter.money.channel_agent import ChannelAgent
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Opening
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import txbytes
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import MemoryLog
from marketplace.chain.transaction.signing import Signed
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from tests.integration.support.chain import ADA, Provider, World, key
from tests.unit.support.adapter import ADAPTER, Bench, core_job, offer

DEEP = 6  # blocks over a consumer's coins when it opens
ALLOWANCE = 500_000


async def deep(world: World, *names: str, lovelace: int = 50 * ADA) -> None:
    """Each of *names* has coins by a transaction of its own, old enough to be relied on."""
    for name in names:
        world.fund(name, lovelace)
    world.devnet.mint(DEEP)


async def opening(
    world: World, name: str, consts: Consts, amount: int = 5 * ADA, until_s: int = 900,
    coins: Callable[[Funds], Funds] = lambda funds: funds,
) -> Signed:  # fmt: skip
    """*name*'s open, signed and not sent."""
    desk, wallet = world.desk(name, MemoryLog()), world.wallet(name)
    snapshot, funds, _ = await desk.look()
    stake = Credential(wallet.stake) if wallet.stake else None
    made = plans.open_channels(
        snapshot, coins(funds), [Opening(amount, lambda _first, _index: consts, stake)],
        until_ms=snapshot.tip.time_ms + until_s * 1000,
    )  # fmt: skip
    return made.finish().sign(wallet.signer)


async def rival(world: World, name: str, of: Signed) -> Signed:
    """Another transaction of *name* that spends what *of* spends."""
    spent = set(of.inputs)

    def same(funds: Funds) -> Funds:
        return replace(funds, spendable=tuple(u for u in funds.spendable if u.ref in spent))

    vk = key(f"rival of {of.tx_id.hex()}")
    consts = Consts(vk.verify_key, bytes(28), bytes(28), bytes(28), 86_400_000, 0)
    return await opening(world, name, consts, 7 * ADA, coins=same)


@dataclass
class Adapter(Bench):
    """The mind with its journal, and its eye on *chain*. Effects on the chain are performed at
    once; what was decided is written first.
    """

    chain: ChainReader | None = None
    provider: Provider = field(default_factory=lambda: Provider("p"))
    folder: Path = Path()
    alarms: list[str] = field(default_factory=list[str])

    @staticmethod
    def at(
        world: World, folder: Path, name: str = "p", chain: ChainReader | None = None
    ) -> Adapter:
        provider = Provider(name)
        supply = offer(
            adapter_vkh=provider.adapter.key_hash, payout=provider.payout, fee_bps=0,
            allowance=ALLOWANCE,
        )  # fmt: skip
        made = Adapter(
            own=Own(supply, ADAPTER, rules=Rules(watch_s=1)), chain=chain or world.chain,
            provider=provider, folder=folder,
        )  # fmt: skip
        made.wake()
        return made

    def wake(self) -> None:
        """Come up on what the journal holds."""
        self.journal = Journal(self.folder / "journal.db")
        self.state = self.journal.load()
        assert self.chain is not None
        self.agent = ChannelAgent(
            self.chain, self.provider.adapter, self.provider.fee,
            addresses.to_text(self.provider.payout_address),
            self.journal, self.handle, lambda vk: self.state.channels.get(vk),
            lambda code, _text: self.alarms.append(code), rules=self.own.rules,
        )  # fmt: skip
        for vk in self.state.channels:
            self.agent.watch(vk)

    def killed(self) -> None:
        """kill -9, and a new life."""
        self.journal.close()
        self.wake()

    async def handle(self, event: Event) -> None:
        await self.perform(self.do(event))

    async def perform(self, outcome: Outcome) -> None:
        if outcome.durable:
            self.journal.write(outcome)
        for vk in self.state.channels:
            self.agent.watch(vk)
        for effect in outcome.effects:
            if isinstance(effect, Examine):
                await self.agent._handed.examine(effect.session_vk, effect.tx)  # pyright: ignore[reportPrivateUsage] -- as its task would, but now

    async def quote(self, consumer: Signer, session: Signer, lease: str = "lease_1") -> Terms:
        """The terms that it signed, for a lease of two cores."""
        proposed = self.propose(core_job(), lease, session, consumer_vkh=consumer.key_hash)
        await self.perform(proposed)
        return self.lease(lease).terms

    async def signed(
        self, session: Signer, origin: bytes, tx: bytes, lease: str = "lease_1"
    ) -> None:
        """The market brings the consumer's signature, and bytes."""
        held = self.lease(lease).signed
        both = SignedTerms(held.body, held.adapter_signature, session.sign(held.body))
        message = wire.LeaseSigned(lease, both, origin.hex(), {}, tx)
        await self.perform(self.hear(message))

    async def look(self) -> None:
        await self.agent.look()

    def channel(self, session: Signer) -> Channel:
        return self.state.channels[session.verify_key]

    def refused(self) -> list[str]:
        """Codes of the leases that wait for a block."""
        told = [m for m in self.sent() if isinstance(m, wire.LeaseProgress)]
        return [str(m.detail["code"]) for m in told if m.stage == "OPEN_WAITS"]


@dataclass
class Handed:
    """One consumer's quote and open at one adapter."""

    adapter: Adapter
    session: Signer
    terms: Terms
    tx: Signed

    @staticmethod
    async def by(
        world: World, adapter: Adapter, name: str = "consumer", lease: str = "lease_1",
        until_s: int = 900, coins: Callable[[Funds], Funds] = lambda funds: funds,
    ) -> Handed:  # fmt: skip
        session = key(f"session of {name} {lease}")
        terms = await adapter.quote(world.wallet(name).signer, session, lease)
        tx = await opening(world, name, terms.consts(), until_s=until_s, coins=coins)
        return Handed(adapter, session, terms, tx)

    async def over(self, tx: bytes | None = None) -> None:
        """Hand these bytes over, by default the right ones."""
        raw = self.tx.bytes if tx is None else tx
        await self.adapter.signed(self.session, self.tx.tx_id, raw, self.terms.lease)

    @property
    def parts(self) -> txbytes.TxParts:
        return txbytes.split(self.tx.bytes)
