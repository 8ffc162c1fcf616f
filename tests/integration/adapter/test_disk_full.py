"""A real file system that fills up under the books: a tmpfs of a few hundred kilobytes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from adapter.journal.journal import Journal as AdapterJournal
from marketplace.chain.node.submit import FileLog
from marketplace.client.payer.journal import peek
from marketplace.client.sdk.market import Market
from marketplace.disk import DiskFault, DiskFull
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.protocol import codec, wire
from tests.fakes import FakeAdapter, FakePayer, offer, seed, working
from tests.fakes import spec as small_spec
from tests.integration.market.test_spine import body, quoted, sign
from tests.integration.support import adapter as adapters
from tests.integration.support.client import World, spec, story, until
from tests.integration.support.disk import fill, small
from tests.integration.support.market import sign_in
from tests.unit.chain.test_bytes_and_log import _record  # pyright: ignore[reportPrivateUsage]
from tests.unit.client.test_payer_journal import VK
from tests.unit.support.adapter import Bench
from tests.unit.support.disk import BadDisk
from tests.unit.test_disk import paid_is_known, pay


def test_books_on_a_full_file_system_are_whole_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    with small(tmp_path / "small", 640) as folder:
        pay(folder / "payer", BadDisk(), sent := [])
        log = FileLog(folder / "log.jsonl")
        anyio.run(log.put, _record(1))
        bench = Bench().running()
        for _ in range(3):
            bench.tick()
        outcomes = [outcome for outcome in bench.outcomes if outcome.durable]
        journal = AdapterJournal(folder / "adapter" / "journal.db")
        done = 0
        for outcome in outcomes[: len(outcomes) // 2]:
            journal.write(outcome)
            done += 1
        other = fill(folder)
        with pytest.raises(DiskFull, match=r"No space left.*|.*could not"):
            for _ in range(200):  # what is left of a page is still taken
                pay(folder / "payer", BadDisk(), sent, seconds=40)
        with pytest.raises(DiskFull):
            for number in range(2, 40):
                anyio.run(log.put, _record(number))
        with pytest.raises(DiskFault):
            for outcome in outcomes[done:]:
                journal.write(outcome)
                done += 1
        journal.close()
        assert peek(folder / "payer", VK).book.signed >= max(sent)  # readable while it is full
        other.unlink()
        paid_is_known(folder / "payer", sent)
        again = FileLog(folder / "log.jsonl")
        anyio.run(again.put, _record(41))
        assert {"test 1", "test 41"} <= {r.purpose for r in anyio.run(again.pending)}
        journal = AdapterJournal(folder / "adapter" / "journal.db")
        journal.load()
        stored = len(journal.ticks("lease_1"))
        assert stored == sum(len(outcome.ticks) for outcome in outcomes[:done])
        for outcome in outcomes[done:]:
            journal.write(outcome)
        assert [r.receipt for r in journal.ticks("lease_1")] == bench.receipts()
        journal.close()


def flat(error: BaseException) -> list[BaseException]:
    """Every error of a group."""
    if isinstance(error, BaseExceptionGroup):
        found: Any = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return [inner for one in found for inner in flat(one)]
    return [error]


@pytest.mark.prove
def test_a_payer_whose_disk_fills_up_says_so_and_stops_and_another_goes_on(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        with small(tmp_path / "home", 400) as home:
            purse = world.purse("home")
            vk, lease, other = b"", "", home / "other"
            with pytest.raises(BaseException) as ended:
                async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
                    await market.run(spec())
                    lease = await provider.lease()
                    await provider.start(lease)
                    await provider.ticks(lease, 2)
                    [held] = market.payers.all
                    vk, seen = held.session_vk, held
                    await until(lambda: seen.book.capacity is not None)
                    fill(home)
                    with anyio.fail_after(60):
                        while True:  # the link must not take it for a lost connection and go on
                            await provider.adapter.tick(lease, 50)
                            await anyio.sleep(0.05)
            faults = [error for error in flat(ended.value) if isinstance(error, DiskFault)]
            assert faults, ended.value
            assert faults[0].code == "DISK_FULL" and vk.hex() in faults[0].message
            paid = provider.adapter.vouchers[vk].cumulative
            assert peek(purse.channels, vk).book.signed >= paid
            other.unlink()
            async with Market(world.url, wallet=purse, chain_url=world.served.url) as again:
                await again.resume_all()
                due = await provider.adapter.tick(lease, 50)
                await provider.paid(vk, due.channel_owed)
                await provider.adapter.finish(lease)
                await until(lambda: bool(provider.adapter.ends))
            assert not list(purse.channels.glob("*.damaged-*"))  # it was cut back at once

    story(tmp_path, tell)


def test_an_adapter_whose_disk_fills_up_says_so_and_stops_and_another_goes_on(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        world, ledger, market = adapters.World(), adapters.Ledger(), adapters.FakeMarket()
        with small(tmp_path / "home", 8_000) as home:
            async with adapters.market_socket(market) as url:
                first, other = adapters.make_daemon(world, home, url), home / "other"
                with pytest.raises(BaseException) as ended:
                    async with adapters.running(first, ledger):
                        await market.wait(lambda: market.of(wire.LeasesHeld))
                        await market.lease(adapters.host_offer())
                        await market.wait(lambda: len(market.receipts()) >= 2, "receipts")
                        fill(home)
                        with anyio.fail_after(60):
                            await anyio.sleep_forever()
                first.close()  # as its process's end does
                faults = [error for error in flat(ended.value) if isinstance(error, DiskFault)]
                assert faults, ended.value
                assert faults[0].code == "DISK_FULL" and str(home) in faults[0].message
                assert world.workloads["lease_1"].state.name != "EXITED"  # it lives on
                said = len(market.receipts())
                other.unlink()
                async with adapters.running(adapters.make_daemon(world, home, url), ledger):
                    await market.wait(lambda: len(market.receipts()) >= said + 2, "receipts again")
                    held = market.of(wire.LeasesHeld)[-1]
                    assert isinstance(held, wire.LeasesHeld) and held.leases == ["lease_1"]
        assert world.starts == ["lease_1"]
        market.verify({"lease_1": 10_000_000})

    anyio.run(run)


def served(db: str, home: Path) -> tuple[subprocess.Popen[str], str]:
    """A market process over *db*, its log in *home*, and its URL."""
    command = [sys.executable, "-m", "tests.integration.support.serve", db, str(home)]
    with (home / "log").open("a") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (home / "log").read_text()[-500:]
    return process, str(json.loads(line)["url"])


def acknowledged(adapter: FakeAdapter, last: Receipt) -> int:
    """The newest receipt that the market has acknowledged; *last* was sent last."""
    said = [codec.from_bytes(payload) for _, payload in adapter.socket.client.numbering.unacked]
    return last.seq - sum(isinstance(message, wire.ReceiptSent) for message in said)


@pytest.mark.prove
def test_a_market_whose_disk_fills_up_refuses_and_loses_nothing_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    """Nor when it is killed while it is full."""

    async def run(folder: Path) -> None:
        db = f"sqlite:///{folder}/market.db"
        process, url = served(db, tmp_path)
        provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
        adapter = FakeAdapter(url, provider, offer(provider))
        payer = FakePayer(url, {session.verify_key: session})
        client = httpx.AsyncClient(base_url=url, timeout=30)
        async with client, working(adapter, payer):
            await sign_in(client, consumer)

            async def listed() -> bool:
                return bool((await client.get("/v1/offers")).json()["items"])

            await until(listed)
            job = await client.post("/v1/jobs", json=body(small_spec(), session, consumer))
            lease = await sign(client, await quoted(client, job.json()["id"]), session, "ab" * 32)
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            due = await adapter.tick(lease)
            await until(lambda: adapter.paid(session.verify_key) == due.channel_owed)
            other = fill(folder)
            with anyio.fail_after(60):  # what is left of a page is still taken
                while "DISK_FULL" not in (tmp_path / "log").read_text():
                    due = await adapter.tick(lease)
                    await anyio.sleep(0.05)
            assert acknowledged(adapter, due) < due.seq
            refused = await client.post(
                "/v1/jobs", json=body(small_spec(), Signer(os.urandom(32)), consumer)
            )
            assert (refused.status_code, refused.json()["code"]) == (503, "DISK_FULL")
            assert (await client.get(f"/v1/jobs/{job.json()['id']}")).status_code == 200
            other.unlink()
            await until(lambda: adapter.paid(session.verify_key) == due.channel_owed, 60)
            said = (tmp_path / "log").read_text().count("DISK_FULL")
            other = fill(folder)
            last = await adapter.tick(lease)
            await until(lambda: (tmp_path / "log").read_text().count("DISK_FULL") > said)
            process.kill()
            process.communicate()
            paid, acked = adapter.paid(session.verify_key), acknowledged(adapter, last)
        other.unlink()
        with sqlite3.connect(folder / "market.db") as books:
            kept = books.execute("SELECT max(seq) FROM receipts").fetchone()[0]
            voucher = books.execute("SELECT max(cumulative) FROM vouchers").fetchone()[0]
        assert kept >= acked >= due.seq and voucher >= paid >= due.channel_owed
        process, again = served(db, tmp_path)
        try:
            async with httpx.AsyncClient(base_url=again, timeout=30) as client:
                await sign_in(client, consumer)
                found = await client.get(f"/v1/jobs/{job.json()['id']}/receipts?limit=200")
                assert len(found.json()["items"]) >= due.seq
        finally:
            process.kill()
            process.communicate()

    with small(tmp_path / "small", 16_000) as folder:
        anyio.run(run, folder)
