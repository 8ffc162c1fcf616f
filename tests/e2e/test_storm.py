"""A storm over a provider with three leases: what runs is not hurt, and what is billed is what ran.

Real containers, real processes: the adapter is killed again and again and re-adopts what it finds;
the way to the market is cut for longer than its patience, the workloads are paused unbilled, kept,
and resumed.
"""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.domain.metering import Cause
from tests.e2e.support_embedded import (
    Command,
    World,
    check_against_docker,
    command,
    job_file,
    settled_bill,
    story,
    tally,
    until_ended,
    until_true,
)
from tests.e2e.support_wire import door

pytestmark = pytest.mark.prove
KILLS = 15
STORM_S = 840
JOBS = (("storm-a", False), ("storm-b", False), ("storm-gpu", True))


async def _three(world: World, stack: AsyncExitStack, lines: int) -> list[Command]:
    """Three jobs, each by its own client, all of them running."""
    clients: list[Command] = []
    for name, gpu in JOBS:
        file = job_file(world.folder, world.place.image, lines, gpu, name)
        arguments = ("job", "run", str(file), "--yes", "--json")
        clients.append(
            await stack.enter_async_context(command(*arguments, env=world.place.environment))
        )
    for client in clients:
        await client.until(lambda it: "line 1" in it.err)
    return clients


async def _workloads(world: World) -> dict[str, dict[str, Any]]:
    """Docker's own view of this adapter's running containers, by lease."""
    provider = world.place.parts["adapter"].ready["provider"][:16]
    listed = await anyio.run_process(
        ["docker", "ps", "--quiet", "--no-trunc", "--filter", f"label=tally.adapter={provider}"]
    )
    ids = listed.stdout.decode().split()
    if not ids:
        return {}
    shown = json.loads((await anyio.run_process(["docker", "inspect", *ids])).stdout)
    return {row["Config"]["Labels"]["tally.lease"]: row for row in shown}


def _lives(rows: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str, int]]:
    """What tells one life of a container from another."""
    return {
        lease: (row["Id"], row["State"]["StartedAt"], row["State"]["Pid"])
        for lease, row in rows.items()
    }


async def _reckon(world: World, clients: list[Command], reason: str, slack_ms: int) -> None:
    """Every job ended for *reason*, every bill verifies, Docker agrees."""
    for client in clients:
        await client.ended(600)
        name = client.last["job"]
        view = await until_ended(world, name)
        assert view["reason"] == reason, view
        bill = await settled_bill(world, name)
        await check_against_docker(world, bill, slack_ms)
        said = await tally("invoice", name, "--verify", env=world.place.environment)
        assert said.process.returncode == 0, str(said)


@pytest.mark.timeout(STORM_S + 60)
def test_an_adapter_killed_again_and_again_takes_up_what_runs(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with AsyncExitStack() as stack:
            clients = await _three(world, stack, lines=3600)
            before = _lives(await _workloads(world))
            assert len(before) == len(JOBS)
            for _ in range(KILLS):
                await world.kill("adapter")
                await world.restart("adapter")
                assert _lives(await _workloads(world)) == before, "a workload did not live on"
            for client in clients:
                client.process.send_signal(signal.SIGINT)  # ends the job properly
            await _reckon(world, clients, "CANCELLED", slack_ms=1000 + 1000 * KILLS)

    story(tmp_path, tell, patience_s=STORM_S, resume_window="10m", simulate="h100x2")


@pytest.mark.timeout(STORM_S + 60)
def test_a_cut_way_to_the_market_pauses_unbilled_and_resumes(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with door(world.place.market_url) as between, AsyncExitStack() as stack:
            await world.place.parts["adapter"].stop()
            await world.restart("adapter", market=between.url())
            clients = await _three(world, stack, lines=20)
            before = _lives(await _workloads(world))
            await between.cut(shut=True)

            async def all_paused() -> bool:
                rows = await _workloads(world)
                return len(rows) == len(JOBS) and all(r["State"]["Paused"] for r in rows.values())

            await until_true(all_paused, "the pause of every workload")
            await anyio.sleep(20)  # a stretch of outage that a bill would show
            assert _lives(await _workloads(world)) == before, "a workload was not kept"
            between.shut = False
            await _reckon(world, clients, "COMPLETED", slack_ms=2000)
            for job in await world.market.jobs():
                bill = await world.market.job(job["id"]).invoice(verify=True)
                paused = sum(
                    x.ms for line in bill.lines for x in line.lost if x.cause == Cause.PAUSED
                )
                assert paused >= 20_000, bill

    story(tmp_path, tell, patience_s=STORM_S, resume_window="10m", simulate="h100x2")
