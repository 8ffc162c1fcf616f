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

pytestmark = pytest.mark.timeout(600)

MEMORY: Final = 800
"""As the example's: MiB, of which PyTorch itself takes 200 to 450."""
LOSS: Final = re.compile(r"^step (\d+): loss (\d+\.\d+)", re.MULTILINE)


def losses(text: str) -> list[float]:
    found = LOSS.findall(text)
    assert [int(step) for step, _ in found] == list(range(1, 11)), text[-4000:]
    return [float(loss) for _, loss in found]


def whole(stack: Path) -> list[float]:
    """Of the same program by itself, that holds all and has what it takes."""
    ran = subprocess.run(
        [stack / "bin" / "python3", EXAMPLES / "sharded.py"], check=True, text=True,
        stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}, timeout=SOON_S,
    )  # fmt: skip
    return losses(ran.stdout)


@pytest.mark.parametrize("shard", [
    pytest.param("tensor", marks=pytest.mark.prove),
    pytest.param("fsdp", marks=pytest.mark.nightly),
])  # fmt: skip
def test_a_model_that_one_member_cannot_hold_trains_on_three_as_it_would_on_one_that_can(
    tmp_path: Path, shard: str
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
        job = example("sharded", stack, memory=MEMORY, SHARD=shard)
        async with running(made, market, job) as one:
            await until_complete(one)
            printed = [await said(member) for member in one.gang.members]
        print("\n".join(printed))
        held = [re.search(r"holds (\d+) of (\d+) parameters", text) for text in printed]
        assert all(own and int(own[1]) < 0.4 * int(own[2]) for own in held), printed
        expected = await anyio.to_thread.run_sync(whole, stack)
        found = losses("\n".join(printed))
        assert found == pytest.approx(expected, abs=1e-4)
        assert found[-1] < found[0] - 0.1, "it learned"

    story(tmp_path, stack, 3, tell)
