"""A consumer who always keeps one more transaction of its channel waiting, for tests of claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from adapter.journal.journal import Journal
from marketplace.chain.actions.session import CLOSE_WITHIN_MS, Desk, Settled, settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import MemoryLog
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel import TopUp
from tests.integration.adapter.test_treasury import Desk as Adapter
from tests.integration.support.chain import ADA, DAY_MS, Live, Provider, World

BLOCK_MS = 20_000


def held(view: ChannelView) -> int:
    """Of several ends of a channel in the mempool: the one that holds most."""
    return view.amount


def mint(world: World, blocks: int = 1) -> None:
    """As many blocks as on mainnet, 20 s apart."""
    for _ in range(blocks):
        world.devnet.advance(BLOCK_MS)


@dataclass
class Spammer:
    """Spends the channel's newest output again before each block.

    While it is open by top-ups of one lovelace; once it is closing by claims of one lovelace more,
    with a voucher of its own, which the contract must pay to the provider.
    """

    world: World
    live: Live
    provider: Provider
    tip: Utxo
    paid: int = 0
    sent: int = 0
    kept_out: int = 0
    desk: Desk = field(init=False)

    def __post_init__(self) -> None:
        self.desk = self.world.desk("consumer", MemoryLog())

    async def close(self) -> None:
        """The consumer's Close; waits for a block as everything else of theirs."""
        until_ms = (await self.world.chain.tip()).time_ms + CLOSE_WITHIN_MS
        await self._spend(plans.closing_batch(self.tip, self.live.consts.consumer_vkh, until_ms))

    async def top_up(self) -> None:
        """One lovelace more."""
        signers = (self.live.consts.consumer_vkh,)
        await self._spend(Batch((Move(self.tip, TopUp(1)),), signers=signers))

    async def claim(self) -> None:
        """One lovelace more to the provider, of all that was signed."""
        step = plans.claim_step(self.live.voucher(90_000_000), self.sent + 1)
        payouts = {self.provider.payout: self.provider.payout_address}
        await self._spend(Batch((Move(self.tip, step),), payouts))

    async def _spend(self, batch: Batch) -> None:
        snapshot, funds, fresh = await self.desk.look()
        known = {**fresh, self.tip.ref: self.tip}
        try:
            planned = plans.settle(snapshot, funds, batch)
            self._sent(await settle_planned(self.desk, planned, known, "spam"))
        except Refusal:  # somebody else built behind it first: behind that one, then
            from marketplace.chain.channels.mempool import Mempool

            self.kept_out += 1
            view = await self.world.view(self.live)
            self.tip = (await Mempool(self.world.chain).ahead(view, held)).view.utxo

    def _sent(self, done: Settled) -> None:
        self.sent += 1
        self.paid += done.sent.fee + done.subsidy
        self.tip = next(u for u in done.sent.made if u.datum is not None)


class HiddenMempool:
    """A chain's door that shows no mempool: what the spammer sends goes to other nodes."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain

    def __getattr__(self, name: str) -> object:
        return self._nothing if name == "waiting_at" else getattr(self._chain, name)

    async def _nothing(self, _address: bytes) -> list[bytes]:
        return []


async def starving(
    world: World, folder: Path, amount: int = 300 * ADA, period_ms: int = DAY_MS
) -> tuple[Adapter, Spammer, Live, Provider]:
    """A channel in a block, its provider's treasury, and its consumer with money for spam."""
    provider = Provider("p")
    for _ in range(2):
        world.fund("consumer", 300 * ADA)
        world.devnet.faucet(addresses.to_text(provider.fee_address), 10 * ADA)  # pyright: ignore[reportUnknownMemberType]
        mint(world)
    [live] = await world.open("consumer", provider, [amount], close_period_ms=period_ms)
    mint(world)
    desk = Adapter(world, live, provider, Journal(folder / "journal.db"))
    await desk.treasury.look()
    return desk, Spammer(world, live, provider, (await world.view(live)).utxo), live, provider
