"""``kill -9`` of the router's process in the middle of a lease that it pays (row 14): the lease goes
on or ends for a stated reason, nobody signs or pays twice, and what is withheld stays within a tick.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.domain.money.route.fee import fee
from marketplace.domain.work.lease import EndReason
from marketplace.router.journal import peek
from tests.e2e.routing.test_routed_job import HOP_FEE, with_hops
from tests.e2e.support.embedded import (
    PATIENCE_S,
    World,
    command,
    job_file,
    newest_job,
    settled_bill,
    story,
    tally,
    until_ended,
)

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
STATED = frozenset(EndReason)
TICK = 3  # lovelace: what the embedded provider asks a second of such a job


async def mid_lease(world: World) -> None:
    """A lease over the router that is killed and started again; then its bill."""
    env = world.place.environment
    await with_hops(env)
    file = job_file(world.folder, world.place.image, 8)
    asked = ("job", "run", str(file), "--yes", "--json", "--route", "routed")
    async with command(*asked, env=env) as client:
        await client.until(lambda it: "line 2" in it.err)
        await world.kill("market")
        await world.restart("market")
        await client.ended()
        assert client.last["reason"] in STATED, str(client)
    name = (await newest_job(world))["id"]
    await until_ended(world, name)
    ended = await tally("channel", "close", "--all", "--yes", "--json", env=env)
    assert ended.process.returncode == 0, str(ended)
    bill = (await settled_bill(world, name)).to_json()
    (route,), (hop,) = bill["routes"], bill["hops"]
    assert bill["owed"] > 0
    assert route["reached"] <= bill["owed"]
    assert route["withheld"] <= TICK
    assert bill["owed"] - route["reached"] <= 2 * TICK  # what the provider may have lost
    most = bill["owed"] + fee(bill["owed"], route["route_bps"])
    assert hop["claimed"] == hop["due"] <= HOP_FEE + most, bill
    state = peek(world.place.home / "market" / "route" / "journal.jsonl")
    assert not state.book.forked
    (paying,) = state.book.hops_out.values()
    assert paying.total == route["reached"]


def test_the_router_is_killed_in_mid_lease(tmp_path: Path) -> None:
    story(tmp_path, mid_lease, routes=True)
