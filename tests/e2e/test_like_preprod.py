"""The whole product where blocks come as slowly as on preprod, and the index is behind."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx
import pytest

from tests.e2e.support.embedded import command, tally
from tests.e2e.test_process import job_file
from tests.requires import need_bubblewrap, need_devnet

PATIENCE_S = 900
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(PATIENCE_S + 60)]


def test_a_job_is_run_billed_and_reconciled_at_the_pace_of_a_public_network(tmp_path: Path) -> None:
    need_bubblewrap()
    need_devnet()

    async def main() -> None:
        away = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        started = ("up", "--json", "--home", str(tmp_path / "home"), "--like-preprod",
                   "--port", "0", "--devnet-port", "0")  # fmt: skip
        with anyio.fail_after(PATIENCE_S):
            async with command(*started, env=away) as running:
                await running.until(lambda it: bool(it.out))
                env = {**running.last, **away}
                env.pop("ready")
                control = env["TALLY_CHAIN_URL"].replace("/api/v0", "/devnet/status")
                async with httpx.AsyncClient() as client:
                    assert (await client.get(control)).json()["pace"] == "preprod"
                file = job_file(tmp_path, "slow")
                ran = await tally("job", "run", file, "--yes", "--json", "--keep", "0", env=env)
                assert ran.process.returncode == 0, str(ran)
                assert ran.last["reason"] == "COMPLETED" and ran.last["settled"] is True, str(ran)
                billed = await tally("invoice", ran.last["job"], "--verify", "--json", env=env)
                assert billed.last["reconciled"] is True, str(billed)
                running.process.terminate()
                assert await running.ended() == 0, str(running)

    anyio.run(main)
