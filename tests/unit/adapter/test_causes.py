"""Every cause of unbilled time, from where the adapter sees it to the receipt that states it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.core.events import LinkUp, Measured, Preparing, Started
from adapter.core.wish import WORKLOAD, Wish, WishEvent
from marketplace.domain.errors import IllegalTransition
from marketplace.domain.metering.reading import Cause, Evidence, Phase
from marketplace.domain.work.cluster_order import Verb
from tests.unit.support.adapter import Bench, gpu_job, handle, member_job

S = 1_000_000_000

SHOWN: dict[Cause, dict[str, object]] = {
    Cause.PAUSED: {"phase": Phase.PAUSED},
    Cause.GPU_LOST: {"fault": Cause.GPU_LOST},
    Cause.XID: {"xids": (79,)},
    Cause.ENERGY_RESET: {"evidence": Evidence(energy_mj=1)},
    Cause.IDENTITY: {"workload": "another"},
    Cause.NVML_GONE: {"fault": Cause.NVML_GONE},
    Cause.SUSPENDED: {"mono_ns": 0},
    Cause.UNPROVEN: {"fault": Cause.UNPROVEN},
    **{cause: {"fault": cause} for cause in Cause if cause.off_tip},
}
ORDERED: dict[Cause, Verb] = {
    Cause.ASSEMBLING: Verb.MEET,
    Cause.GROUP_STALLED: Verb.HOLD,
}
MARKED: dict[Cause, dict[str, object]] = {
    Cause.REBOOT: {"boot_id": "another"},
    Cause.CLOCK: {"at_ns": 0},
}
"""What lies between two boots, or before a clock went back, has no length: no line is on a bill."""


def before_the_start() -> set[Cause]:
    bench = Bench()
    bench.do(LinkUp())
    bench.propose()
    bench.sign()
    bench.sight()
    bench.boot_ms += 300
    bench.do(Preparing("lease_1", starting=True))
    bench.boot_ms += 200
    bench.do(Started("lease_1", handle("lease_1", bench.now.wall_ms)))
    bench.measure(tick=False)
    bench.tick()
    return {Cause(part.cause) for part in bench.receipts()[-1].lost}


def after(changes: dict[str, object]) -> Bench:
    bench = Bench().running(gpu_job())
    bench.tick()
    bench.boot_ms += 1000
    seen = replace(bench.reading("lease_1"), **changes)  # pyright: ignore[reportArgumentType]
    bench.do(Measured("lease_1", (seen,), True))
    return bench


def test_every_cause_has_a_case_here() -> None:
    assert before_the_start() | SHOWN.keys() | ORDERED.keys() | MARKED.keys() == set(Cause)


@pytest.mark.parametrize("cause", SHOWN)
def test_a_receipt_states_the_cause_that_the_adapter_saw(cause: Cause) -> None:
    bench = after(SHOWN[cause])
    bench.exit()
    last = bench.receipts()[-1]
    assert last.final and {part.cause: part.ms for part in last.lost} == {cause.value: 1000}


@pytest.mark.parametrize("cause", ORDERED)
def test_a_receipt_states_what_its_consumer_ordered(cause: Cause) -> None:
    bench = Bench().running(member_job())
    bench.order(Verb.RUN)
    bench.measure(tick=False)
    bench.tick()
    bench.order(ORDERED[cause])
    bench.tick()
    bench.exit()
    last = bench.receipts()[-1]
    assert last.final and {part.cause: part.ms for part in last.lost} == {cause.value: 1000}


@pytest.mark.parametrize("cause", MARKED)
def test_a_gap_without_a_length_is_marked_and_never_billed(cause: Cause) -> None:
    bench = after(MARKED[cause])
    (meter,) = bench.lease().meters
    assert dict(meter.lost_ns) == {cause: 0}
    assert bench.receipts()[-1].unit_ms_total == bench.receipts()[0].unit_ms_total


def test_a_workload_that_was_never_begun_cannot_be_paused() -> None:
    with pytest.raises(IllegalTransition):
        WORKLOAD.step(Wish.WAIT, WishEvent.PAUSE)


def test_the_wish_of_a_lease_follows_its_machine_to_the_end() -> None:
    bench = Bench().running()
    wishes = [bench.lease().wish]
    for _ in range(3):
        bench.tick(pay=False)
    wishes.append(bench.lease().wish)
    bench.pay()
    wishes.append(bench.lease().wish)
    bench.exit()
    wishes.append(bench.lease().wish)
    assert wishes == [Wish.RUN, Wish.FREEZE, Wish.RUN, Wish.STOP]
