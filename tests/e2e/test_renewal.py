"""A job runs on beyond its agreed end, twice, while another command pays for it: no second is missing in its service or in
its account.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from marketplace.cli.embedded.product import Embedded
from marketplace.domain.money import evidence
from tests.e2e.support.embedded import PATIENCE_S, command, embedded, tally, until_true
from tests.e2e.support.volumes import job_file
from tests.requires import need_devnet, need_docker
from tests.unit.support.browser_verifier import browser_says

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)
FIRST_S, MORE_S, RUNS_S = 40, 30, 85
LINE = f"for n in $(seq {RUNS_S}); do date +%s; sleep 1; done"


def test_a_job_that_is_renewed_twice_runs_on_without_a_gap(tmp_path: Path) -> None:
    need_docker()
    need_devnet()

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with embedded(tmp_path) as place:
                await renewed(tmp_path, place)

    anyio.run(main)


async def renewed(folder: Path, place: Embedded) -> None:
    env = place.environment
    file = job_file(
        folder, "long", image=place.image, command=["sh", "-c", LINE],
        policy={"max_duration": f"{FIRST_S}s"},
    )  # fmt: skip
    async with command("job", "run", file, "--yes", "--json", "--keep", "0", env=env) as runs:
        job = await until_true(lambda: runs_now(env), "a job that runs")
        for longest_s in (FIRST_S + MORE_S, FIRST_S + 2 * MORE_S):
            more = ("job", "renew", job, "--for", f"{MORE_S}s", "--yes", "--json")
            said = await tally(*more, env=env)
            assert said.process.returncode == 0, str(said)
            assert said.last["paid_in"] > 0
            assert said.last["max_duration_ms"] == longest_s * 1000
        await runs.process.wait()
    assert runs.last["reason"] == "COMPLETED", str(runs)

    ticks = [int(line) for line in (await tally("job", "logs", job, env=env)).out if line.isdigit()]
    assert len(ticks) == RUNS_S
    assert all(later - earlier <= 3 for earlier, later in pairwise(ticks))

    saved = folder / "evidence.json"

    async def bill() -> dict[str, Any] | None:
        said = await tally("invoice", job, "--verify", "--json", "--save", str(saved), env=env)
        return said.last if said.last["reconciled"] else None

    [line] = (await until_true(bill, "the channel's end"))["lines"]
    assert line["unit_ms"] > (FIRST_S + 10) * 1000 // 2  # half a core, beyond the first end
    [said] = browser_says([(saved.read_text(), [])])
    assert said["rule"] == "", said
    [channel] = evidence.read(saved.read_text()).channels
    for earlier, later in pairwise(one.receipt for one in channel.receipts):
        assert (later.t0_ms, later.previous) == (earlier.t1_ms, earlier.hash)


async def runs_now(env: dict[str, str]) -> str | None:
    """The job that runs."""
    await anyio.sleep(1)
    said = await tally("job", "list", "--state", "RUNNING", "--json", env=env)
    running = cast("list[dict[str, Any]]", said.last)
    return running[0]["id"] if running else None
