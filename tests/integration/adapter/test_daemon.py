"""A whole adapter against a market's socket: leases, payment, restarts, bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.domain.keys import seal_to
from marketplace.domain.protocol import wire
from marketplace.domain.work.workload import ExitReason
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
from tests.unit.support.adapter import SESSION, core_job

pytestmark = pytest.mark.anyio
RATES = {"lease_1": 10_000_000, "lease_2": 10_000_000, "lease_3": 10_000_000}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_one_job_from_proposal_to_settlement(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld), "the first LeasesHeld")
        assert isinstance(market.heard[0], wire.OfferPosted)
        secret = seal_to(ADAPTER.verify_key, b"token")
        await market.lease(host_offer(), secrets={"HF_TOKEN": secret})
        await market.wait(lambda: len(market.receipts()) >= 3, "three receipts")
        assert world.workloads["lease_1"].spec.secrets == {"HF_TOKEN": "token"}
        world.workloads["lease_1"].log = b"hello\n"
        await market.wait(lambda: market.of(wire.LogChunk), "the log")
        world.end("lease_1", 0, ExitReason.COMPLETED)
        await market.wait(
            lambda: market.receipts() and market.receipts()[-1].final, "the last receipt"
        )
        await market.end()
        await market.wait(lambda: "SETTLED" in market.stages("lease_1"), "SETTLED")
        await market.wait(lambda: not world.workloads, "the workload's removal")
    assert ledger.settled == [SESSION.verify_key]
    stages = [s for s in market.stages("lease_1") if s not in ("PULLING", "STARTING")]
    assert stages == ["CHANNEL_SEEN", "STARTED", "FINISHED", "SETTLED"]
    market.verify(RATES)
    assert b"token" not in (tmp_path / "journal.db").read_bytes()


async def test_unpaid_workloads_freeze_and_thaw(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket(pays=False)
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld))
        await market.lease(host_offer())
        await market.wait(lambda: "PAUSED" in market.stages("lease_1"), "PAUSED")
        await market.wait(lambda: world.workloads["lease_1"].state.name == "PAUSED", "the freeze")
        assert 1 <= len(market.receipts()) <= 2  # a late one holds more than a second
        market.pays = True
        await market.answer(market.of(wire.ReceiptSent)[-1])
        await market.wait(lambda: "RESUMED" in market.stages("lease_1"), "RESUMED")
        await market.wait(lambda: len(market.receipts()) >= 4, "more receipts")
    market.verify(RATES)


async def test_a_job_survives_its_adapter(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url:
        async with running(make_daemon(world, tmp_path, url), ledger):
            await market.wait(lambda: market.of(wire.LeasesHeld))
            await market.lease(host_offer())
            await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
        before = len(market.receipts())
        async with running(make_daemon(world, tmp_path, url), ledger):
            await market.wait(lambda: len(market.receipts()) >= before + 2, "receipts again")
            held = market.of(wire.LeasesHeld)[-1]
            assert isinstance(held, wire.LeasesHeld) and held.leases == ["lease_1"]
            world.end("lease_1", 0, ExitReason.COMPLETED)
            await market.wait(lambda: market.receipts()[-1].final, "the last receipt")
    assert world.starts == ["lease_1"]
    market.verify(RATES)


async def test_a_new_market_gets_what_the_old_one_did_not_acknowledge(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url:
        pass  # its port is kept
    async with running(make_daemon(world, tmp_path, url), ledger):
        async with market_socket(market):
            await market.wait(lambda: market.of(wire.LeasesHeld))
            await market.lease(host_offer())
            await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
        market.session, market.numberings = b"z" * 16, {}
        async with market_socket(market):
            await market.wait(lambda: len(market.receipts()) >= 5, "receipts after the restart")
    market.verify(RATES)


async def test_commands_run_inside_the_workload(tmp_path: Path) -> None:
    world, ledger, market = World(), Ledger(), FakeMarket()
    async with market_socket(market) as url, running(make_daemon(world, tmp_path, url), ledger):
        await market.wait(lambda: market.of(wire.LeasesHeld))
        await market.lease(host_offer(), core_job())
        await market.wait(lambda: "STARTED" in market.stages("lease_1"), "the start")
        await market.send(wire.ExecAsked("lease_1", "c1", ["echo", "hi"]))
        await market.wait(lambda: market.of(wire.ExecDone), "the command's answer")
        done = market.of(wire.ExecDone)[0]
        assert isinstance(done, wire.ExecDone) and done.output == b"echo hi"
