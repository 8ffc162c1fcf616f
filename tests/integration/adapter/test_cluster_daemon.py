"""A cluster's member over a market's socket: unbilled until its consumer has it run, frozen while
that holds it, and told so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.domain.protocol import codec, wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import public
from tests.integration.support.adapter import (
    ADAPTER,
    FakeMarket,
    Ledger,
    World,
    host_offer,
    make_daemon,
    market_socket,
    running,
)
from tests.integration.support.paper_mesh import PaperMesh
from tests.unit.support.adapter import SESSION, member_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def order(market: FakeMarket, version: int, verb: Verb) -> None:
    """The consumer's order, passed on; until it is answered."""
    signed = SignedOrder.sign(SESSION, ClusterOrder("lease_1", version, verb))
    await market.send(wire.OrderSent("lease_1", signed))
    await market.wait(lambda: ordered(market)[-1:] == [(str(verb), version)], f"{verb} taken")


def ordered(market: FakeMarket) -> list[tuple[object, object]]:
    told = [m for m in market.heard if isinstance(m, wire.LeaseProgress) and m.stage == "ORDERED"]
    return [(m.detail["verb"], m.detail["version"]) for m in told]


async def test_a_member_assembles_runs_stands_and_runs_on(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
        await market.lease(host_offer(), member_job())
        await market.wait(lambda: len(market.of(wire.Telemetry)) >= 3, "readings")
        assert market.receipts() == [] and "PAUSED" not in market.stages("lease_1")
        await order(market, 1, Verb.RUN)
        await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
        await order(market, 2, Verb.HOLD)
        work = world.workloads["lease_1"]
        await market.wait(lambda: work.state.name == "PAUSED", "the freeze")
        held, seen = market.receipts()[-1], len(market.of(wire.Telemetry))
        await market.wait(lambda: len(market.of(wire.Telemetry)) >= seen + 3, "readings")
        assert market.receipts()[-1] == held
        await order(market, 3, Verb.RUN)
        await market.wait(lambda: work.state.name == "RUNNING", "the thaw")
        await market.wait(lambda: market.receipts()[-1].seq > held.seq, "a receipt")
        lost = {part.cause for receipt in market.receipts() for part in receipt.lost}
        assert {"assembling", "group_stalled"} <= lost
    market.verify({"lease_1": 10_000_000})


async def test_what_its_mesh_says_reaches_the_market_again_after_a_break(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    offered = host_offer(mesh=True)
    async with market_socket(market) as url:
        mesh = PaperMesh()
        made = make_daemon(world, tmp_path, url, make_offer=lambda: offered, mesh=mesh)
        async with running(made, ledger) as daemon:
            await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
            daemon.offer_changed()
            await market.wait(lambda: len(market.of(wire.OfferPosted)) > 1, "the offer of a mesh")
            await market.lease(host_offer(), member_job(1, mesh=True))
            await market.wait(lambda: market.of(wire.MeshPlaced), "where it is reached")
            await market.wait(lambda: market.of(wire.MeshSeen), "whom it hears")
            assert market.socket is not None
            await market.socket.close()
            await market.wait(lambda: len(market.of(wire.LeasesHeld)) > 1, "the adapter again")
            await market.wait(lambda: len(market.of(wire.MeshSeen)) > 1, "whom it heard")
    place, sight = market.of(wire.MeshPlaced)[-1], market.of(wire.MeshSeen)[-1]
    assert isinstance(place, wire.MeshPlaced) and isinstance(sight, wire.MeshSeen)
    place.place.verify(ADAPTER.verify_key)
    sight.sight.verify(ADAPTER.verify_key)
    assert place.place.place.candidates == public("203.0.113.9", 41_000)
    assert sight.sight.sight.number == 1


async def test_a_market_of_an_older_version_gets_no_member_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tuple(one for one in codec.CAPABILITIES if one != codec.CLUSTER)
    monkeypatch.setattr(codec, "CAPABILITIES", older)
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
        with pytest.raises(AssertionError, match="CLUSTERS_REFUSED"):
            await market.lease(host_offer(), member_job())
