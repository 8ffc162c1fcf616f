"""``tally demo --json``: the whole story, as a person would start it."""

from __future__ import annotations

import signal

import anyio
import pytest

from tests.e2e.support.embedded import PATIENCE_S, command, parts_of, until_gone, until_true
from tests.requires import need_devnet, need_docker

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)


def test_the_demo_reconciles() -> None:
    need_docker()
    need_devnet()

    async def main() -> None:
        async with command("demo", "--json", "--simulate", "h100x2") as demo:
            assert await demo.ended(PATIENCE_S) == 0, str(demo)
        said = demo.last
        assert said["reconciled"] is True, str(demo)
        by_kind = {job["resource"]: job for job in said["jobs"]}
        assert sorted(by_kind) == ["core", "gpu"]
        cpu, gpu = by_kind["core"], by_kind["gpu"]
        assert cpu["unit_ms"] > 0 and cpu["simulated"] is False
        assert gpu["unit_ms"] > 0 and gpu["simulated"] is True
        assert "SIMULATED" in gpu["device"]
        for job in said["jobs"]:
            held = job["unit_ms"]
            assert job["owed"] == held * job["rate_micro"] // 10**9 > 0
            assert job["ticks"] >= 1
            assert held <= (job["docker_ms"] + 1000) * job["units_milli"] // 1000
        assert said["claimed"] == sum(job["owed"] for job in said["jobs"])
        assert said["refunded"] > 0 and said["fees"] > 0
        assert len(said["transactions"]) == 4  # two opens, two finishes
        assert all(len(bytes.fromhex(tx)) == 32 for tx in said["transactions"])
        assert any("reconciled" in line for line in demo.err)

    anyio.run(main)


def test_a_demo_that_is_interrupted_says_so_and_leaves_nothing() -> None:
    """Ctrl-C while it starts: every part is stopped in order, and the answer is no."""
    need_devnet()

    async def main() -> None:
        async with command("demo", "--json", "--simulate", "h100x2") as demo:

            async def parts() -> list[int]:
                return parts_of(demo.process.pid)

            await demo.until(lambda it: any("process" in line for line in it.err))
            children = await until_true(parts, "a part")
            demo.process.send_signal(signal.SIGINT)
            assert await demo.ended() == 1, str(demo)
        assert demo.last == {"reconciled": False}
        await until_gone(children)

    anyio.run(main)
