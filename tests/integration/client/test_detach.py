"""``tally job run --detach`` leaves a job to a payer that runs, and to nobody else."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.integration.client.test_cli import JOB, Shell, provide
from tests.integration.support.client import World, story
from tests.integration.support.payer import paying

pytestmark = pytest.mark.prove


async def ended(shell: Shell) -> str:
    """Why the only job is over, once it is: the payer is asked last, for the channel's end."""
    with anyio.fail_after(60):
        while (job := (await shell.json("job", "list"))[0])["state"] != "ENDED":  # noqa: ASYNC110
            await anyio.sleep(0.2)
    return job["reason"]


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

        async with paying(shell), anyio.create_task_group() as tasks:
            tasks.start_soon(provide, world)
            left = await shell.tally("job", "run", str(job), "--yes", "--detach")
            assert left.returncode == 0, left.stderr
            assert "`tally payer run` pays for it" in left.stdout
            assert await ended(shell) == "COMPLETED"

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
