"""A cluster's lost member leaves no debt: what its provider told last, nobody answers any more."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from marketplace.market.accounts import standing
from marketplace.market.base.errors import PaymentOwed
from marketplace.market.base.records import Lease
from tests.fakes import until
from tests.integration.market.test_clusters import RULES, crew, hosts
from tests.integration.market.test_faults import at_market
from tests.integration.market.test_gangs import of, posted, run_all, team, whole


@pytest.mark.parametrize("cluster", [True, False])
def test_a_lost_member_that_billed_unpaid_is_no_debt(tmp_path, cluster: bool) -> None:
    rules = RULES if cluster else replace(RULES, resume_window_ms=400)

    async def go() -> None:
        async with at_market(tmp_path, *hosts("a", "b"), settings=rules) as (client, run, _, *made):
            view, keys = await posted(client, crew() if cluster else team(2))
            view = await whole(client, view["id"], "QUOTED")
            leases = await run_all(client, view, keys, *made)
            host = of(tuple(made), leases[0])
            await host.tick(leases[0])
            host.socket.stopped = True
            assert host.socket.live is not None
            await host.socket.live.close()

            async def lost() -> str:
                lease = await run.market.store.get(Lease, leases[0])
                assert lease is not None
                return lease.account if lease.reason == "PROVIDER_LOST" else ""

            account = await until(lost)
            known = await standing.update(
                run.market, account, lambda at: replace(at, owing=[leases[0]])
            )
            if cluster:
                assert not (await standing.check(run.market, known)).owing
            else:
                with pytest.raises(PaymentOwed):
                    await standing.check(run.market, known)

    anyio.run(go)
