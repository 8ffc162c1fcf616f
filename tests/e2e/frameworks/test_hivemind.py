"""Hivemind on clusters of real adapters: peers that train together, of which one is killed and its
replacement joins late, to the same loss.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.sdk.market import Job, Market
from marketplace.domain.metering.reading import Cause
from tests.e2e.support.clusters import Watched, approved, bill, lost_ms
from tests.e2e.support.frameworks import (
    SOON_S,
    Shown,
    example,
    running,
    said,
    story,
    until_complete,
    until_printed,
)
from tests.e2e.support.left_behind import Workloads
from tests.requires import need_stack

THREE = r"epoch ([1-9]\d*): 3 peers"
JOINED = r"epoch [1-9]\d*: [34] peers"
"""The lost one is counted until its last word lapses."""


@dataclass(frozen=True)
class Trained:
    """What it took a cluster to reach the target: *epochs* are the steps of the model that all
    share, *batches* those that its members worked through for them, all together.
    """

    epochs: int
    batches: int

    @classmethod
    async def of(cls, one: Watched) -> Trained:
        """By what its members printed, those that were lost too, until their last epoch."""
        epochs, batches = 0, 0
        for job in one.gang.members:
            printed = await said(job)
            ends = re.findall(r"trained: loss (\S+) at epoch (\d+), target (\S+)", printed)
            assert ends and float(ends[-1][0]) <= float(ends[-1][2]), printed[-2000:]
            epochs = max(epochs, int(ends[-1][1]))
            for life in printed.split("begins at epoch")[1:]:
                batches += int(([0, *re.findall(r"(\d+) steps here", life)])[-1])
        return cls(epochs, batches)


async def undisturbed(made: Shown, market: Market, job: LoadedJob) -> Trained:
    async with running(made, market, job) as one:
        await until_complete(one)
        return await Trained.of(one)


async def disturbed(made: Shown, market: Market, job: LoadedJob) -> Trained:
    """One of them is killed together with its provider, and another takes its place, late."""
    seen = Workloads()
    async with running(made, market, job) as one:
        lost, second, _ = one.gang.members
        await until_printed(second, THREE)
        leases = [str((await member.refresh())["lease"]) for member in one.gang.members]
        assert all(seen.note(lease) > 2 for lease in leases), "a shell, a DHT, and what trains"
        dies = await made.host(lost)
        made.signal(dies, signal.SIGKILL)
        seen.kill(leases[0])
        await one.until_said("running with 2 of 3")
        paid = approved(market, leases[0])
        begun = await until_printed(lost, r"member 0 begins at epoch ([1-9]\d*)")
        seen.note(str((await lost.refresh())["lease"]))
        await made.start_adapter(dies)  # it comes back, and ends what it still ran
        await until_printed(lost, rf"(?s){re.escape(begun[0])}.*{JOINED}")
        await until_complete(one)
        assert approved(market, leases[0]) == paid, "nothing after it was lost"
        assert len(seen.leases) == 4
        waited = [await check_bill(member, leases[0]) for member in one.gang.members]
        assert any(waited), "who is there first waits unbilled"
        await seen.until_none()
        return await Trained.of(one)


async def check_bill(job: Job, lost: str) -> int:
    """The ledger agrees with it; what ran was metered, and what was metered was paid. How long it
    waited for the others, ms.
    """
    made = await bill(job, SOON_S)
    (ran,) = [line for line in made.lines if line.lease != lost]
    billed_ms = ran.unit_ms * 1000 // ran.units_milli
    told = sum(one.ms for one in ran.lost)
    assert ran.final and ran.lease_ms - 5000 <= billed_ms + told <= ran.lease_ms + 1000, ran
    print(f"{job.id}: {billed_ms} ms billed, {lost_ms(made, Cause.PAUSED)} ms paused")
    (total,) = [total for total in made.channels if total.channel == ran.channel]
    assert total.claimed == total.signed >= ran.owed > 0, total
    assert job.spent == sum(total.signed for total in made.channels)
    assert job.spent == sum(total.claimed or 0 for total in made.channels)
    return sum(lost_ms(made, Cause.ASSEMBLING))


@pytest.mark.alone
@pytest.mark.prove
@pytest.mark.timeout(400)
def test_a_killed_peer_is_replaced_late_and_all_reach_the_target(tmp_path: Path) -> None:
    stack = need_stack()
    job = example("hivemind", stack, TARGET="0.05", PACE_S="0.4")

    async def tell(made: Shown, market: Market) -> None:
        print(await disturbed(made, market, job))

    story(tmp_path, stack, 4, tell)


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_loss_of_a_peer_costs_less_than_a_third_more_steps(tmp_path: Path) -> None:
    stack = need_stack()
    job = example("hivemind", stack)

    async def tell(made: Shown, market: Market) -> None:
        quiet = await undisturbed(made, market, job)
        hit = await disturbed(made, market, job)
        print(f"undisturbed {quiet}, one killed and replaced {hit}")
        assert hit.epochs <= 1.3 * quiet.epochs and hit.batches <= 1.3 * quiet.batches

    story(tmp_path, stack, 4, tell)
