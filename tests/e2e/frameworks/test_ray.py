"""Ray on clusters of real adapters."""

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

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def test_ray_works_on_all_members_and_runs_again_what_a_lost_one_had(tmp_path: Path) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        paced = example("ray", stack, cpu=2000, ROUNDS="60", PACE_S="0.2")
        async with running(made, market, paced) as one:
            head, lost, _ = one.gang.members
            nodes = (await until_printed(head, r"of 60: loss \S+ on 3 (.+)"))[1]
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            await until_printed(head, rf"of 60: loss \S+ on 3 (?!{re.escape(nodes)})")
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)
            assert "trained: loss 0.0000" in await said(head)

    story(tmp_path, stack, 4, tell)
