"""A model that no member could hold alone, on a cluster of real adapters."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.frameworks import (
    EXAMPLES,
    SOON_S,
    Shown,
    example,
    running,
    said,
    story,
    until_complete,
)
from tests.requires import need_stack

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

MEMORY: Final = 800
"""As the example's: MiB, of which PyTorch itself takes 200 to 450."""
LOSS: Final = re.compile(r"step (\d+): loss (\d+\.\d+)")
"""Anywhere in a line: of workers that share an output one may be behind another's."""


def losses(text: str) -> list[float]:
    found = LOSS.findall(text)
    assert [int(step) for step, _ in found] == list(range(1, 11)), text[-4000:]
    return [float(loss) for _, loss in found]


def here(stack: Path, *line: str, **env: str) -> str:
    """What the example's program prints on this machine, begun by *line*, without a limit."""
    ran = subprocess.run(
        [stack / "bin" / line[0], *line[1:], EXAMPLES / "sharded.py"], check=True, text=True,
        stdout=subprocess.PIPE, timeout=SOON_S,
        env={"PATH": os.environ["PATH"], **env},
    )  # fmt: skip
    return ran.stdout


def whole(stack: Path) -> list[float]:
    """Of one that holds all and has what it takes."""
    return losses(here(stack, "python3"))


@pytest.mark.prove
def test_a_model_that_one_member_cannot_hold_trains_on_three_as_it_would_on_one_that_can(
    tmp_path: Path,
) -> None:
    stack = need_stack()

    async def tell(made: Shown, market: Market) -> None:
        alone = await market.run(
            example("sharded", stack, 1000, memory=MEMORY, changes=["cluster=null"])
        )
        with anyio.fail_after(SOON_S):
            await alone.wait()
        assert alone.reason == "OUT_OF_MEMORY", (alone.view, await said(alone))
        assert "step 1:" not in await said(alone)
        job = example("sharded", stack, memory=MEMORY)
        async with running(made, market, job) as one:
            await until_complete(one)
            printed = [await said(member) for member in one.gang.members]
        held = [re.search(r"holds (\d+) of (\d+) parameters", text) for text in printed]
        assert all(own and int(own[1]) < 0.4 * int(own[2]) for own in held), printed
        expected = await anyio.to_thread.run_sync(whole, stack)
        found = losses("\n".join(printed))
        assert found == pytest.approx(expected, abs=1e-4)
        assert found[-1] < found[0] - 0.1, "it learned"

    story(tmp_path, stack, 3, tell)


@pytest.mark.nightly
def test_fully_sharded_each_holds_its_part_and_the_losses_are_the_same() -> None:
    """Over loopback: over a mesh on two cores it moves too much for a test."""
    stack = need_stack()
    env = {**example("sharded", stack).spec.env, "SHARD": "fsdp"}
    printed = here(stack, "torchrun", "--standalone", "--nproc-per-node=3", **env)
    took = [int(most) for most in re.findall(r"took (\d+) MB at most", printed)]
    assert len(took) == 3 and max(took) < MEMORY, printed
    assert losses(printed) == pytest.approx(whole(stack), abs=1e-4)
