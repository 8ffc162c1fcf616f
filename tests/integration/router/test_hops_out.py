"""A router's hops out on a devnet: a provider that ends them wears out its own claims, not the purse."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.chain.actions.session import finish_channels
from marketplace.chain.channels.finder import ChannelView
from marketplace.router.eye import Eye
from marketplace.router.making import HopRests
from marketplace.router.state import Seen
from marketplace.router.supply import Candidate
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
