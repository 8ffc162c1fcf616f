"""Ray on clusters of real adapters: training that goes on when a member is lost."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from marketplace.client.sdk.market import Market
from marketplace.domain.metering.reading import Cause
from tests.e2e.support.clusters import ticked
from tests.e2e.support.frameworks import (
    Shown,
    example,
    running,
    said,
    story,
    until_complete,
    until_printed,
)
from tests.e2e.test_cluster import approved, bill, lost_ms
from tests.requires import need_stack

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]
BEGAN = re.compile(r"is rank 0 of (\d), from epoch (\d+)")
DID = re.compile(r"epoch (\d+) of \d+: world (\d), accuracy (\S+)")


def check_epochs(printed: str, epochs: int) -> None:
    """All were done in their order, and whoever began anew lost the one at most in which they were:
    each member keeps a checkpoint after each.
    """
    done, begun = 0, list[int]()
    for line in printed.splitlines():
        if found := BEGAN.search(line):
            begun.append(int(found[1]))
            assert int(found[2]) >= done, f"an epoch that was done is lost: {line}"
            done = int(found[2])
        elif found := DID.search(line):
            assert int(found[1]) == done + 1, line
            done = int(found[1])
    assert done == epochs
    assert begun[0] == begun[-1] == 3 and len(begun) > 1, begun


def through_a_loss(tmp_path: Path, epochs: int, pace_s: float) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        paced = example("ray", stack, cpu=2000, EPOCHS=str(epochs), PACE_S=str(pace_s))
        async with running(made, market, paced) as one:
            head, lost, _ = one.gang.members
            await until_printed(head, r"epoch [3-9] of \d+: world 3")
            await ticked(market, [lost], 1)
            lease = (await lost.refresh())["lease"]
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            paid = approved(market, str(lease))
            await until_printed(head, r"(?s)is rank 0 of .*is rank 0 of .*: world 3")
            assert dies != await made.host(lost)
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)
            printed = await said(head)
            assert re.search(r"trained: accuracy 0\.9[5-9]\d, 0\.95 was asked for", printed)
            check_epochs(printed, epochs)
            assert approved(market, str(lease)) == paid, "nothing after it was lost"
            waited = 0
            for job in one.gang.members:
                made_out = await bill(job)
                waited += sum(lost_ms(made_out, Cause.ASSEMBLING))
                assert job.spent == sum(total.claimed or 0 for total in made_out.channels)
                assert (lease in {line.lease for line in made_out.lines}) == (job is lost)
                for line in made_out.lines:
                    billed = line.unit_ms * 1000 // line.units_milli
                    assert billed + sum(x.ms for x in line.lost) <= line.lease_ms + 1000, line
            assert waited, "who is there first waits unbilled"

    story(tmp_path, stack, 4, tell)


@pytest.mark.nightly
def test_ray_trains_on_all_members_and_goes_on_where_it_was_when_one_is_lost(
    tmp_path: Path,
) -> None:
    through_a_loss(tmp_path, 100, 0.1)


@pytest.mark.prove
def test_ray_trains_through_the_loss_of_a_member(tmp_path: Path) -> None:
    through_a_loss(tmp_path, 24, 0.1)
