"""What an adapter does for a batch of ends, whatever the market that builds it tries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from adapter.core.events import Settled
from adapter.core.state import Rules
from adapter.journal.journal import Journal
from adapter.money.channel_agent import ChannelAgent
from adapter.money.shared_ends import MOST_ROUNDS
from marketplace.chain.actions.session import close_channel
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import OutRef
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.submit import CONSENT
from marketplace.chain.settlement.next_step import LOSS_WAITS
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.keys import verifies
from marketplace.domain.money.channel import Finish
from marketplace.domain.protocol import codec, wire
from tests.fakes import until
from tests.integration.adapter.test_treasury import Desk, opened, signed
from tests.integration.support.chain import ADA, Live, Provider, World, run

WAIT_MS = 600_000
PAID = 3 * ADA
SMALL = 50_000  # less than its end costs, and no output by itself


class Door:
    """A market that the adapter talks to, and what it said."""

    def __init__(self) -> None:
        self.said: list[wire.Message] = []
        self.up = True

    def can(self, capability: str) -> bool:
        return self.up and capability == codec.ENDS

    def send(self, message: wire.Message, number: int | None = None) -> None:
        self.said.append(message)


class Scene:
    """An adapter with one channel to end, and a market with a purse."""

    def __init__(
        self, world: World, folder: Path, desk: Desk, live: Live, provider: Provider
    ) -> None:
        self.world, self.folder, self.desk = world, folder, desk
        self.live, self.provider, self.door = live, provider, Door()
        self.journal = Journal(folder / "ends.db")
        self.agent = self.again()

    def again(self) -> ChannelAgent:
        """The adapter as it comes up over its journal."""
        desk = self.desk
        self.agent = ChannelAgent(
            self.world.chain, self.provider.adapter, self.provider.fee,
            addresses.to_text(self.provider.payout_address), self.journal, desk.handle, lambda _vk: desk.channel, lambda _code, _text: None,
            rules=Rules(watch_s=1, batch_wait_ms=WAIT_MS), market=self.door,
        )  # fmt: skip
        self.agent.watch(desk.channel.session_vk)
        return self.agent

    async def offered(self) -> wire.EndOffered:
        """The end that it offers."""
        await self.agent.look()
        self.agent.settle(self.desk.channel.session_vk)
        await self.agent.look()
        offer = self.door.said[-1]
        assert isinstance(offer, wire.EndOffered)
        return offer

    async def proposal(self, until_ms: int, paid: int = PAID) -> bytes:
        """What a market builds of it, unsigned."""
        view = await self.world.view(self.live)
        step = Finish(plans.claim_step(self.live.voucher(paid)))
        batch = Batch(
            (Move(view.utxo, step),),
            {self.provider.payout: self.provider.payout_address},
            (self.provider.adapter.key_hash,), until_ms=until_ms, reserve_collateral=True,
        )  # fmt: skip
        desk = self.world.desk("operator")
        snapshot, funds, fresh = await desk.look()
        return (await desk.finish(plans.settle(snapshot, funds, batch).draft, fresh)).bytes

    async def ask(self, tx: bytes) -> wire.Message:
        """Its answer over the way that the link takes."""
        before = len(self.door.said)
        async with anyio.create_task_group() as group:
            group.start_soon(self.agent.run)
            self.agent.heard(wire.EndsProposed("round_1", tx))
            await until(lambda: any(_answers(m) for m in self.door.said[before:]))
            group.cancel_scope.cancel()
        return next(m for m in self.door.said[before:] if _answers(m))

    def purposes(self) -> list[str]:
        return [row.purpose for row in self.journal.transactions()]

    def later(self, ms: int) -> None:
        self.world.devnet.advance(ms)


def _answers(message: wire.Message) -> bool:
    return isinstance(message, (wire.EndsSigned, wire.EndsRefused))


def story(folder: Path, body: Callable[[Scene], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        world.fund("operator", 100 * ADA)
        world.fund("operator", 5 * ADA)
        desk, live, provider = await opened(world, folder)
        desk.channel = signed(desk.channel, live.voucher(PAID))
        await body(Scene(world, folder, desk, live, provider))

    run(main)


def test_what_it_signed_it_remembers_over_a_crash_and_sends_nothing_beside(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        tx = await scene.proposal(offer.until_ms)
        answer = await scene.ask(tx)
        assert isinstance(answer, wire.EndsSigned)
        vk, tx_id = scene.provider.adapter.verify_key, blake2b_256(txbytes.split(tx).body)
        assert answer.verify_key == vk and verifies(vk, tx_id, answer.signature)
        await scene.agent.look()
        agent = scene.again()  # killed, and here again: its link is not up yet
        scene.door.up = False
        agent.settle(scene.desk.channel.session_vk)
        for _ in range(2):
            await agent.look()
        assert scene.purposes() == [CONSENT]
        await scene.world.view(scene.live)
        scene.later(WAIT_MS + 60_000)  # the market never sent it: it goes its own way
        for _ in range(2):
            await agent.look()
        assert scene.purposes() == [CONSENT, "finish"]
        assert isinstance(scene.desk.last(), Settled)
        assert await scene.world.balance(scene.provider.payout_address) == PAID

    story(tmp_path, body)


def test_a_door_that_fails_while_inputs_are_asked_for_is_said_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_ref: OutRef) -> None:
        raise ChainFault("no answer")

    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        tx = await scene.proposal(offer.until_ms)
        with monkeypatch.context() as broken:
            broken.setattr(scene.world.chain, "output", away)
            answer = await scene.ask(tx)
        assert isinstance(answer, wire.EndsRefused) and answer.code == ChainFault.code
        assert isinstance(await scene.ask(tx), wire.EndsSigned)

    story(tmp_path, body)


def test_over_a_restart_it_waits_no_longer_than_it_would_have(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        first = await scene.offered()
        scene.later(WAIT_MS // 2)
        scene.again()
        assert (await scene.offered()).until_ms == first.until_ms

    story(tmp_path, body)


def test_a_debt_that_is_no_output_waits_for_others_and_is_given_up_for_a_batch(
    tmp_path: Path,
) -> None:
    async def body(scene: Scene) -> None:
        scene.desk.channel = signed(scene.desk.channel, scene.live.voucher(SMALL))
        first = await scene.offered()
        assert (first.cumulative, first.take_to) == (SMALL, SMALL)
        scene.later(WAIT_MS)
        second = await scene.offered()
        assert (second.cumulative, second.signature) == (0, b"")
        assert second.until_ms == first.until_ms and scene.purposes() == []
        scene.later(
            LOSS_WAITS * WAIT_MS
        )  # nobody came: the consumer's money comes home all the same
        for _ in range(2):
            await scene.agent.look()
        assert scene.purposes() == ["finish"]

    story(tmp_path, body)


def test_a_market_that_never_answers_delays_it_no_longer_than_it_waits(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.offered()
        await scene.agent.look()
        assert scene.purposes() == []
        scene.later(WAIT_MS)
        for _ in range(2):
            await scene.agent.look()
        assert scene.purposes() == ["finish"] and isinstance(scene.desk.last(), Settled)

    story(tmp_path, body)


def test_a_transaction_that_outlives_its_wait_pays_less_or_more_is_not_signed(
    tmp_path: Path,
) -> None:
    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        cases = {
            "EXPIRY": await scene.proposal(offer.until_ms + 5_000),
            "TWIN": await scene.proposal(offer.until_ms, paid=2 * ADA),
            "BYTES": b"noise",
        }
        for rule, tx in cases.items():
            answer = await scene.ask(tx)
            assert isinstance(answer, wire.EndsRefused) and answer.code == rule
        good = await scene.proposal(offer.until_ms)
        more = scene.live.voucher(PAID + ADA)
        scene.desk.channel = signed(scene.desk.channel, more)  # due since it was offered
        answer = await scene.ask(good)
        assert isinstance(answer, wire.EndsRefused)
        assert answer.code in (
            "CHANNELS",
            "TWIN",
        )  # as it was asked before it offered anew, or after
        assert scene.purposes() == []

    story(tmp_path, body)


def test_what_the_market_repeats_is_signed_once_and_not_without_end(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        tx = await scene.proposal(offer.until_ms)
        answers = [await scene.ask(tx) for _ in range(MOST_ROUNDS + 1)]
        assert all(isinstance(a, wire.EndsSigned) for a in answers[:-1])
        last = answers[-1]
        assert isinstance(last, wire.EndsRefused) and last.code == "ROUNDS"
        assert scene.purposes() == [CONSENT]

    story(tmp_path, body)


def test_a_channel_that_closes_meanwhile_is_ended_at_once(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        tx = await scene.proposal(offer.until_ms)
        assert isinstance(await scene.ask(tx), wire.EndsSigned)
        await close_channel(scene.world.desk("consumer"), await scene.world.view(scene.live))
        answer = await scene.ask(tx)
        assert isinstance(answer, wire.EndsRefused) and answer.code == "RESOLVED"
        for _ in range(2):
            await scene.agent.look()
        assert scene.purposes() == [CONSENT, "finish"] and isinstance(scene.desk.last(), Settled)

    story(tmp_path, body)


def test_an_end_that_the_market_leaves_to_it_is_made_at_once(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        offer = await scene.offered()
        scene.agent.heard(wire.EndDeclined(bytes(32), "NO_BATCH", "another's"))
        await scene.agent.look()
        assert scene.purposes() == []
        scene.agent.heard(wire.EndDeclined(offer.session_vk, "NO_BATCH", "not today"))
        tx = await scene.proposal(offer.until_ms)
        for _ in range(2):
            await scene.agent.look()
        assert scene.purposes() == ["finish"] and isinstance(scene.desk.last(), Settled)
        late = await scene.ask(tx)  # and what is ended is signed for nobody
        assert isinstance(late, wire.EndsRefused)

    story(tmp_path, body)
