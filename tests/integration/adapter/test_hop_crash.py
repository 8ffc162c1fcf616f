"""Killed before and after every write of its journal, an adapter that a router pays says no Paid
whose payment its disk does not hold, counts nothing twice, and ends with all that is due.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from adapter.daemon.status import report
from marketplace.domain.protocol import wire
from tests.integration.support.rig import Adapter
from tests.integration.support.rig_hop import HopMarket, HopRig
from tests.unit.support.hop_out import HOP, key_of

pytestmark = pytest.mark.anyio
TICK_UNITS = 2000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def on_disk(adapter: Adapter, rig: HopRig) -> None:
    """Whatever was said to be paid before this life lies in the journal that it woke up with."""
    hop = adapter.daemon.state.channels[HOP.verify_key].hop
    assert hop is not None
    for lease, amount in rig.router.paid.items():
        assert (hop.leaf(rig.router.hashes[lease]) or 0) >= amount, "a Paid that no disk held"


class Story:
    """One routed lease from its hop to the end of it, played on by whichever adapter lives."""

    def __init__(self, folder: Path) -> None:
        self.rig = HopRig(folder, market=HopMarket())
        self.seconds = 0

    async def play(self, at: int | None, after: bool) -> int:
        return await self.rig.live(self.body, at, after)

    async def body(self, adapter: Adapter) -> None:
        rig = self.rig
        if HOP.verify_key in adapter.daemon.state.channels:
            on_disk(adapter, rig)
        if "lease_1" not in rig.router.proposals:
            await adapter.hear(rig.ask("lease_1"))
        while self.seconds < 4:
            self.seconds += 1
            await adapter.second()
        rig.finish("lease_1")
        await adapter.second()
        rig.end()
        await adapter.hear(next(iter(rig.router.ends.values())))
        await adapter.second()

    def verify(self) -> None:
        rig = self.rig
        assert rig.world.starts == ["lease_1"]
        assert rig.ledger.settled == [HOP.verify_key]
        last, delivered = rig.router.verify()["lease_1"], rig.ran_ms["lease_1"] * 2
        assert last.final and last.session_vk == key_of("lease_1").verify_key
        assert delivered - TICK_UNITS <= last.unit_ms_total <= delivered
        assert rig.router.paid["lease_1"] == last.lease_owed == rig.router.paying.total
        passing = ("PULLING", "STARTING", "PAUSED", "RESUMED")
        stages = [s for s in rig.router.stages("lease_1") if s not in passing]
        assert stages == ["CHANNEL_SEEN", "STARTED", "FINISHED", "SETTLED"]
        assert rig.world.workloads == {}
        refused = [m for m in rig.router.heard if isinstance(m, wire.HopRefused)]
        assert {m.code for m in refused} <= {"HOP_UNKNOWN"}  # its hop had ended by then


async def test_a_kill_before_or_after_every_write_loses_nothing(tmp_path: Path) -> None:
    undisturbed = Story(tmp_path / "undisturbed")
    writes = await undisturbed.play(None, False)
    undisturbed.verify()
    assert writes > 20
    for at in range(1, writes + 1):
        for after in (False, True):
            story = Story(tmp_path / f"{at}-{after}")
            await story.play(at, after)
            assert story.rig.kills == 1, (at, after)
            await story.play(None, False)
            try:
                story.verify()
            except AssertionError as error:
                side = "after" if after else "before"
                raise AssertionError(f"killed {side} write {at}") from error


async def storm(folder: Path, seed: int, kills: int) -> HopRig:
    """Three leases on one hop; the adapter dies at a random write, again and again."""
    rig, dice, names = HopRig(folder, market=HopMarket()), random.Random(seed), "abc"
    for name in names:
        rig.ask(f"lease_{name}")

    async def on(adapter: Adapter) -> None:
        if HOP.verify_key in adapter.daemon.state.channels:
            on_disk(adapter, rig)
        while True:
            await adapter.second()
            for lease in sorted(rig.router.proposals.keys() - rig.router.signed.keys()):
                await adapter.hear(rig.router.proposals[lease])  # declined before its hop was seen

    async def end(adapter: Adapter) -> None:
        await adapter.second()
        for name in names:
            rig.finish(f"lease_{name}")
        await adapter.second()
        rig.end()
        await adapter.hear(next(iter(rig.router.ends.values())))
        await adapter.second()

    while rig.kills < kills:
        await rig.live(on, dice.randint(1, 25), dice.random() < 0.5)
        rig.pass_ms(dice.randint(0, 4000))  # nobody watches
    await rig.live(end)
    return rig


def check_storm(rig: HopRig) -> None:
    last = rig.router.verify()
    assert len(last) == 3 and rig.ledger.settled == [HOP.verify_key]
    for lease, receipt in last.items():
        delivered = rig.ran_ms[lease] * 2
        assert receipt.final and receipt.unit_ms_total <= delivered
        assert receipt.unit_ms_total >= delivered - rig.kills * TICK_UNITS
        assert rig.router.paid[lease] == receipt.lease_owed
    assert rig.router.paying.total == sum(one.lease_owed for one in last.values())


async def test_a_short_storm_of_kills(tmp_path: Path) -> None:
    check_storm(await storm(tmp_path, 1, 10))


@pytest.mark.prove
@pytest.mark.parametrize("seed", [2, 3, 4])
async def test_fifty_kills_during_three_leases(tmp_path: Path, seed: int) -> None:
    check_storm(await storm(tmp_path, seed, 50))


async def test_what_its_owner_is_told_of_a_lease_that_a_router_pays(tmp_path: Path) -> None:
    rig = HopRig(tmp_path, market=HopMarket())
    shown: list[dict[str, object]] = []

    async def body(adapter: Adapter) -> None:
        await adapter.hear(rig.ask("lease_1"))
        for _ in range(3):
            await adapter.second()
        shown.append(report(adapter.daemon))

    await rig.live(body)
    (told,) = shown
    (lease,), (channel,) = told["leases"], told["channels"]  # pyright: ignore[reportGeneralTypeIssues]
    owed = rig.router.verify()["lease_1"].lease_owed
    assert (lease["hop"], lease["paid"], lease["owed"]) == (HOP.verify_key.hex(), owed, owed)
    hop = channel["hop"]
    assert (hop["leases"], hop["reserved"], hop["forked"]) == (1, lease["ceiling"] - owed, False)
    assert (channel["owed"], channel["paid"], channel["unclaimed"]) == (owed, owed, owed)
