"""What a job may connect to, through the market: nothing unless it asked, and only where it is
allowed.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.client.sdk.market import Market
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Port, Price, Range, Resources
from marketplace.domain.work.workload import NO_EGRESS, Egress, EgressMode
from tests.e2e.support.embedded import PATIENCE_S, embedded, until_true
from tests.integration.support.images import outside
from tests.requires import need_devnet, need_docker

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)

THERE = "203.0.113.2"
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 8099), timeout=5).close()
    print("reached", flush=True)
except OSError as error:
    print("closed", type(error).__name__, flush=True)
"""
OTHER = Egress(EgressMode.LIST, ("203.0.113.9:8099",))


def spec(image: str, egress: Egress, ports: tuple[Port, ...] = ()) -> JobSpec:
    return JobSpec(
        name="egress",
        image=image,
        command=("python3", "-u", "-c", TRY, THERE),
        resources=(Resources(cpu=Range(200), memory=Range(64)),),
        ports=ports,
        egress=egress,
        price=Price(budget=2 * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=60_000),
    )


async def said(market: Market, job: JobSpec) -> str:
    """The first word of the job's only line."""
    run = await market.run(job)
    lines = [line async for line in run.logs()]
    await run.wait()
    assert run.completed, run.view
    return lines[0].split()[0]


def test_a_job_reaches_what_it_asked_for_where_that_is_allowed(tmp_path: Path) -> None:
    need_docker()
    need_devnet()

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S), outside(THERE):
            async with embedded(tmp_path) as place:
                purse = await place.purse("consumer")
                async with Market(
                    place.market_url, wallet=purse, chain_url=place.chain_url, keep="10m"
                ) as market:
                    await until_true(market.offers, "an offer")
                    service = (
                        Port(8000),
                    )  # a network of its own, so that the rules are what closes it
                    for egress, ports, word in (
                        (NO_EGRESS, service, "closed"),
                        (Egress(EgressMode.OPEN), (), "reached"),
                        (OTHER, (), "closed"),
                    ):
                        assert await said(market, spec(place.image, egress, ports)) == word, egress

    anyio.run(main)
