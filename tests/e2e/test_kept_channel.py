"""One kept channel, several leases that are each too dear for what is left in it: every one waits
for its own top-up, none takes another's, and the ledger shows the sum of all three bills.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Price, Range, Resources
from tests.e2e.support.embedded import PATIENCE_S, embedded, until_true
from tests.requires import need_devnet, need_docker

pytestmark = [pytest.mark.prove, pytest.mark.timeout(PATIENCE_S + 120)]
DEAR_MINUTES = 40_000
"""A ceiling of 7.2 ADA: more than what was put aside in a kept channel for jobs to come."""


def spec(name: str, image: str, minutes: int) -> JobSpec:
    """A job of two seconds that may take *minutes*: its ceiling is what it may cost, 3 lovelace a
    second.
    """
    return JobSpec(
        name=name,
        image=image,
        command=("python3", "-c", "import time; time.sleep(2)"),
        resources=(Resources(cpu=Range(500), memory=Range(128)),),
        price=Price(budget=20 * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=minutes * 60_000),
    )


def test_two_leases_wait_on_one_kept_channel_and_both_are_paid(tmp_path: Path) -> None:
    need_docker()
    need_devnet()

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with embedded(tmp_path, block_ms=3000) as place:
                purse = await place.purse("consumer")
                async with Market(
                    place.market_url, wallet=purse, chain_url=place.chain_url, keep="10m"
                ) as market:
                    await until_true(market.offers, "an offer")
                    await three_jobs(market, place.image)

    anyio.run(main)


async def three_jobs(market: Market, image: str) -> None:
    first = await market.run(spec("first", image, 1))
    await first.wait()
    assert first.completed, first.view
    (held,) = market.payers.all
    paid_in = held.facts.amount
    done: list[Job] = []

    async def dear(name: str) -> None:
        job = await market.run(spec(name, image, DEAR_MINUTES))
        await job.wait()
        done.append(job)

    async with anyio.create_task_group() as both:
        both.start_soon(dear, "second")
        both.start_soon(dear, "third")
    assert [job.reason for job in done] == ["COMPLETED"] * 2, [job.view for job in done]
    used = {(await job.refresh())["channel"] for job in (first, *done)}
    assert used == {held.session_vk.hex()}  # one channel, no second one opened
    ceilings = sum(int(job.view["ceiling"]) for job in done)
    assert held.facts.amount >= paid_in + ceilings * 9 // 10  # each brought its own money

    await held.end()
    await until_true(lambda: market.runner.watch.confirm(held), "the channel's end")

    async def agrees() -> Invoice | None:
        bill = await done[0].invoice(verify=True)
        return bill if bill.reconciled else None

    bill: Invoice = await until_true(agrees, "the bill's agreement with the ledger")
    (total,) = bill.channels
    assert total.ended and total.claimed == sum(job.spent for job in (first, *done)) > 0
