"""The daemon and its members' meshes: made before a start, given the peers of the newest order, told
of, and taken away; with a mesh on paper, and once with a real one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapter.daemon.daemon import Daemon
from adapter.daemon.ports import Mesh
from adapter.mesh import netns
from adapter.mesh.host import MeshHost
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh import (
    Candidate,
    Heard,
    MeshPeer,
    MeshPlace,
    MeshSight,
    PathKind,
    public,
)
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.mesh_relay.serving import listen
from marketplace.mesh_relay.table import Table
from tests.integration.support import images
from tests.integration.support.adapter import (
    FakeMarket,
    Ledger,
    World,
    host_offer,
    make_daemon,
    market_socket,
    running,
)
from tests.integration.support.meshes import heard, host_at, left_of, peer, until
from tests.integration.support.paper_mesh import PaperMesh
from tests.requires import need_mesh
from tests.unit.support.adapter import SESSION, member_job

pytestmark = pytest.mark.anyio
OTHERS = (MeshPeer(0, b"\x01" * 32, public("203.0.113.1", 41_000)), MeshPeer(2, b"\x02" * 32, public("203.0.113.2", 41_000)))  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def adapter(
    folder: Path, mesh: Mesh | None, market: FakeMarket, world: World, ledger: Ledger
) -> AsyncGenerator[Daemon]:
    """One that offers a mesh; on leaving it is cut off as by a kill."""
    async with market_socket(market) as url:
        made = make_daemon(world, folder, url, mesh=mesh, make_offer=lambda: host_offer(mesh=True))
        before = len(market.of(wire.LeasesHeld))
        async with running(made, ledger) as daemon:
            await market.wait(lambda: len(market.of(wire.LeasesHeld)) > before, "its leases")
            daemon.offer_changed()
            await market.wait(lambda: len(market.of(wire.OfferPosted)) > 1, "the offer of a mesh")
            yield daemon


async def order(market: FakeMarket, version: int, verb: Verb, *peers: MeshPeer) -> None:
    said = ClusterOrder("lease_1", version, verb, peers)
    await market.send(wire.OrderSent("lease_1", SignedOrder.sign(SESSION, said)))


def sights(market: FakeMarket) -> list[MeshSight]:
    return [m.sight.sight for m in market.heard if isinstance(m, wire.MeshSeen)]


async def seen(market: FakeMarket, version: int, *members: int) -> None:
    """Until a sight of that order hears just those."""

    def told() -> bool:
        now = sights(market)[-1:]
        return bool(now) and (now[0].version, now[0].members) == (version, frozenset(members))

    await market.wait(told, f"a sight of order {version} with {members}: {sights(market)[-1:]}")


async def test_a_mesh_is_there_before_its_workload_and_follows_each_order(tmp_path: Path) -> None:
    mesh, market, world = PaperMesh(), FakeMarket(), World()
    mesh.hears = {0, 2}
    async with adapter(tmp_path, mesh, market, world, Ledger()) as daemon:
        await market.lease(host_offer(), member_job(1, mesh=True))
        await market.wait(lambda: "STARTED" in market.stages("lease_1"), "its start")
        kinds = [_stage(m) or type(m).__name__ for m in market.heard]
        assert kinds.index("MeshPlaced") < kinds.index("STARTED")
        await order(market, 1, Verb.MEET, *OTHERS)
        await seen(market, 1, 0, 2)
        await order(market, 2, Verb.RUN, *OTHERS)
        await seen(market, 2, 0, 2)
        mesh.hears = {2}
        await seen(market, 2, 2)
        await order(market, 3, Verb.RUN, OTHERS[1])
        await seen(market, 3, 2)
        assert mesh.peers["lease_1"] == (OTHERS[1],)
        numbers = [one.number for one in sights(market)]
        assert numbers == sorted(set(numbers))
        await market.end()
        await _until(lambda: mesh.leases == {})
        assert list(daemon.alarms) == []


async def test_an_order_that_comes_while_others_are_measured_is_never_told_of_by_them(
    tmp_path: Path,
) -> None:
    """Else a stranger's answer of before would pass for that of the key which is named now."""

    class Slow(PaperMesh):
        def hear(self, lease: str, wait_s: float) -> tuple[Heard, ...]:
            found = super().hear(lease, wait_s)
            if found:
                at.set()
                go.wait(10)
            return found

    at, go = threading.Event(), threading.Event()
    mesh, market = Slow(), FakeMarket()
    mesh.hears = {0, 2}
    async with adapter(tmp_path, mesh, market, World(), Ledger()):
        await market.lease(host_offer(), member_job(1, mesh=True))
        await order(market, 1, Verb.MEET, *OTHERS)
        assert await anyio.to_thread.run_sync(at.wait, 10)
        mesh.hears = set()
        await order(market, 2, Verb.MEET, MeshPeer(0, b"\x03" * 32, public("203.0.113.1", 41_000)))
        await market.wait(lambda: _ordered(market) == [1, 2], "the order")
        go.set()
        await seen(market, 2)
        assert all(not one.members for one in sights(market) if one.version == 2)


async def test_what_an_earlier_run_left_for_no_lease_goes_and_a_fault_is_tried_again(
    tmp_path: Path,
) -> None:
    mesh, market = PaperMesh("lease_old"), FakeMarket()
    mesh.broken = True
    async with adapter(tmp_path, mesh, market, World(), Ledger()) as daemon:
        await _until(lambda: [one[1] for one in daemon.alarms] == ["MESH_FAULT"])
        mesh.broken = False
        await _until(lambda: mesh.leases == {})


async def test_a_mesh_that_breaks_is_made_again_and_told_of(tmp_path: Path) -> None:
    mesh, market = PaperMesh(), FakeMarket()
    mesh.hears = {0, 2}
    async with adapter(tmp_path, mesh, market, World(), Ledger()):
        await market.lease(host_offer(), member_job(1, mesh=True))
        await order(market, 1, Verb.RUN, *OTHERS)
        await seen(market, 1, 0, 2)
        before, mesh.broken = mesh.ups, True
        await anyio.sleep(2.5)
        mesh.broken, mesh.hears = False, {0}
        await seen(market, 1, 0)
        assert mesh.ups > before


async def test_a_real_member_is_placed_heard_cut_off_and_taken_up_after_a_kill(
    tmp_path: Path,
) -> None:
    market, world, ledger, job = FakeMarket(), World(), Ledger(), member_job(1, mesh=True)
    other = member_job(0, mesh=True).seat
    assert other is not None
    with host_at(tmp_path / "other", need_mesh()) as there, host_at(tmp_path, need_mesh()) as mesh:
        lease, name = images.lease_id(), netns.name_of("lease_1", mesh._adapter)
        met = peer(0, there.up(lease, other))
        async with adapter(tmp_path, mesh, market, world, ledger):
            await market.lease(host_offer(), job)
            await market.wait(lambda: market.of(wire.MeshPlaced), "its place")
            place = _place(market)
            there.meet(lease, [place.peer(1)])
            await order(market, 1, Verb.RUN, met)
            await seen(market, 1, 0)
            assert await anyio.to_thread.run_sync(lambda: until(lambda: heard(there, lease) == [1]))
        mesh.close()
        assert left_of(name), "it outlives its adapter"
        again = MeshHost(tmp_path, mesh._adapter, mesh.reach)
        market.heard.clear()
        async with adapter(tmp_path, again, market, world, ledger):
            await market.wait(lambda: market.of(wire.MeshPlaced), "its place")
            assert _place(market) == place
            await seen(market, 1, 0)
            await order(market, 2, Verb.RUN)
            await seen(market, 2)
            gone = await anyio.to_thread.run_sync(lambda: until(lambda: heard(there, lease) == []))
            assert gone, "whom no order names is cut off"
            await market.end()
            await _until(lambda: left_of(name) == [])
        again.close()


async def test_behind_a_nat_a_member_is_placed_by_what_its_markets_relay_sees(
    tmp_path: Path,
) -> None:
    """And placed again once the market gave it leave to use that; strangers' leave changes
    nothing.
    """
    market, here = FakeMarket(), need_mesh()
    first = random.randint(20, 59) * 1000 + 500
    place = RelayPlace(here, first, 4, b"s" * 32)
    job = member_job(1, mesh=True)
    with host_at(tmp_path, "") as mesh:
        ports = await listen(Table(place.secret, 4), here, first, 4)
        try:
            async with adapter(tmp_path, mesh, market, World(), Ledger()):
                await market.lease(host_offer(), job)
                await market.wait(lambda: market.of(wire.MeshPlaced), "its place")
                assert _place(market).candidates == ()
                now = time.time_ns() // 1_000_000
                forged = replace(place, secret=b"f" * 32).give("gang_1", 1, 1, now)
                await market.send(wire.MeshRelay("lease_1", forged))
                await anyio.sleep(0.5)
                assert _place(market).candidates == ()
                given = place.give("gang_1", 1, 1, now)
                await market.send(wire.MeshRelay("lease_1", given))
                await market.wait(lambda: _place(market).candidates, "another place")
                kinds = {one.kind: one.endpoint for one in _place(market).candidates}
                assert kinds == {PathKind.RELAY: here, PathKind.SEEN: here}
                assert Candidate(PathKind.RELAY, here, first + 1) in _place(market).candidates
                await market.end()
        finally:
            for port in ports:
                port.close()


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(15):
        while not holds():  # noqa: ASYNC110  what it looks at tells nobody
            await anyio.sleep(0.02)


def _place(market: FakeMarket) -> MeshPlace:
    return [m.place.place for m in market.heard if isinstance(m, wire.MeshPlaced)][-1]


def _stage(message: wire.Message) -> str:
    return message.stage if isinstance(message, wire.LeaseProgress) else ""


def _ordered(market: FakeMarket) -> list[object]:
    told = [m for m in market.heard if isinstance(m, wire.LeaseProgress) and m.stage == "ORDERED"]
    return [m.detail["version"] for m in told]
