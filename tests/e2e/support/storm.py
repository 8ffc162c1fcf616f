"""What a test of a storm needs: leases that run, Docker's own view of them, and the reckoning
after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import anyio

from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.metering.reading import Cause
from marketplace.domain.money.evidence import evidence_to_json, read
from marketplace.domain.money.invoice.bill import Invoice, Line
from marketplace.domain.money.invoice.verify import reconcile
from tests.e2e.support.embedded import (
    World,
    check_against_docker,
    job_file,
    settled_bill,
    until_ended,
    until_true,
)


@dataclass
class Till:
    """Counts the ticks that a payer answered, by lease."""

    ticks: dict[str, int] = field(default_factory=dict[str, int])

    async def heard(self, paid: Paid) -> None:
        if paid.kind == "tick":
            self.ticks[paid.lease] = self.ticks.get(paid.lease, 0) + 1

    async def more(self, leases: list[str], by: int, seconds: float = 200) -> None:
        """Until each of *leases* is paid for *by* more ticks than now."""
        before = dict(self.ticks)

        async def paid() -> bool:
            return all(self.ticks.get(x, 0) - before.get(x, 0) >= by for x in leases)

        await until_true(paid, f"{by} more ticks of {leases}", seconds)


async def workloads(provider: str, *, every: bool = False) -> dict[str, dict[str, Any]]:
    """Docker's own view of the containers of adapter *provider*, by lease; *every*: exited ones
    too.
    """
    label = f"label=tally.adapter={provider[:16]}"
    flags = ["--all"] if every else []
    listed = await anyio.run_process(
        ["docker", "ps", "--quiet", "--no-trunc", *flags, "--filter", label]
    )
    ids = listed.stdout.decode().split()
    if not ids:
        return {}
    shown = json.loads((await anyio.run_process(["docker", "inspect", *ids])).stdout)
    return {row["Config"]["Labels"]["tally.lease"]: row for row in shown}


def lives(rows: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str, int]]:
    """What tells one life of a container from another."""
    return {
        lease: (row["Id"], row["State"]["StartedAt"], row["State"]["Pid"])
        for lease, row in rows.items()
    }


async def start_job(world: World, market: Market, name: str, gpu: str = "") -> tuple[Job, str]:
    """A job that prints a line a second for an hour, once it runs; with its lease. *gpu*: a
    model.
    """
    path = job_file(world.folder, world.place.image, 3600, name=name)
    asked = json.loads(path.read_text())
    if gpu:
        asked["resources"]["gpu"] = {"model": gpu, "count": 1}
    asked["price"]["budget"], asked["policy"]["max_duration"] = "50 ADA", "1h"
    path.write_text(json.dumps(asked))
    made = await market.run(path)
    view = await made.running()
    return made, str(view["leases"][0])


def lost_by(line: Line, cause: Cause) -> int:
    """Milliseconds that *line* does not bill, for *cause*."""
    return sum(one.ms for one in line.lost if one.cause == cause)


async def reckon(world: World, job: Job, reason: str, slack_ms: int) -> Invoice:
    """It ended for *reason*; its bill holds without a network, with the ledger, and by Docker's
    times.
    """
    view = await until_ended(world, job.id)
    assert view["reason"] == reason, view
    bill = await settled_bill(world, job.id)
    kept = json.dumps(evidence_to_json(await job.evidence()))
    alone = reconcile(read(kept))
    assert alone.owed == bill.owed
    assert sum(total.claimed or 0 for total in bill.channels) == bill.owed
    await check_against_docker(world, bill, slack_ms)
    return bill
