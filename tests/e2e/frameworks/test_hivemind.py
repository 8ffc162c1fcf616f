"""Hivemind on clusters of real adapters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.frameworks import (
    Shown,
    example,
    running,
    story,
    until_complete,
    until_printed,
)
from tests.requires import need_stack

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def test_hivemind_averages_over_the_mesh_and_takes_in_who_replaces_a_lost_member(
    tmp_path: Path,
) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        async with running(made, market, example("hivemind", stack, EPOCHS="30")) as one:
            lost, second, _ = one.gang.members
            await until_printed(second, r"epoch [2-9] of 30: 3 peers")
            dies = await made.host(lost)
            made.signal(dies, signal.SIGKILL)
            await one.until_said("running with 2 of 3")
            await until_printed(lost, r"member 0 begins at epoch [1-9]")
            await made.start_adapter(dies)  # it comes back, and ends what it still ran
            await until_complete(one)

    story(tmp_path, stack, 4, tell)
