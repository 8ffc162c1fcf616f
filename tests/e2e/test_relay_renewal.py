"""A relay and the volume of its chain both go on beyond their agreed ends, by rules, while
``tally payer run`` pays: it serves without a gap, and neither account has one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from marketplace.client.sdk.market import Market
from marketplace.domain.money import evidence
from tests.e2e.support.embedded import PATIENCE_S, Command, command, embedded, tally, until_true
from tests.e2e.support.volumes import Renter, job_file
from tests.e2e.test_relay import write_life
from tests.e2e.test_relay_life import PORT, SERVES, Host
from tests.requires import need_devnet, need_docker, need_node, need_volumes
from tests.unit.support.browser_verifier import browser_says

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2 * PATIENCE_S + 180)]
FIRST_S, MORE_S, LEFT_S, RUNS_S = 60, 40, 25, 210
RULE = ("--for", f"{MORE_S}s", "--when-left", f"{LEFT_S}s", "--day-budget", "10 ADA", "--yes")


def test_a_relay_and_its_volume_are_renewed_and_serve_without_a_gap(tmp_path: Path) -> None:
    need_docker()
    need_devnet()
    need_node()
    need_volumes(tmp_path)

    async def main() -> None:
        with anyio.fail_after(2 * PATIENCE_S):
            async with embedded(tmp_path, Host) as place, AsyncExitStack() as commands:
                purse = await place.purse("consumer")
                market = await commands.enter_async_context(Market(place.market_url, wallet=purse))
                await renewed(Renter(tmp_path, place, commands), market)

    anyio.run(main)


async def renewed(renter: Renter, market: Market) -> None:
    place, folder = renter.place, renter.folder
    env = place.environment
    await renter.told("first", "sleep 3")  # a new account pays before it has two leases
    await anyio.to_thread.run_sync(write_life, folder, (("tip", 900),))
    short = {"policy": {"max_duration": f"{FIRST_S}s"}}
    disk = job_file(folder, "chain", kind="volume", resources={"disk": "64MB"}, **short)
    relay = job_file(
        folder, "relay", image=place.image, ports=[PORT], **short,
        command=["sh", "-c", f"cp life.json /data/ && {SERVES}"],
        files=[{"src": str(folder / "life.json"), "dst": "/workspace/life.json"}],
        volumes=[{"volume": "chain", "path": "/data"}],
        relay={"network": "preprod", "port": PORT, "lag": "60s"},
    )  # fmt: skip
    async with paying(env) as payer:
        jobs: list[str] = []
        for file in (disk, relay):
            ran = await tally("job", "run", file, "--yes", "--json", "--detach", env=env)
            assert ran.process.returncode == 0, str(ran)
            job = jobs_of(ran)
            jobs.append(job)
            await until_true(lambda job=job: runs(market, job), f"{file} runs")
            rule = await tally("job", "renew", job, *RULE, "--json", env=env)
            assert rule.process.returncode == 0, str(rule)
        volume, job = jobs
        await until_true(lambda: story_has(market, job, "AT_TIP"), "the tip")
        await anyio.sleep(RUNS_S)
        assert await runs(market, volume) and await runs(market, job), str(payer)
        for one in (job, volume):
            stopped = await tally("job", "stop", one, env=env)
            assert stopped.process.returncode == 0, str(stopped)
        await until_true(lambda: is_over(market, volume), "the volume's end")
        told = [json.loads(line) for line in payer.out]
    for one in (job, volume):
        lease = (await market.job(one).refresh())["lease"]
        row = [row for row in told if row.get("lease") == lease and row["event"] == "renewed"]
        assert len(row) >= 3, (one, told)
    assert not [row for row in told if row["event"] == "not_renewed"], told
    kinds = [one["kind"] async for one in market.job(job).events(follow=False) if "kind" in one]
    assert kinds.count("AT_TIP") == 1 and "PAUSED" not in kinds, kinds
    assert "OFF_TIP" not in kinds[kinds.index("AT_TIP") :], kinds

    closed = await tally("channel", "close", "--all", "--yes", env=env)
    assert closed.process.returncode == 0, str(closed)
    for one, half in ((job, 2), (volume, 16)):  # of a core; of a GB: 64 MB
        saved = folder / f"{one}.json"
        bill = await until_true(lambda one=one, saved=saved: whole(one, saved, env), "the bill")
        [line] = bill["lines"]
        served_ms = line["unit_ms"] * half
        assert (RUNS_S - 5) * 1000 < served_ms, line
        [said] = browser_says([(saved.read_text(), [])])
        assert said["rule"] == "", said
        [channel] = evidence.read(saved.read_text()).channels
        ours = [r.receipt for r in channel.receipts if r.receipt.lease == channel_lease(saved, one)]
        for earlier, later in pairwise(ours):
            assert later.t0_ms == earlier.t1_ms


@asynccontextmanager
async def paying(env: dict[str, str]) -> AsyncGenerator[Command]:
    """``tally payer run``, ready."""
    async with command("payer", "run", "--json", env=env) as payer:
        await payer.until(lambda said: any('"ready"' in line for line in said.out))
        yield payer


def jobs_of(ran: Command) -> str:
    return str(ran.last["job"])


async def runs(market: Market, job: str) -> bool:
    await anyio.sleep(1)
    return (await market.job(job).refresh())["state"] == "RUNNING"


async def is_over(market: Market, job: str) -> bool:
    await anyio.sleep(1)
    return (await market.job(job).refresh())["state"] == "ENDED"


async def story_has(market: Market, job: str, kind: str) -> bool:
    await anyio.sleep(1)
    events = market.job(job).events(follow=False)
    return kind in [one["kind"] async for one in events if "kind" in one]


def channel_lease(saved: Path, job: str) -> str:
    """The lease of *job* in its evidence."""
    [lease] = [x for x in evidence.read(saved.read_text()).leases if x.signed.terms.job == job][:1]
    return lease.signed.terms.lease


async def whole(job: str, saved: Path, env: dict[str, str]) -> dict[str, Any] | None:
    """Its bill, once its channel's end shows."""
    await anyio.sleep(1)
    said = await tally("invoice", job, "--verify", "--json", "--save", str(saved), env=env)
    return said.last if said.last["reconciled"] else None
