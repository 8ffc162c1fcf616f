"""What the owner sees and says: the status socket, drain, metrics; bytes in and out; the
footprint.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapter.config import load
from adapter.daemon import metrics
from adapter.daemon.reload import Settings
from adapter.daemon.status import (
    AdapterSilent,
    ReloadRefused,
    StatusSocket,
    UnknownRequest,
    ask,
    sparkline,
)
from adapter.daemon.transfers import PART
from marketplace.domain.isolation import Isolation
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import FileIn, Placement, Port
from marketplace.domain.work.workload import WorkloadState
from tests.fakes import until
from tests.integration.support.adapter import (
    FakeMarket,
    Ledger,
    World,
    host_offer,
    make_daemon,
    market_socket,
    running,
)
from tests.unit.support.adapter import core_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def metric(text: str, name: str) -> float:
    """One sample of a scrape."""
    found = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
    assert len(found) == 1, name
    return float(found[0])


def page(url: str) -> str:
    """What is served there."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


async def first_answer(path: Path) -> dict[str, Any]:
    """What the socket says once it listens: its file is there a little before."""
    said: list[dict[str, Any]] = []

    async def answers() -> bool:
        try:
            said.append(await ask(path))
        except AdapterSilent:
            return False
        return True

    await until(answers)
    return said[-1]


async def test_status_drain_and_metrics(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url:
        daemon = make_daemon(world, tmp_path, url)
        path = tmp_path / "a.sock"
        async with running(daemon, ledger), anyio.create_task_group() as group:
            group.start_soon(StatusSocket(daemon, path, lambda: {"fee_address": "addr"}).run)
            await market.wait(lambda: market.of(wire.LeasesHeld))
            idle = await first_answer(path)
            assert idle["why_no_work"] and idle["market"]["connected"] and idle["leases"] == []
            await market.lease(host_offer())
            await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
            await market.wait(lambda: daemon.state.channels and any(
                c.paid for c in daemon.state.channels.values()), "a voucher")  # fmt: skip
            busy = await ask(path)
            assert busy["leases"][0]["state"] == "ACTIVE"
            assert busy["why_no_work"] == []
            assert busy["earned"] > 0 and busy["unclaimed"] == busy["earned"]
            server, _thread = metrics.serve(daemon, 0)
            try:
                port = server.server_address[1]
                text = await anyio.to_thread.run_sync(  # pyright: ignore[reportAttributeAccessIssue]
                    page, f"http://127.0.0.1:{port}/metrics"
                )
            finally:
                server.shutdown()
                server.server_close()
            assert metric(text, "tally_adapter_connected") == 1
            assert metric(text, "tally_adapter_unclaimed_lovelace") > 0
            drained = await ask(path, "drain")
            assert drained["draining"]
            await market.wait(
                lambda: any(isinstance(m, wire.OfferPosted) and m.draining for m in market.heard),
                "the drained offer",
            )
            assert not (await ask(path, "undrain"))["draining"]
            with pytest.raises(UnknownRequest):
                await ask(path, "reboot")
            group.cancel_scope.cancel()
    with pytest.raises(AdapterSilent):
        await ask(path)


async def test_a_price_that_is_reloaded_is_in_the_next_offer_and_in_no_running_lease(
    tmp_path: Path,
) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    file = tmp_path / "adapter.toml"
    file.write_text('[prices]\ncore = "6 lovelace"\n')
    settings = Settings(load(file, {}, {}), lambda: load(file, {}, {}))
    async with market_socket(market) as url:
        daemon = make_daemon(
            world, tmp_path, url,
            make_offer=lambda: replace(
                host_offer(), core_rate=settings.now.prices.core_rate or 0
            ),
        )  # fmt: skip
        settings.changed = daemon.offer_changed
        path = tmp_path / "a.sock"
        async with running(daemon, ledger), anyio.create_task_group() as group:
            socket = StatusSocket(daemon, path, reload=settings.reload)
            group.start_soon(socket.run)
            await market.wait(lambda: market.of(wire.LeasesHeld))
            await first_answer(path)
            await market.lease(host_offer())
            await market.wait(lambda: len(market.receipts()) >= 1, "receipts")
            before = (await ask(path))["leases"][0]["rate"]
            file.write_text('[prices]\ncore = "5 lovelace"\n')
            assert (await ask(path, "reload"))["applied"] == ["prices"]
            await market.wait(
                lambda: any(
                    isinstance(m, wire.OfferPosted) and m.offer.core_rate == 5_000_000
                    for m in market.heard
                ),
                "the new price",
            )
            assert (await ask(path))["leases"][0]["rate"] == before
            file.write_text('[prices]\ncore = "much"\n')
            with pytest.raises(ReloadRefused, match="CONFIG_REFUSED"):
                await ask(path, "reload")
            assert settings.now.prices.core_rate == 5_000_000
            group.cancel_scope.cancel()


def test_a_sparkline_has_a_character_a_second() -> None:
    assert sparkline([0, 500, 1000]) == "▁▄█"


class FileMarket(FakeMarket):
    """A market that also gives files."""

    blobs: dict[str, bytes]

    async def answer(self, message: wire.Message) -> None:
        """A part of a blob, as asked."""
        await super().answer(message)
        if isinstance(message, wire.BlobWanted):
            data = self.blobs.get(message.sha256, b"")
            part = data[message.offset : message.offset + message.length]
            await self.send(
                wire.BlobPart(message.lease, message.sha256, message.offset, len(data), part)
            )


async def test_files_come_in_parts_and_are_checked(tmp_path: Path) -> None:
    content = bytes(range(256)) * (PART // 256) + b"the end"
    digest = hashlib.sha256(content).hexdigest()
    job = replace(core_job(), files=(FileIn("data.bin", digest, len(content)),))
    world, ledger, market = World(), Ledger(), FileMarket()
    market.blobs = {digest: content}
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld))
        await market.lease(host_offer(), job)
        await market.wait(lambda: "STARTED" in market.stages("lease_1"), "the start")
        assert world.workloads["lease_1"].spec.files == {"data.bin": content}


async def test_a_file_that_is_not_what_its_hash_says_starts_nothing(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"good").hexdigest()
    job = replace(core_job(), files=(FileIn("data.bin", digest, 4),))
    world, ledger, market = World(), Ledger(), FileMarket()
    market.blobs = {digest: b"evil"}
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld))
        await market.lease(host_offer(), job)
        await market.wait(lambda: "FINISHED" in market.stages("lease_1"), "the refusal")
    last = [m for m in market.of(wire.LeaseProgress) if isinstance(m, wire.LeaseProgress)][-1]
    assert last.detail["reason"] == "START_FAILED" and "FILE_MISSING" in last.detail["message"]
    assert world.starts == [] and market.receipts() == []


async def test_a_port_of_the_workload_is_reached_through_the_market(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()

    async def echo(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send(data.upper())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    contained = replace(
        core_job(), placement=Placement(isolation=Isolation.CONTAINER), image="sha256:" + "a" * 64
    )
    job = replace(contained, ports=(Port(8888),))
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, echo)
            await market.wait(lambda: market.of(wire.LeasesHeld))
            await market.lease(host_offer(), job)
            await market.wait(lambda: "STARTED" in market.stages("lease_1"), "the start")
            world.workloads["lease_1"].handle.ports[8888] = ("127.0.0.1", port)
            await market.send(wire.StreamOpened("lease_1", "s1", 8888))
            await market.send(wire.StreamData("lease_1", "s1", b"hello"))
            await market.wait(
                lambda: wire.StreamData("lease_1", "s1", b"HELLO") in market.heard, "the echo"
            )
            await market.send(wire.StreamClosed("lease_1", "s1", ""))
            await market.wait(lambda: market.of(wire.StreamClosed), "the close")
            await market.send(wire.StreamOpened("lease_1", "s2", 9))
            await market.wait(lambda: len(market.of(wire.StreamClosed)) == 2, "the refusal")
            group.cancel_scope.cancel()


async def test_a_market_that_goes_away_pauses_and_resumes(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url:
        pass
    async with running(make_daemon(world, tmp_path, url), ledger) as daemon:
        async with market_socket(market):
            await market.wait(lambda: market.of(wire.LeasesHeld))
            await market.lease(host_offer())
            await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
        await market.wait(
            lambda: world.workloads["lease_1"].state is WorkloadState.PAUSED, "the freeze"
        )
        lease = daemon.lease("lease_1")
        assert lease is not None and lease.pause == "OFFLINE"
        before = len(market.receipts())
        async with market_socket(market):
            await market.wait(lambda: "RESUMED" in market.stages("lease_1"), "RESUMED")
            await market.wait(lambda: len(market.receipts()) >= before + 3, "receipts again")
    market.verify({"lease_1": 10_000_000})


def test_an_adapter_never_loads_the_markets_side() -> None:
    code = (
        "import sys, adapter.main\n"
        "bad = {'fastapi', 'numpy', 'sqlmodel', 'sqlalchemy', 'uvicorn'} & set(sys.modules)\n"
        "ours = [m for m in sys.modules if m.startswith(('marketplace.market', 'marketplace.store',"
        " 'marketplace.api', 'marketplace.hub', 'marketplace.matching', 'marketplace.client'))]\n"
        "assert not bad and not ours, (bad, ours)\n"
        "rss = next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS'))\n"
        "assert rss < 120 * 1024, rss\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
