"""An adapter whose hot key cannot pay for a Finish takes no new lease, says so, and takes them
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.core.events import Purse
from adapter.journal.journal import Journal
from marketplace.chain.encoding import address as addresses
from tests.integration.adapter.test_treasury import Desk
from tests.integration.support.chain import ADA, BY_HAND, Provider, World, run


def test_it_says_so_and_takes_it_back_once_it_is_funded(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        provider = Provider("poor")
        world.fund("consumer", 100 * ADA)
        world.devnet.mint()
        live = (await world.open("consumer", provider, [20 * ADA]))[0]
        world.devnet.mint()
        desk = Desk(world, live, provider, Journal(tmp_path / "journal.db"))
        hot = addresses.to_text(addresses.key_address(provider.adapter.key_hash, None, False))

        def said() -> list[bool]:
            return [bool(e.short) for e in desk.events if isinstance(e, Purse)]

        await desk.treasury.look()
        await desk.treasury.look()
        assert said() == [True] and set(desk.alarms) == {"FEES_SHORT"}
        assert hot in next(e.short for e in desk.events if isinstance(e, Purse))
        world.devnet.faucet(hot, 3 * ADA)
        world.devnet.mint()
        await desk.treasury.look()
        assert said()[-1]  # not enough for the collateral
        world.devnet.faucet(hot, 7 * ADA)
        await desk.treasury.look()
        assert said()[-1]  # in no block yet
        world.devnet.mint()
        await desk.treasury.look()
        assert not said()[-1]
        before = len(desk.alarms)
        await desk.treasury.look()
        assert len(desk.alarms) == before and not said()[-1]

    run(body, block_ms=BY_HAND)


@pytest.mark.prove
def test_what_the_rehearsal_finds_enough_pays_for_the_dearest_finish(tmp_path: Path) -> None:
    """The least money with which leases are taken, found by trying, finishes a channel of a
    lovelace.
    """

    async def body(world: World) -> None:
        provider = Provider("frugal")
        world.fund("consumer", 100 * ADA)
        world.devnet.mint()
        live = (await world.open("consumer", provider, [20 * ADA]))[0]
        world.devnet.mint()
        desk = Desk(world, live, provider, Journal(tmp_path / "journal.db"))
        hot = addresses.to_text(addresses.key_address(provider.adapter.key_hash, None, False))
        world.devnet.faucet(hot, 5 * ADA)
        for _ in range(30):
            await desk.treasury.look()
            if "FEES_SHORT" not in desk.alarms:
                break
            desk.alarms.clear()
            world.devnet.faucet(hot, ADA)
            world.devnet.mint()
        held = await world.balance(addresses.from_text(hot))
        print(f"leases are taken from {held / ADA} ADA on")
        assert held <= 10 * ADA
        from tests.integration.adapter.test_treasury import signed

        desk.channel = signed(desk.channel, live.voucher(1))
        desk.treasury.settle(desk.channel.session_vk)
        await desk.treasury.look()
        world.devnet.mint()
        assert (await world.ended(live)).claimed == 1

    run(body, block_ms=BY_HAND)
