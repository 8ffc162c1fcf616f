"""Killed before and after every write of its journal, an adapter bills a cluster's member for the
time of its consumer's orders to run, and for no other; what was held stays frozen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.domain.metering.reading import Cause
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.workload import WorkloadState
from tests.integration.support.rig import Adapter, Rig
from tests.unit.support.adapter import member_job

pytestmark = pytest.mark.anyio

ORDERS = {1: Verb.RUN, 4: Verb.HOLD, 6: Verb.RUN, 7: Verb.MEET}
"""By the second after which each is given: three run, two stand, one runs, one waits."""
LAST = 8
CORES_MILLI = 2000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Story:
    """One member from its proposal to its end, played on by whichever adapter lives."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.seconds = 0
        self.told = 0
        self.run_ms = 0

    async def play(self, at: int | None, after: bool) -> int:
        """Until the end or the kill; how often the journal wrote."""
        return await self.rig.live(self.body, at, after)

    async def body(self, adapter: Adapter) -> None:
        """What happens, from wherever it stands."""
        rig = self.rig
        if "lease_1" not in rig.market.proposals:
            rig.propose("lease_1", member_job())
            await adapter.ask("lease_1")
        while self.seconds < LAST:
            if self.seconds in ORDERS and self.told < self.seconds:
                self.told = self.seconds
                await adapter.hear(self.ordered(ORDERS[self.seconds]))
            work = rig.world.workloads.get("lease_1")
            if rig.market.orders and work is not None:
                verb = rig.market.orders["lease_1"].order.order.verb
                frozen = work.state is WorkloadState.PAUSED
                assert frozen is (verb is Verb.HOLD), f"{verb} in second {self.seconds}"
                self.run_ms += 1000 if verb is Verb.RUN else 0
            self.seconds += 1
            await adapter.second()
        rig.finish("lease_1")
        await adapter.second()
        rig.end()
        await adapter.hear(next(iter(rig.market.ends.values())))
        await adapter.second()

    def ordered(self, verb: Verb) -> wire.OrderSent:
        """The consumer's next order; the market keeps it from now on."""
        market = self.rig.market
        signed = SignedOrder.sign(market.session, ClusterOrder("lease_1", self.seconds, verb))
        market.orders["lease_1"] = wire.OrderSent("lease_1", signed)
        return market.orders["lease_1"]

    def verify(self) -> None:
        """The bill: one chain, no time but that of orders to run, of which a second is lost before
        the first reading after the first, and one by the kill; the rest has its cause.
        """
        rig = self.rig
        receipts = rig.market.receipts()
        last = rig.market.verify()["lease_1"]
        assert last.final and rig.world.starts == ["lease_1"]
        billed_ms = last.unit_ms_total * 1000 // CORES_MILLI
        assert self.run_ms - 1000 * (1 + rig.kills) <= billed_ms <= self.run_ms == 4000
        lost = dict.fromkeys(Cause, 0)
        for part in (part for receipt in receipts for part in receipt.lost):
            lost[Cause(part.cause)] += part.ms
        assert lost[Cause.ASSEMBLING] >= 1000 and lost[Cause.GROUP_STALLED] >= 1000
        stages = [
            (m.detail["verb"], m.detail["version"])
            for m in rig.market.heard
            if isinstance(m, wire.LeaseProgress) and m.stage == "ORDERED"
        ]
        assert list(dict.fromkeys(stages)) == [(str(verb), at) for at, verb in ORDERS.items()]
        assert rig.world.workloads == {}


async def test_a_kill_at_any_write_bills_no_time_that_was_not_ordered(tmp_path: Path) -> None:
    story = Story(Rig(tmp_path / "undisturbed"))
    writes = await story.play(None, False)
    story.verify()
    assert writes > 30
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
                when = "after" if after else "before"
                raise AssertionError(f"killed {when} write {at}") from error
