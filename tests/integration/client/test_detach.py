"""``tally job run --detach`` leaves a job to a payer that runs, and to nobody else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.integration.client.test_cli import JOB, Shell
from tests.integration.support.client import World, story
from tests.integration.support.payer import paying

pytestmark = pytest.mark.prove


@asynccontextmanager
async def served(world: World) -> AsyncGenerator[None]:
    """Meanwhile the provider serves what is signed: two ticks, each once it was paid for."""

    async def serve() -> None:
        lease = await world.provider.lease()
        await world.provider.start(lease)
        await world.provider.ticks(lease, 2)
        await world.provider.adapter.finish(lease)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield


def test_a_job_is_left_to_a_payer_that_runs_and_refused_where_none_does(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, job = Shell(world), tmp_path / "job.yaml"
        world.purse()
        job.write_text(JOB)
        alone = await shell.tally("job", "run", str(job), "--yes", "--detach")
        assert alone.returncode == 3 and alone.stderr.startswith("NOBODY_PAYS")
        assert "tally payer run" in alone.stderr
        assert await shell.json("job", "list") == []  # nothing was posted
        assert (await shell.json("purse", "show"))["channels"] == []

        async with paying(shell), served(world):
            left = await shell.tally("job", "run", str(job), "--yes", "--detach")
            assert left.returncode == 0, left.stderr
            assert "`tally payer run` pays for it" in left.stdout
        [done] = await shell.json("job", "list")
        assert (done["state"], done["reason"]) == ("ENDED", "COMPLETED")

    story(tmp_path, tell)


def test_a_gang_is_left_to_a_payer_only(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, job = Shell(world), tmp_path / "gang.yaml"
        world.purse()
        job.write_text(JOB + "gang: {members: 2}\n")
        alone = await shell.tally("job", "run", str(job), "--yes", "--detach")
        assert alone.returncode == 3 and alone.stderr.startswith("NOBODY_PAYS"), alone.stderr
        assert await shell.json("job", "list") == []

    story(tmp_path, tell)
