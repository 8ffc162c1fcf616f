"""Killed before and after every write of its journal, the adapter counts nothing twice and forgets
nothing that was paid for; and through a storm of kills, three leases go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.integration.support.rig import Adapter, Rig

pytestmark = pytest.mark.anyio
TICK_UNITS = 2000  # core-milliseconds of one tick: two cores


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Story:
    """One lease from its proposal to its settlement, played on by whichever adapter lives."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.seconds = 0

    async def play(self, at: int | None, after: bool) -> int:
        """Until the end or the kill; how often the journal wrote."""
        return await self.rig.live(self.body, at, after)

    async def body(self, adapter: Adapter) -> None:
        """What happens, from wherever it stands."""
        rig = self.rig
        if "lease_1" not in rig.market.proposals:
            rig.propose("lease_1")
            await adapter.ask("lease_1")
        while self.seconds < 4:
            self.seconds += 1
            await adapter.second()
        rig.finish("lease_1")
        await adapter.second()
        rig.end()
        await adapter.hear(next(iter(rig.market.ends.values())))
        await adapter.second()

    def verify(self) -> None:
        """The bill: one chain, one start, no instant twice, at most a tick lost."""
        rig = self.rig
        assert rig.world.starts == ["lease_1"]
        assert rig.ledger.settled == [rig.market.session.verify_key]
        last = rig.market.verify()["lease_1"]
        delivered = rig.ran_ms["lease_1"] * 2
        assert last.final
        assert delivered - TICK_UNITS <= last.unit_ms_total <= delivered
        passing = ("PULLING", "STARTING", "PAUSED", "RESUMED")  # a gap may pause it for a voucher
        stages = [s for s in rig.market.stages("lease_1") if s not in passing]
        assert stages == ["CHANNEL_SEEN", "STARTED", "FINISHED", "SETTLED"]
        assert rig.world.workloads == {}


async def writes_of_an_undisturbed_run(folder: Path) -> int:
    story = Story(Rig(folder))
    writes = await story.play(None, False)
    story.verify()
    return writes


async def test_a_kill_before_or_after_every_write_loses_nothing(tmp_path: Path) -> None:
    writes = await writes_of_an_undisturbed_run(tmp_path / "undisturbed")
    assert writes > 20
    for at in range(1, writes + 1):
        for after in (False, True):
            rig = Rig(tmp_path / f"{at}-{after}")
            story = Story(rig)
            await story.play(at, after)
            assert rig.kills == 1, (at, after)
            await story.play(None, False)
            try:
                story.verify()
            except AssertionError as error:
                raise AssertionError(
                    f"killed {'after' if after else 'before'} write {at}"
                ) from error


async def storm(folder: Path, seed: int, kills: int) -> Rig:
    """Three leases on one channel; the adapter dies at a random write, again and again."""
    rig, dice = Rig(folder), random.Random(seed)
    for lease in ("lease_1", "lease_2", "lease_3"):
        rig.propose(lease)

    async def on(adapter: Adapter) -> None:
        while True:
            await adapter.second()

    async def end(adapter: Adapter) -> None:
        await adapter.second()
        for lease in ("lease_1", "lease_2", "lease_3"):
            rig.finish(lease)
        await adapter.second()
        rig.end()
        await adapter.hear(next(iter(rig.market.ends.values())))
        await adapter.second()

    while rig.kills < kills:
        await rig.live(on, dice.randint(1, 25), dice.random() < 0.5)
        rig.pass_ms(dice.randint(0, 4000))  # nobody watches
    await rig.live(end)
    return rig


def check_storm(rig: Rig) -> None:
    """Workloads lived on, and the bills verify against what the host delivered."""
    assert sorted(rig.world.starts) == ["lease_1", "lease_2", "lease_3"]
    last = rig.market.verify()
    for lease, receipt in last.items():
        delivered = rig.ran_ms[lease] * 2
        assert receipt.final
        assert receipt.unit_ms_total <= delivered
        assert receipt.unit_ms_total >= delivered - rig.kills * TICK_UNITS  # a tick a kill at most
    assert len(last) == 3
    assert len(rig.ledger.settled) == 1


async def test_a_short_storm_of_kills(tmp_path: Path) -> None:
    check_storm(await storm(tmp_path, 1, 10))


@pytest.mark.prove
@pytest.mark.parametrize("seed", [2, 3, 4])
async def test_fifty_kills_during_three_leases(tmp_path: Path, seed: int) -> None:
    check_storm(await storm(tmp_path, seed, 50))
