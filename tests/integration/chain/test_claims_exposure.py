"""What a provider can lose to a consumer who keeps claims out of blocks: the adapter's own mind and
its own treasury over a real ledger, blocks of 20 s and a clock that the test moves; a lovelace is
billed for each 20 microseconds of GPU, so that minutes cost as much as days do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.core.events import Alarm, Event, Passed
from adapter.core.state import Channel, Limits, Own, PauseCause, Rules
from adapter.core.wish import Wish
from adapter.journal.journal import Journal
from adapter.money.channel_agent import ChannelAgent
from marketplace.chain.actions.session import settle_planned
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import address as addresses
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import Policy
from tests.integration.support.chain import ADA, BY_HAND, Live, Provider, World, run
from tests.integration.support.spam import BLOCK_MS, HiddenMempool, Spammer, mint, starving
from tests.unit.support.adapter import ADAPTER, Bench, gpu_job, offer

pytestmark = pytest.mark.prove

PER_S = 50_000  # lovelace
RULES = Rules(claim_above=5 * ADA, claim_drained=3 * ADA)
BORNE = RULES.claim_above + RULES.claim_wait_ms // 1000 * PER_S
"""What the configuration lets be at risk on a channel."""
PERIOD_MS = 200_000


@dataclass
class Whole:
    """An adapter's mind, its treasury, and the one lease that it serves; *seconds* since that
    began.
    """

    world: World
    live: Live
    mind: Bench
    treasury: ChannelAgent = field(init=False)
    seconds: int = 0
    alarms: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def channel(self) -> Channel:
        return self.mind.state.channels[self.live.session.verify_key]

    async def handle(self, event: Event) -> None:
        self._note(self.mind.do(event).effects)

    def raised(self, code: str, _text: str = "") -> None:
        self.alarms.setdefault(code, self.seconds)

    def _note(self, effects: tuple[object, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Alarm):
                self.raised(effect.code)

    def serve(self, seconds: int) -> None:
        """As many ticks, each paid at once where the adapter takes it."""
        for _ in range(seconds):
            self.seconds += 1
            self.mind.boot_ms += 1000
            lease = self.mind.state.leases.get("lease_1")
            if lease is not None and lease.runs:
                self._note(self.mind.measure().effects)
                self.mind.pay(session=self.live.session)
            self._note(self.mind.do(Passed()).effects)
            if lease is not None and lease.runs and lease.wish is Wish.STOP:
                self.mind.exit()
                self.mind.clear()


async def serving(world: World, folder: Path, *, hidden: bool) -> tuple[Whole, Spammer, Provider]:
    """A lease that runs and is paid on a deep channel of 300 ADA."""
    _, spam, live, provider = await starving(world, folder, 300 * ADA, PERIOD_MS)
    mint(world, 16)
    supply = offer(
        adapter_vkh=provider.adapter.key_hash, payout=provider.payout, close_period_ms=PERIOD_MS,
        fee_bps=0, gpu_rates={"NVIDIA H100": PER_S * 1_000_000},
    )  # fmt: skip
    whole = Whole(world, live, Bench(own=Own(supply, ADAPTER, Limits(), RULES)))
    chain: ChainReader = HiddenMempool(world.chain) if hidden else world.chain  # pyright: ignore[reportAssignmentType]
    whole.treasury = ChannelAgent(
        chain, provider.adapter, provider.fee, addresses.to_text(provider.payout_address),
        Journal(folder / "whole.db"), whole.handle, lambda vk: whole.mind.state.channels.get(vk), whole.raised,
        rules=RULES,
    )  # fmt: skip
    job = gpu_job(policy=Policy(max_duration_ms=86_400_000))
    whole.mind.propose(
        job, session=live.session, consumer_vkh=live.consts.consumer_vkh,
        rate_micro=PER_S * 1_000_000, ceiling=250 * ADA,
    )  # fmt: skip
    whole.mind.sign(session=live.session, tx=live.ref.tx_id.hex())
    whole.treasury.watch(live.session.verify_key)
    await whole.treasury.look()
    whole.mind.start()
    return whole, spam, provider


def story(body: Callable[[World], Awaitable[None]]) -> None:
    run(body, block_ms=BY_HAND)


def test_with_the_mempool_seen_claims_land_and_the_lease_is_never_paused(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        whole, spam, _ = await serving(world, tmp_path, hidden=False)
        await spam.top_up()
        most = waited = 0
        for _ in range(25):
            mint(world)
            await spam.top_up()
            whole.serve(BLOCK_MS // 1000)
            await whole.treasury.look()
            most = max(most, whole.channel.unclaimed)
            waited = waited + 1 if whole.channel.unclaimed >= RULES.claim_above else 0
            assert waited <= 3  # blocks
        print(f"seen: claimed {whole.channel.claimed} of {whole.channel.due}, most at risk {most}")
        assert whole.mind.lease().state is LeaseState.ACTIVE and not whole.alarms
        assert whole.channel.claimed >= 20 * ADA
        assert most < RULES.claim_above + 3 * BLOCK_MS // 1000 * PER_S

    story(body)


def test_with_the_mempool_hidden_the_lease_pauses_and_the_loss_is_what_was_configured(
    tmp_path: Path,
) -> None:
    async def body(world: World) -> None:
        whole, spam, provider = await serving(world, tmp_path, hidden=True)
        await spam.top_up()
        passed = 0
        while "CLAIM_STARVED" not in whole.alarms and whole.seconds < 1200:
            mint(world)
            await spam.top_up()
            whole.serve(BLOCK_MS // 1000)
            if not passed and whole.channel.unclaimed >= RULES.claim_above:
                passed = whole.seconds
            await whole.treasury.look()
        told = whole.alarms["CLAIM_STARVED"] - passed
        at_risk = whole.channel.unclaimed
        print(f"hidden, open: alarm and pause after {told} s, {at_risk} lovelace due, none claimed")
        assert whole.mind.lease().pause is PauseCause.EXPOSED and told <= 300
        whole.serve(120)
        assert whole.channel.due == at_risk <= BORNE + 2 * PER_S  # nothing more is served

        await spam.close()
        for _ in range(60):
            mint(world)
            await spam.claim()
            whole.serve(BLOCK_MS // 1000)
            whole.treasury.settle(whole.live.session.verify_key)
            await whole.treasury.look()
            if 0 < whole.channel.expire_at_wall_ms <= (await world.chain.tip()).time_ms:
                break
        assert whole.alarms["CLAIM_STARVED"] and "CHANNEL_CLOSING" in whole.alarms
        await _finish(world, spam)
        mint(world)
        ended = await world.ended(whole.live)
        lost = whole.channel.due - ended.claimed
        gifts = await world.balance(provider.payout_address)
        print(
            f"hidden, closing: {lost} lovelace lost of at most {BORNE + 2 * PER_S}; the spammer's"
        )
        print(f"{spam.sent} transactions cost {spam.paid}, {gifts} of it the provider's")
        assert lost <= BORNE + 2 * PER_S

    story(body)


async def _finish(world: World, spam: Spammer) -> None:
    """The consumer's own end, without a voucher, as soon as the contract allows it."""
    snapshot, funds, fresh = await spam.desk.look()
    now = (await world.chain.tip()).time_ms
    batch = Batch((Move(spam.tip, plans.finish_step(None, 0)),), since_ms=now)
    known = {**fresh, spam.tip.ref: spam.tip}
    await settle_planned(spam.desk, plans.settle(snapshot, funds, batch), known, "finish")
