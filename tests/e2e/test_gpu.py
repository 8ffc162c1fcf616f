"""Jobs on a real GPU from the job file to the bill, on a provider without Docker: `make gpu`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.support.embedded import (
    PATIENCE_S,
    TALLY,
    command,
    tally,
    until_true,
)
from tests.integration.support import burn
from tests.requires import need_bubblewrap, need_devnet, need_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(PATIENCE_S + 120)]
BURN = Path(burn.__file__).read_text()


def job_file(folder: Path, seconds: int, mib: int) -> str:
    """A process that keeps one GPU at work for so many seconds, with so much of its memory."""
    path = folder / f"{seconds}-{mib}.json"
    said = {
        "version": 1,
        "name": "burn",
        "command": ["python3", "-c", BURN, str(seconds), str(mib)],
        "resources": {"cpu": 1, "memory": "2GB", "gpu": {"count": 1}},
        "placement": {"isolation": "process"},
        "price": {"budget": "5 ADA"},
        "policy": {"max_duration": "10m"},
    }
    path.write_text(json.dumps(said))
    return str(path)


async def billed(file: str, env: dict[str, str], reason: str) -> dict[str, Any]:
    """The one line of the reconciled bill of a job that ends for *reason*; not simulated."""
    ran = await tally("job", "run", file, "--yes", "--json", "--keep", "0", env=env)
    assert ran.last["reason"] == reason and ran.last["settled"] is True, str(ran)
    assert ran.last["simulated"] is False, str(ran)
    bill = await tally("invoice", ran.last["job"], "--verify", "--json", env=env)
    assert bill.last["reconciled"] is True, str(bill)
    [line] = bill.last["lines"]
    return line


async def looked_inside(folder: Path, env: dict[str, str]) -> None:
    """A command and a terminal beside a job see the one device of its lease."""
    async with command("job", "run", job_file(folder, 60, 256), "--yes", env=env) as running:

        async def started() -> str:
            jobs = json.loads((await tally("job", "list", "--json", env=env)).out[-1])
            return next((one["id"] for one in jobs if one["state"] == "RUNNING"), "")

        name = await until_true(started, "a running job")
        asked = await tally("job", "exec", name, "--", "nvidia-smi", "-L", env=env)
        found = [line for line in asked.out if line.startswith("GPU ")]
        assert len(found) == 1, str(asked)
        line = shlex.join([*TALLY, "job", "shell", name, "--", "nvidia-smi", "-L"])
        seen = await tally("-qec", line, "/dev/null", env=env, program=["script"])
        assert found[0] in "\n".join(seen.out), str(seen)
        assert (await tally("job", "stop", name, env=env)).process.returncode == 0
        await running.ended()


def test_seconds_of_a_real_gpu_are_metered_billed_and_settled(tmp_path: Path) -> None:
    need_gpu()
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
                worked = await billed(job_file(tmp_path, 8, 4096), env, "COMPLETED")
                assert 8000 <= worked["unit_ms"] <= 12_000, worked  # and its start on the device
                # the next tenant comes to a device that was scrubbed and not quarantined
                refused = await billed(job_file(tmp_path, 8, 10**6), env, "FAILED")
                assert refused["unit_ms"] < 5000, refused
                await looked_inside(tmp_path, env)
                running.process.terminate()
                assert await running.ended() == 0, str(running)

    anyio.run(main)
