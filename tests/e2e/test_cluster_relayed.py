"""Members of a cluster whose hosts nobody reaches, of real adapters end to end: their market's relay
carries what they say to each other.
"""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest

from marketplace.client.sdk.cluster import standing
from marketplace.client.sdk.market import Market
from marketplace.domain.money.keep import AT_ONCE
from marketplace.domain.work.mesh import PathKind
from tests.e2e.support.clusters import Processes, Watched, ticked
from tests.e2e.support.embedded import PURSE, embedded
from tests.e2e.test_cluster_mesh import all_met, meshed
from tests.requires import need_bubblewrap, need_devnet, need_mesh

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(200)]


class BehindNats(Processes):
    """Adapters that nobody reaches by an address of theirs."""

    def _config(self, name: str) -> Path:
        path = super()._config(name)
        own = f'endpoint = "{need_mesh()}"'
        assert own in path.read_text()
        path.write_text(path.read_text().replace(own, 'endpoint = "nat"'))
        return path


def test_members_behind_nats_meet_by_their_markets_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap()
    need_devnet()
    first = random.randint(20, 59) * 1000 + 700
    monkeypatch.setenv("TALLY_MESH", f"{need_mesh()}:{first}-{first + 3}")

    async def tell(market: Market) -> None:
        one = Watched(await market.run_gang(meshed("behind", 2, least=2)))
        await one.until_said("running")
        jobs = one.gang.members
        await all_met(jobs)
        found = await standing(market, jobs[0].id)
        paths = {(who.member, to.member): to.path for who in found.members for to in who.hears}
        assert paths == {(0, 1): PathKind.RELAY, (1, 0): PathKind.RELAY}
        await ticked(market, jobs, 1)
        await one.finish()

    async def main() -> None:
        with anyio.fail_after(150):
            async with embedded(tmp_path, BehindNats) as made:
                await made.start_adapter("adapter2")
                purse = await made.consumer(PURSE)
                async with Market(
                    made.market_url, wallet=purse, chain_url=made.chain_url, keep=AT_ONCE
                ) as market:
                    await tell(market)

    anyio.run(main)
