"""The payer as a process of its own, and the SDK without async: the same books, the same ledger."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from marketplace.client.sdk import sync
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from marketplace.domain.protocol.wire import LeaseSigned
from tests.integration.client.test_cli import Shell
from tests.integration.support.client import World, spec, story, until

pytestmark = pytest.mark.prove


def test_a_daemon_pays_for_a_job_whose_client_has_gone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, provider = Shell(world), world.provider
        purse = world.purse()
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            job = (await market.run(spec())).id
            lease = await provider.lease()
            await provider.start(lease)
            await provider.ticks(lease, 1)
            held = market.payers.all[0]
            vk, open_tx = held.session_vk, held.facts.open_tx
            command = [sys.executable, "-m", "marketplace.cli.main", "payer", "run", "--json"]
            async with await anyio.open_process(command, env=shell.env, stdin=-3) as daemon:
                said: list[dict[str, Any]] = []
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_listen, daemon, said)
                    await until(lambda: any(row["event"] == "ready" for row in said), 120)
                    assert not any(
                        row["event"] == "paying" for row in said
                    )  # the client holds the lock
                    await market.payers.release(vk)
                    await until(lambda: any(row["event"] == "paying" for row in said), 120)
                    await provider.ticks(lease, 2)
                    await provider.adapter.finish(lease)
                    assert await provider.settle(vk, open_tx, lease)
                    await until(lambda: any(row["event"] == "settled" for row in said), 120)
                    daemon.send_signal(signal.SIGTERM)
                    with anyio.fail_after(120):
                        assert await daemon.wait() == 0
            bill = await market.job(job).invoice(verify=True)
            assert bill.reconciled and bill.owed == 3

    story(tmp_path, tell)


def test_a_daemon_pays_for_what_was_delivered_while_nobody_did(tmp_path: Path) -> None:
    """A client that dies, two ticks, a pause; then ``tally payer run``, by another name."""

    async def tell(world: World) -> None:
        shell, provider = Shell(world), world.provider
        purse = world.purse()
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            job = (await market.run(spec())).id
            lease = await provider.lease()
            held = market.payers.all[0]
            vk, open_tx = held.session_vk, held.facts.open_tx
        await provider.start(lease)
        tick_ms = provider.adapter.offer.tick_ms
        await anyio.sleep(tick_ms / 1000)
        await provider.adapter.tick(lease, tick_ms)
        await anyio.sleep(tick_ms / 1000)
        due = await provider.adapter.tick(lease, tick_ms)
        await provider.adapter.progress(lease, "PAUSED", code="UNPAID")
        shell.env["TALLY_MARKET"] = world.url.replace("127.0.0.1", "localhost") + "/"
        command = [sys.executable, "-m", "marketplace.cli.main", "payer", "run", "--json"]
        async with await anyio.open_process(command, env=shell.env, stdin=-3) as daemon:
            said: list[dict[str, Any]] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_listen, daemon, said)
                await until(lambda: any(row["event"] == "paying" for row in said), 120)
                await provider.paid(vk, due.channel_owed)
                await provider.adapter.progress(lease, "RESUMED")
                await provider.ticks(lease, 2)
                await provider.adapter.finish(lease)
                await provider.settle(vk, open_tx, lease)
                await until(lambda: any(row["event"] == "settled" for row in said), 120)
                daemon.send_signal(signal.SIGTERM)
                with anyio.fail_after(120):
                    assert await daemon.wait() == 0
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            view = await market.job(job).refresh()
            bill = await market.job(job).invoice(verify=True)
        assert (view["state"], view["reason"]) == ("ENDED", "COMPLETED")
        assert (
            bill.reconciled and bill.unsigned == 0 and bill.owed == (2 * tick_ms + 400) * 5 // 1000
        )

    story(tmp_path, tell)


async def _listen(daemon: Any, said: list[dict[str, Any]]) -> None:
    held = b""
    async for chunk in daemon.stdout:
        *lines, held = (held + chunk).split(b"\n")
        said += [json.loads(line) for line in lines if line.startswith(b"{")]


def test_the_sdk_without_async(tmp_path: Path) -> None:
    def run(world: World, purse: Purse) -> tuple[str, int, list[str]]:
        with sync.Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            assert len(market.offers()) == 1 and market.quote(spec())["ceiling"] == 301
            job = market.run(spec(), confirm=lambda offered: offered.quote.terms.ceiling == 301)
            lines = list(job.logs())
            job.wait()
            assert job.settled(200) and job.invoice(verify=True).reconciled
            return job.reason, job.spent, lines

    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        found: list[tuple[str, int, list[str]]] = []

        async def client() -> None:
            found.append(await anyio.to_thread.run_sync(run, world, purse))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client)
            lease = await provider.lease()
            await provider.start(lease)
            await provider.log(lease, b"one\ntwo\n")
            await provider.ticks(lease, 2)
            await provider.adapter.finish(lease)
            signed = [m for m in provider.adapter.asked if isinstance(m, LeaseSigned)]
            run_of = provider.adapter.leases[lease]
            await provider.settle(run_of.terms.session_vk, signed[-1].channel_tx, lease)
        assert found == [("COMPLETED", 2, ["one", "two"])]

    story(tmp_path, tell)
