"""A router's hop on a real ledger: found where the router said, relied upon by depth, claimed and
ended over what was delivered *and* signed, lease by lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from adapter.core.events import Outcome, Passed
from adapter.core.state import PauseCause, Rules
from adapter.core.wish import Wish
from marketplace.chain.actions.session import close_channel, open_channels
from marketplace.chain.build.plans import Opening
from marketplace.chain.encoding import address as addresses
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.money.address import Credential
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.work.workload import ExitReason
from tests.fakes import until
from tests.integration.support.chain import ADA, BY_HAND, Live, World, run
from tests.integration.support.handed import Adapter
from tests.unit.support.hop_out import HOP, Over

RATE = 250_000_000_000
"""A core-second is 0.25 ADA: a few seconds are worth an output of their own."""


@dataclass
class Served(Over, Adapter):
    """The mind on a bench, with its journal and its eye, and a router that pays it."""

    @staticmethod
    def at(world: World, folder: Path, name: str = "p", chain: ChainReader | None = None) -> Served:
        plain = Adapter.at(world, folder / "plain", name, chain)
        plain.journal.close()
        made = Served(
            own=plain.own, chain=chain or world.chain, provider=plain.provider, folder=folder
        )
        made.wake()
        for _ in range(2):
            world.devnet.faucet(addresses.to_text(made.provider.fee_address), 10 * ADA)
        world.fund("router", 100 * ADA)
        return made

    async def hop_of(
        self, world: World, amount: int = 20 * ADA, said: int = 0, **more: object
    ) -> Live:
        """The router opens its hop, and says it at output *said*."""
        wallet, offer = world.wallet("router"), self.own.offer
        consts = Consts(
            HOP.verify_key, offer.adapter_vkh, offer.payout, wallet.signer.key_hash,
            offer.close_period_ms, offer.fee_bps,
        )  # fmt: skip
        opening = Opening(amount, lambda _first, _index: consts, Credential(wallet.stake or b""))
        world.devnet.mint()
        done = await open_channels(world.desk("router"), [opening])
        (ref,) = done.refs
        self.origin = ref.tx_id.hex()
        message = wire.HopOpened(HOP.verify_key, consts.consumer_vkh, self.origin, ref.index + said)
        await self.perform(self.hear(message))
        return Live(HOP, consts, ref, amount)

    async def lease_for(self, ceiling: int = 10 * ADA, rate: int = RATE) -> None:
        """One from its proposal to its running workload."""
        await self.perform(self.hear(self.asked(rate_micro=rate, ceiling=ceiling)))
        assert isinstance(self.answer(), wire.LeaseAccepted), (self.answer(), self.channel.limit)
        await self.perform(self.agreed())
        await self.perform(self.leaf("lease_1", 0))
        await self.perform(self.start())

    async def seconds(self, count: int) -> None:
        """So many are served and paid."""
        for _ in range(count):
            await self.perform(self.tick(pay=False))
            await self.perform(self.pay())

    async def over(self) -> None:
        """The workload ends, and every trace of it."""
        await self.perform(self.exit())
        await self.perform(self.pay())
        self.clear()
        await self.perform(self.do(Passed()))


class Left(Served):
    """Nobody calls its eye to look again."""

    async def perform(self, outcome: Outcome) -> None:
        if outcome.durable:
            self.journal.write(outcome)


def story(folder: Path, body: Callable[[World, Served], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        await body(world, Served.at(world, folder))

    run(main, block_ms=BY_HAND)


def test_a_hop_is_found_relied_upon_by_depth_and_ended_over_what_is_due(tmp_path: Path) -> None:
    async def body(world: World, adapter: Served) -> None:
        live = await adapter.hop_of(world)
        await adapter.look()
        assert adapter.channel.stage is ChannelStage.OPENING  # it waits for its block
        world.devnet.mint()
        await adapter.look()
        seen = adapter.channel
        assert seen.stage is ChannelStage.OPEN and 0 < seen.limit < seen.capacity < 20 * ADA
        assert adapter.declined(adapter.asked(rate_micro=RATE, ceiling=10 * ADA)) == "HOP_UNSEEN"
        world.devnet.mint(15)
        await adapter.look()
        assert adapter.channel.limit == adapter.channel.capacity
        await adapter.lease_for()
        await adapter.seconds(5)
        owed = adapter.lease().owed
        await adapter.perform(adapter.leaf("lease_1", owed + 3 * ADA))  # signed ahead
        await adapter.over()
        due = adapter.channel.due
        assert due == adapter.receipts()[-1].lease_owed < adapter.channel.paid
        await adapter.perform(adapter.hear(wire.EndSent(End.sign(HOP, due))))
        assert adapter.settles()
        adapter.agent.settle(HOP.verify_key)
        await adapter.look()
        world.devnet.mint()
        await adapter.look()
        ended = await world.ended(live)
        assert ended.claimed == due == adapter.channel.claimed  # what was not delivered goes home
        assert await world.balance(adapter.provider.payout_address) == due

    story(tmp_path, body)


def test_a_hop_that_was_seen_too_young_is_looked_at_until_it_can_carry_all(tmp_path: Path) -> None:
    """Not half a minute later: a lease that is proposed meanwhile would go to a channel of its own,
    or nowhere.
    """

    async def body(world: World, adapter: Served) -> None:
        await adapter.hop_of(world)
        left = Left(
            own=replace(adapter.own, rules=Rules(watch_s=30)), chain=world.chain,
            provider=adapter.provider, folder=adapter.folder,
        )  # fmt: skip
        adapter.journal.close()
        left.wake()
        world.devnet.mint()
        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(left.agent.run)
                await until(lambda: left.channel.stage is ChannelStage.OPEN)
                assert left.channel.limit < left.channel.capacity
                world.devnet.mint(15)
                await until(lambda: left.channel.limit == left.channel.capacity)
                tasks.cancel_scope.cancel()

    story(tmp_path, body)


def test_a_hop_at_another_output_than_was_said_is_not_seen(tmp_path: Path) -> None:
    async def body(world: World, adapter: Served) -> None:
        await adapter.hop_of(world, said=1)
        world.devnet.mint(16)
        await adapter.look()
        assert adapter.channel.stage is ChannelStage.OPENING
        assert adapter.declined(adapter.asked()) == "HOP_UNSEEN"

    story(tmp_path, body)


def test_close_out_on_the_ledger(tmp_path: Path) -> None:
    """Its owner closes it mid-lease: the lease ends, and what is due is claimed in time."""

    async def body(world: World, adapter: Served) -> None:
        live = await adapter.hop_of(world)
        world.devnet.mint(16)
        await adapter.look()
        await adapter.lease_for()
        await adapter.seconds(4)
        await close_channel(world.desk("router"), await world.view(live))
        world.devnet.mint()
        await adapter.look()
        assert adapter.lease().reason == "CHANNEL_CLOSING" and adapter.lease().wish is Wish.STOP
        await adapter.perform(adapter.exit(reason=ExitReason.STOPPED, code=137))
        await adapter.perform(adapter.pay())
        adapter.clear()
        due = adapter.channel.due
        assert due == adapter.receipts()[-1].lease_owed
        adapter.killed()  # and an adapter that dies meanwhile takes it all the same
        adapter.agent.settle(HOP.verify_key)
        await adapter.look()
        world.devnet.mint()
        await adapter.look()
        assert (await world.ended(live)).claimed == due

    story(tmp_path, body)


def test_rollback_of_a_hop_on_the_ledger(tmp_path: Path) -> None:
    """A fork takes its open away: nothing more is served upon it, and what was signed is kept."""

    async def body(world: World, adapter: Served) -> None:
        await adapter.hop_of(world)
        world.devnet.mint()
        await adapter.look()
        await adapter.lease_for(ceiling=1_300_000, rate=RATE // 5)
        await adapter.seconds(2)
        world.devnet.rollback(1, drop=True)
        world.devnet.mint(2)
        await adapter.look()
        assert adapter.channel.limit == 0
        await adapter.seconds(1)
        assert adapter.lease().pause is PauseCause.DEPTH
        assert adapter.channel.due == adapter.lease().owed > 0

    story(tmp_path, body)
