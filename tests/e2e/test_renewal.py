"""A job runs on beyond its agreed end, once by hand and then by rule, while ``tally payer run`` pays
for it: no second is missing in its service or in its account.
"""

from __future__ import annotations

import json
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
FIRST_S, MORE_S, LEFT_S, RUNS_S = 40, 30, 20, 125
MORE = ("--for", f"{MORE_S}s")
LINE = f"for n in $(seq {RUNS_S}); do date +%s; sleep 1; done"


def test_a_job_that_is_renewed_by_rule_runs_on_without_a_gap(tmp_path: Path) -> None:
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
    async with command("payer", "run", "--json", env=env) as payer:
        await payer.until(lambda said: any('"ready"' in line for line in said.out))
        ran = await tally("job", "run", file, "--yes", "--json", "--keep", "0", "--detach", env=env)
        assert ran.process.returncode == 0, str(ran)
        job = await until_true(lambda: runs_now(env), "a job that runs")
        said = await tally("job", "renew", job, *MORE, "--yes", "--json", env=env)
        assert said.process.returncode == 0, str(said)
        assert said.last["paid_in"] > 0
        assert said.last["max_duration_ms"] == (FIRST_S + MORE_S) * 1000

        by_rule = ("job", "renew", job, *MORE, "--when-left", f"{LEFT_S}s", "--json")
        asked = await tally(*by_rule, env=env)  # what spends later is agreed to now
        assert asked.process.returncode == 3 and "NOT_CONFIRMED" in str(asked), str(asked)
        by_rule += ("--yes",)
        dear = await tally(*by_rule, "--day-budget", "0.01 ADA", env=env)
        assert dear.process.returncode == 3 and "DAY_BUDGET" in str(dear), str(dear)
        said = await tally(*by_rule, "--day-budget", "1 ADA", env=env)
        assert said.process.returncode == 0, str(said)
        assert said.last["rule"]["left_ms"] == LEFT_S * 1000
        shown = await tally("job", "show", job, env=env)
        assert "by itself for 30s, each time that less than 20s is left" in " ".join(
            " ".join(shown.out).split()
        )
        ended = await until_true(lambda: over(env, job), "the job's own end")
        told = [json.loads(line) for line in payer.out]
    assert ended["reason"] == "COMPLETED", f"{ended} {payer}"
    assert len([row for row in told if row["event"] == "renewed"]) >= 2, told
    assert not [row for row in told if row["event"] == "not_renewed"], told

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


async def over(env: dict[str, str], job: str) -> dict[str, Any] | None:
    """The job, once it has ended."""
    await anyio.sleep(1)
    shown = (await tally("job", "show", job, "--json", env=env)).last
    return shown if shown["state"] == "ENDED" else None
