"""The chain's door fails, or a market says nonsense, while an open that was handed over is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from adapter.core.wish import Wish
from marketplace.chain.node.blockfrost import connect
from marketplace.domain.money.channel_stage import ChannelStage
from tests.integration.adapter.test_before_the_block import story
from tests.integration.support.chain import World
from tests.integration.support.door import Answer, door
from tests.integration.support.handed import Adapter, Handed, deep


def test_a_door_that_fails_while_the_inputs_are_asked_for_stops_nothing(tmp_path: Path) -> None:
    """Its lease waits for a block, and the eye on all other channels goes on."""

    def broken(method: str, path: str, forward: Callable[[], Answer]) -> Answer | None:
        if method == "GET" and path.endswith("/utxos") and "/txs/" in path:
            return 500, b'{"status_code": 500, "error": "x", "message": "y"}', "application/json"
        return forward()

    async def body(world: World) -> None:
        with door(world.served.url) as between:
            adapter = Adapter.at(world, tmp_path, chain=await connect(between.url))
            await deep(world, "consumer")
            handed = await Handed.by(world, adapter)
            between.keeper = broken
            await handed.over()
            assert adapter.refused() == ["CHAIN_FAULT"]

    story(body)


def test_an_open_that_was_refused_once_is_followed_when_it_is_taken_after_all(
    tmp_path: Path,
) -> None:
    """A door that is full refuses it; handed over again it is taken, served, and not void."""
    full: list[bool] = [True]

    def once(method: str, path: str, forward: Callable[[], Answer]) -> Answer | None:
        if method == "POST" and path.endswith("/tx/submit") and full and full.pop():
            return 400, b'{"status_code": 400, "error": "x", "message": "full"}', "application/json"
        return forward()

    async def body(world: World) -> None:
        with door(world.served.url) as between:
            adapter = Adapter.at(world, tmp_path, chain=await connect(between.url))
            await deep(world, "consumer")
            handed = await Handed.by(world, adapter)
            consumer = world.wallet("consumer").signer
            await adapter.quote(consumer, handed.session, "lease_2")
            between.keeper = once
            await handed.over()
            assert adapter.refused() == ["OPEN_CONFLICT"]
            await adapter.signed(handed.session, handed.tx.tx_id, handed.tx.bytes, "lease_2")
            assert adapter.lease().wish is Wish.RUN
            await adapter.look()
            young = adapter.channel(handed.session).young
            assert young is not None and not young.void
            assert "OPEN_VOID" not in adapter.alarms
            world.devnet.mint()
            await adapter.look()
            assert adapter.channel(handed.session).stage is ChannelStage.OPEN

    story(body)
