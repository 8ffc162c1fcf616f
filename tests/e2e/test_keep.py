"""Two commands on one channel, which then ends by itself: nobody of the consumer's is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.support.embedded import PATIENCE_S, command, tally
from tests.e2e.test_process import job_file
from tests.requires import need_bubblewrap, need_devnet

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)


def test_a_kept_channel_serves_the_next_command_and_is_ended_by_its_provider(
    tmp_path: Path,
) -> None:
    need_bubblewrap()
    need_devnet()

    async def main() -> None:
        away = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        started = ("up", "--json", "--home", str(tmp_path / "home"), "--port", "0",
                   "--devnet-port", "0")  # fmt: skip
        with anyio.fail_after(PATIENCE_S):
            async with command(*started, env=away) as running:
                await running.until(lambda it: bool(it.out))
                env = {**running.last, **away}
                env.pop("ready")
                jobs = [await kept(tmp_path, name, env) for name in ("first", "second")]
                bills = [await ended(job, env) for job in jobs]
                channels = {row["channel"] for bill in bills for row in bill["channels"]}
                assert len(channels) == 1, str(bills)
                running.process.terminate()
                assert await running.ended() == 0, str(running)

    anyio.run(main)


async def kept(folder: Path, name: str, env: dict[str, str]) -> str:
    """A job whose channel stays open for a minute, for a next command that starts late; its id."""
    file = job_file(folder, name)
    ran = await tally("job", "run", file, "--yes", "--json", "--keep", "60s", env=env)
    assert ran.process.returncode == 0, str(ran)
    assert (ran.last["reason"], ran.last["settled"]) == ("COMPLETED", False), str(ran)
    (kept_open,) = ran.last["kept"]
    assert kept_open["keep_ms"] == 60_000 and kept_open["comes_home"] > 1_000_000, str(ran)
    return str(ran.last["job"])


async def ended(job: str, env: dict[str, str]) -> dict[str, Any]:
    """The bill of *job*, once its channel has ended on the ledger."""
    while True:
        billed = await tally("invoice", job, "--verify", "--json", env=env)
        if billed.last["reconciled"]:
            return billed.last
        await anyio.sleep(2)
