"""While a stranger sends the worst that the limits admit, a hundred leases tick on.

A market in a process of its own, adapters and payers with real sockets and signatures in another,
and the stranger in a third, at another address. A receipt without its voucher after two ticks is a
pause.

With ``make nightly``, and alone there: three processes that keep time on two cores share them with
no other test.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.hub import LoadLost, Rig, ticking
from benchmarks.machine import percentile
from tests.integration.support.stranger import ASK, TALK

LEASES = 100
QUIET_S = 4
ALL = [*TALK, *ASK]


async def attacked(rig: Rig, kinds: Sequence[str], seconds: int) -> dict[str, Any]:
    """What the leases had while a stranger sent *kinds*."""
    await rig.count()
    command = [sys.executable, "-m", "tests.integration.support.stranger", rig.url, str(seconds)]
    done = await anyio.run_process([*command, *kinds], stderr=None, check=False)
    counted = await rig.counted()
    print("+".join(kinds), done.returncode, done.stdout.decode().strip(), shown(counted))
    return counted


def shown(counted: dict[str, Any]) -> dict[str, Any]:
    trips: list[int] = counted["round_trips"]
    parts = {f"p{p}": percentile(trips, p) for p in (50, 99)} if trips else {}
    return {"ticks": len(trips), "late": counted["late"], **parts, "worst": max(trips, default=0)}


def ticked_on(counted: dict[str, Any], seconds: int) -> None:
    said = shown(counted)
    assert not counted["late"] and not counted["refused"], (said, counted["refused"][:3])
    assert len(counted["round_trips"]) >= LEASES * (seconds - 1), said


@asynccontextmanager
async def leases(folder: Path, serving: str = "benchmarks.hub") -> AsyncGenerator[Rig]:
    """A hundred that tick, on a machine that lets them while nobody disturbs."""
    async with ticking(folder, LEASES, serving) as rig:
        await rig.count()
        await anyio.sleep(QUIET_S)
        quiet = await rig.counted()
        print("nobody", shown(quiet))
        if quiet["late"]:
            pytest.skip(
                f"this machine is too busy for {LEASES} leases by themselves: {shown(quiet)}"
            )
        yield rig


@pytest.mark.nightly
@pytest.mark.alone
def test_leases_tick_on_while_a_stranger_does_its_worst_in_every_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with leases(tmp_path) as rig:
            ticked_on(await attacked(rig, ALL, 10), 10)

    anyio.run(run)


@pytest.mark.nightly
@pytest.mark.alone
def test_leases_tick_on_whatever_a_stranger_sends_at_full_pace(tmp_path: Path) -> None:
    async def run() -> None:
        async with leases(tmp_path) as rig:
            for kind in ALL:
                ticked_on(await attacked(rig, [kind], 8), 8)

    anyio.run(run)


@pytest.mark.nightly
@pytest.mark.alone
def test_without_the_limits_the_same_stranger_makes_leases_pause(tmp_path: Path) -> None:
    """So the tests above can fail: 16,000 names of leases in a frame, answered one by one."""

    async def run() -> None:
        async with leases(tmp_path, "tests.integration.support.unpaced") as rig:
            with pytest.raises((AssertionError, LoadLost)):
                ticked_on(await attacked(rig, ["held"], 10), 10)

    anyio.run(run)
