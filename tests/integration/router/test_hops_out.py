"""A router's hops out on a devnet: a provider that ends them wears out its own claims, not the purse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marketplace.chain.actions.session import finish_channels
from marketplace.chain.channels.finder import ChannelView
from marketplace.domain.protocol import wire
from marketplace.router.eye import Eye
from marketplace.router.making import HopRests
from marketplace.router.state import Seen
from marketplace.router.supply import Candidate
from tests.fakes import seed
from tests.integration.router.test_on_chain import Road, on_the_road
from tests.integration.support.chain import ADA

pytestmark = pytest.mark.timeout(600)


def test_churn(tmp_path: Path) -> None:
    """Row 26: a provider finishes its hop at once; the router opens no other for what was shown for
    that one, tells why to whoever asks for a route there, and its purse pays nothing more.
    """

    async def story(road: Road) -> None:
        out, turn = await road.out(), road.running.outgoing.turn
        again = [Candidate(road.supply, 10 * ADA)]
        view = await Eye(road.world.chain).find(road.desk.state.hops_out[out])
        assert isinstance(view, ChannelView)
        road.world.fund("provider", 50 * ADA)
        road.mint(1)
        await finish_channels(
            road.world.desk("provider"), [(view, None)],
            {road.provider.payout: road.provider.payout_address}, road.provider.adapter,
        )  # fmt: skip
        road.mint(1)
        await turn(again)
        assert road.desk.state.hops_out[out].seen is Seen.ENDED
        held = await road.running.till.balance()
        for _ in range(5):
            await turn(again)
            road.mint(1)
        assert len(road.desk.state.hops_out) == 1
        assert await road.running.till.balance() == held
        await road.hop_in(20 * ADA)
        with pytest.raises(HopRests):
            await road.trip("lease_1").make()

    on_the_road(tmp_path / "route", story, limits='reopen_ms = "1d"')


def test_hops_that_are_wanted_together_are_opened_by_one_transaction(tmp_path: Path) -> None:
    """The first waits a while for others; all are one transaction, told to each provider."""

    async def story(road: Road) -> None:
        supplies = [
            replace(road.supply, provider=seed(f"provider {n}").verify_key.hex()) for n in range(8)
        ]
        turn = road.running.outgoing.turn
        await turn([Candidate(supplies[0], 0)])
        assert await known(road) == []
        await turn([Candidate(one, 0) for one in supplies])
        assert await known(road) == []
        with anyio.fail_after(60):
            while not await known(road):
                await anyio.sleep(0.1)
                await turn([Candidate(one, 0) for one in supplies])
        road.mint(1)
        await turn([])
        hops = road.desk.state.hops_out.values()
        assert {hop.provider for hop in hops} == {one.provider for one in supplies}
        assert all(hop.seen is Seen.OPEN for hop in hops)
        assert len({hop.tx for hop in hops}) == 1
        assert {hop.index for hop in hops} == set(range(8))
        assert len(await known(road)) == 1
        told = [one.session_vk for one in road.to_provider if isinstance(one, wire.HopOpened)]
        assert sorted(told) == sorted(hop.session_vk for hop in hops)

    on_the_road(tmp_path / "route", story, limits='open_wait_ms = 2000\nhop_out = "10 ADA"')


def test_an_open_of_several_that_the_purse_cannot_pay_opens_those_that_it_can(
    tmp_path: Path,
) -> None:
    """500 ADA, and eight hops of 100: what it holds is opened one by one, the rest waits for more."""

    async def story(road: Road) -> None:
        supplies = [
            replace(road.supply, provider=seed(f"provider {n}").verify_key.hex()) for n in range(8)
        ]
        turn = road.running.outgoing.turn
        for _ in range(6):
            await turn([Candidate(one, 0) for one in supplies])
            road.mint(1)
        seen = [hop.seen for hop in road.desk.state.hops_out.values()]
        assert seen.count(Seen.OPEN) == 4
        assert seen.count(Seen.AWAITED) == 4

    on_the_road(tmp_path / "route", story)


async def known(road: Road) -> list[bytes]:
    """Transactions of the router's purse."""
    return [one.tx_id for one in await road.running.till.log.known()]
