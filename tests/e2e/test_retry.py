"""A provider dies in the middle of a job: with ``retry`` the job goes on at another, unasked.

Two real adapters on one machine: state, keys, bridges and containers of their own, one Docker.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from adapter.host.keys import load_keys
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Job
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason
from marketplace.domain.work.parts import Policy, Price, Range, Resources
from tests.e2e.support.embedded import World, settled_bill, story, until_true

BUDGET = 300  # lovelace: less than the longest run costs, so that it is what bounds the ceilings
WINDOW = "3s"
ADAPTERS = ("adapter", "adapter2")
SCRIPT = (
    "import time\nfor n in range({lines}):\n    print('line', n, flush=True)\n    time.sleep(1)"
)
GOES_ON_WITHIN_MS = 15_000
"""On a machine that starts a first lease within some four seconds; else as many times longer."""


def _spec(image: str, lines: int, **policy: Any) -> JobSpec:
    return JobSpec(
        name="retry",
        image=image,
        command=("python3", "-c", SCRIPT.format(lines=lines)),
        resources=(Resources(cpu=Range(500), memory=Range(128)),),
        price=Price(budget=BUDGET),
        policy=Policy(max_duration_ms=600_000, **policy),
    )


class Story:
    """A job in the middle of its run, and what its payer heard of it."""

    def __init__(self, world: World, job: Job) -> None:
        self.world, self.job = world, job
        self.started: dict[str, float] = {}
        self.posted = time.monotonic()
        self.ticks: dict[str, int] = {}

    async def heard(self, paid: Paid) -> None:
        if paid.kind == "stage" and paid.code == "STARTED":
            self.started.setdefault(paid.lease, time.monotonic())
        if paid.kind == "tick":
            self.ticks[paid.lease] = self.ticks.get(paid.lease, 0) + 1

    async def until_ticks(self, lease: str, count: int) -> None:
        async def enough() -> bool:
            return self.ticks.get(lease, 0) >= count

        await until_true(enough, f"{count} ticks of {lease}")

    async def host(self) -> str:
        """The name of the part that runs the job now."""
        view = await self.job.refresh()
        for name in ADAPTERS:
            folder = self.world.place.home / name / "keys"
            keys = await anyio.to_thread.run_sync(load_keys, folder)
            if keys.provider == view["provider"]:
                return name
        raise AssertionError(f"{view['provider']} is none of ours")


def _with_two(
    folder: Path, tell: Callable[[Story], Awaitable[None]], lines: int, **policy: Any
) -> None:
    """*tell* a job that has ticked three times, on one of two adapters."""

    async def main(world: World) -> None:
        await world.place.start_adapter("adapter2")

        async def both() -> bool:
            return len(await world.market.offers()) == len(ADAPTERS)

        await until_true(both, "two offers")
        made = Story(world, world.market.job(""))
        silence = world.market.listen(made.heard)
        try:
            made.job = await world.market.run(_spec(world.place.image, lines, **policy))
            view = await made.job.running()
            await made.until_ticks(str(view["lease"]), 3)
            await tell(made)
        finally:
            silence()

    story(folder, main, resume_window=WINDOW)


async def _kill_its_host(made: Story) -> tuple[str, float]:
    name = await made.host()
    await made.world.kill(name)
    return name, time.monotonic()


@pytest.mark.prove
def test_a_killed_providers_job_goes_on_elsewhere_within_its_budget(tmp_path: Path) -> None:
    async def tell(made: Story) -> None:
        (first,) = made.started
        killed, at = await _kill_its_host(made)

        async def elsewhere() -> bool:
            return len(made.started) == 2

        await until_true(elsewhere, "the second start")
        second = next(lease for lease in made.started if lease != first)
        took_ms = round((made.started[second] - at) * 1000)
        print(f"went on after {took_ms} ms, {WINDOW} of them the resume window")
        await made.until_ticks(second, 2)
        assert await made.host() != killed
        await _check_exposure(made, first, second)
        await made.world.place.start_adapter(killed)  # it comes back, and claims what it was owed
        view = await made.job.wait()
        assert view["reason"] == EndReason.COMPLETED, view
        bill = await settled_bill(made.world, made.job.id)
        assert {line.lease for line in bill.lines} == {first, second}, "one bill with both parts"
        assert len(bill.channels) == 2
        _check_charged(bill, second)
        first_ms = (made.started[first] - made.posted) * 1000
        assert took_ms <= max(GOES_ON_WITHIN_MS, 3_000 + 3 * first_ms), (took_ms, first_ms)

    _with_two(tmp_path, tell, 25, retry_on=("provider_lost",), retry_max=1)


def _check_charged(bill: Invoice, second: str) -> None:
    """Each provider has what was signed for its receipts. What the first tells after it was given
    up is signed as far as the new ceiling leaves budget for it, and no further.
    """
    assert all(line.owed for line in bill.lines)
    charged = [total.claimed or 0 for total in bill.channels]
    assert charged == [min(total.owed, total.signed) for total in bill.channels]
    assert 0 < min(charged) and sum(charged) <= BUDGET
    (whole,) = [line.owed for line in bill.lines if line.lease == second]
    assert whole in charged, "the second is paid in full"


async def _check_exposure(made: Story, first: str, second: str) -> None:
    """What the first was paid and what the second may cost at most are within the budget
    together.
    """
    payers = made.world.market.payers.all
    books = {lease: held for held in payers for lease in held.terms}
    assert books[first] is not books[second], "each provider has a channel of its own"
    ceiling = Terms.decode(books[second].terms[second].body).ceiling
    paid = books[first].book.signed
    assert 0 < paid
    assert paid + ceiling <= BUDGET, (paid, ceiling)
    assert books[second].book.leases[second].cap <= ceiling


@pytest.mark.nightly
def test_without_retry_a_killed_providers_job_ends(tmp_path: Path) -> None:
    async def tell(made: Story) -> None:
        killed, _ = await _kill_its_host(made)
        view = await made.job.wait()
        assert view["reason"] == EndReason.PROVIDER_LOST, view
        assert len(made.started) == 1, "nothing was started again"
        await made.world.place.start_adapter(killed)
        bill = await settled_bill(made.world, made.job.id)
        assert len(bill.lines) == 1
        assert 0 < bill.owed <= BUDGET

    _with_two(tmp_path, tell, 25)
