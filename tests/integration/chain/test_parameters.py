"""What a chain's door says of the network's parameters is its word: it burns no purse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import connect
from marketplace.client.wallet.chain_wallet import Till
from tests.integration.client.test_one_open import Consumer
from tests.integration.support.chain import ADA, World, run
from tests.integration.support.door import door


def test_a_door_that_asks_for_a_mad_fee_gets_no_signature(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)

        def lies(_method, path, forward):
            status, data, kind = forward()
            if path.endswith("/epochs/latest/parameters"):
                data = json.dumps({**json.loads(data), "min_fee_b": 60 * ADA}).encode()
            return status, data, kind

        with door(world.served.url) as lying:
            lying.keeper = lies
            till = Till(me.purse, await connect(lying.url))
            before = await Till(me.purse, world.chain).balance()
            with pytest.raises(TxRefused, match="fee of"):
                await till.open(me.terms, me.offered.amount)
            world.devnet.mint()
            assert await Till(me.purse, world.chain).balance() == before

    run(story)


def test_a_door_that_asks_for_a_mad_pledge_gets_no_signature(tmp_path: Path) -> None:
    """What is pledged is forfeited when somebody submits the transaction as one whose script
    failed.
    """

    async def story(world: World) -> None:
        me = Consumer.of(world, tmp_path)
        live = await Till(me.purse, world.chain).open(me.terms, me.offered.amount)
        world.devnet.mint()

        def lies(_method, path, forward):
            status, data, kind = forward()
            if path.endswith("/epochs/latest/parameters"):
                data = json.dumps({**json.loads(data), "collateral_percent": 100_000}).encode()
            return status, data, kind

        with door(world.served.url) as lying:
            lying.keeper = lies
            till = Till(me.purse, await connect(lying.url))
            view = await till.look(me.terms.session_vk, live)
            assert isinstance(view, ChannelView)
            with pytest.raises(TxRefused, match="collateral"):
                await till.close_view(view)

    run(story)
