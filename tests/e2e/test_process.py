"""A provider without Docker: jobs without an image run as plain processes, from the job file to the
bill.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapter.host.cgroup import Cgroups
from tests.e2e.support.embedded import PATIENCE_S, command, tally
from tests.requires import need_bubblewrap, need_devnet

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)

WHO = "import getpass, os; print(getpass.getuser(), os.getuid(), 'in', os.getcwd(), flush=True)"


def job_file(folder: Path, name: str, **more: Any) -> str:
    """A job of two seconds without an image."""
    path = folder / f"{name}.json"
    said = {
        "version": 1,
        "name": name,
        "command": ["python3", "-c", f"{WHO}\nimport time\ntime.sleep(2)"],
        "resources": {"cpu": 0.5, "memory": "128MB"},
        "placement": {"isolation": "process"},
        "price": {"budget": "5 ADA"},
        "policy": {"max_duration": "10m"},
        **more,
    }
    path.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
    return str(path)


def test_a_host_without_docker_runs_cores_and_gpus_to_a_reconciled_bill(tmp_path: Path) -> None:
    need_bubblewrap()
    need_devnet()

    async def main() -> None:
        away = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        started = ("up", "--json", "--home", str(tmp_path / "home"), "--simulate", "h100x2",
                   "--port", "0", "--devnet-port", "0")  # fmt: skip
        with anyio.fail_after(PATIENCE_S):
            async with command(*started, env=away) as running:
                await running.until(lambda it: bool(it.out))
                env = {**running.last, **away}
                env.pop("ready")
                leases = await story(tmp_path, env)
                running.process.terminate()
                assert await running.ended() == 0, str(running)
        left = [str(group) for group in Cgroups().root.glob("**/tally/*")]
        assert not [group for group in left if group.endswith(leases)]

    anyio.run(main)


async def story(folder: Path, env: dict[str, str]) -> tuple[str, ...]:
    """Two jobs and their bills, then what is refused; the leases."""
    leases: list[str] = []
    gpu = {"cpu": 0.5, "memory": "128MB", "gpu": {"count": 1}}
    for file, resource in (
        (job_file(folder, "cores"), "core"),
        (job_file(folder, "device", resources=gpu), "gpu"),
    ):
        ran = await tally("job", "run", file, "--yes", "--json", "--keep", "0", env=env)
        assert ran.process.returncode == 0, str(ran)
        assert ran.last["reason"] == "COMPLETED" and ran.last["settled"] is True, str(ran)
        billed = await tally("invoice", ran.last["job"], "--verify", "--json", env=env)
        assert billed.last["reconciled"] is True, str(billed)
        [line] = billed.last["lines"]
        assert line["resource"] == resource and line["unit_ms"] > 0, str(billed)
        leases.append(line["lease"])
        logged = await tally("job", "logs", ran.last["job"], env=env)
        assert "tally 10001 in /workspace" in "\n".join(logged.out), str(logged)
    await refused(folder, env)
    return tuple(leases)


async def refused(folder: Path, env: dict[str, str]) -> None:
    """What no host gives is refused at the quote, with its reason, and costs nothing."""
    image = "sha256:" + "ab" * 32
    for isolation in ("container", "vm"):
        held = job_file(folder, isolation, image=image, placement={"isolation": isolation})
        for verb in (("job", "quote", held), ("job", "run", held, "--yes")):
            said = await tally(*verb, "--json", env=env)
            text = "\n".join([*said.out, *said.err])
            assert said.process.returncode == 3 and "NO_MATCH" in text, str(said)
            assert "do not isolate as asked" in text and "isolation process" in text, str(said)
    found = await tally("offers", "search", "isolation=vm", "--explain", "--json", env=env)
    assert "isolation=vm" in "\n".join(found.out), str(found)
    there = await tally("offers", "search", "isolation=process", "--json", env=env)
    assert "h100" in "\n".join(there.out).lower(), str(there)
    both = await tally("job", "quote", job_file(folder, "both", image=image), env=env)
    assert both.process.returncode == 3 and "leave out one of the two" in str(both), str(both)
