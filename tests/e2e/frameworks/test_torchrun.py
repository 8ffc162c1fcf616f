"""torchrun on clusters of real adapters."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.frameworks import (
    Shown,
    example,
    running,
    said,
    story,
    until_complete,
    until_printed,
)
from tests.requires import need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(600)]


def test_torchrun_trains_over_the_mesh_and_goes_on_where_it_was_when_a_member_is_lost(
    tmp_path: Path,
) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        async with running(made, market, example("torchrun", stack, STEPS="400")) as one:
            first, lost, _ = one.gang.members
            await until_printed(first, r"step [2-9]0 of 400: world 3")
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            joined = await until_printed(lost, r"member 1 is rank \d of 3, from step ([1-9]\d+)")
            kept = re.findall(r"step (\d+) of 400: world 3", await said(first))
            assert joined[1] in kept, "it had no checkpoint: the others' newest is where all go on"
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)
            for job in one.gang.members:
                assert "trained: loss 0.0000" in await said(job)

    story(tmp_path, stack, 4, tell)
