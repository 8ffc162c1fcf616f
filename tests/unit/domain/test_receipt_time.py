"""Rule I9: usage never grows faster than time x units, and what was lost never exceeds the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adapter.core.events import Exited, LinkUp, Preparing, Started
from adapter.core.ticks import lost_total
from adapter.core.workload import Status, Times
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import Cause, Phase
from marketplace.domain.money.receipt import (
    GENESIS,
    Lost,
    Receipt,
    ReceiptRefused,
    check_time,
    most_unit_ms,
)
from marketplace.domain.work.workload import ExitReason, WorkloadState
from tests.unit.support.adapter import Bench, handle

BEFORE = Receipt(
    session_vk=bytes(32), lease="lease_1", seq=1, t0_ms=0, t1_ms=10_000, wall_ms=1, device=bytes(32),
    resource="gpu", unit_ms_total=9_000, lease_owed=0, channel_owed=0, lost=(), readings=bytes(32),
    previous=GENESIS, final=False,
)  # fmt: skip
NEXT = replace(BEFORE, seq=2, t0_ms=10_000, t1_ms=11_000, unit_ms_total=10_000)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"unit_ms_total": 10_002},  # both ends of the tick and the total before are rounded down
        {"unit_ms_total": 9_000, "lost": (Lost("paused", 1000),)},
        {"unit_ms_total": 9_600, "lost": (Lost("paused", 300), Lost("xid", 102))},
        {"t1_ms": 10_000, "unit_ms_total": 9_002},
    ],
)
def test_what_there_was_time_for_holds(change: dict[str, Any]) -> None:
    check_time(replace(NEXT, **change), BEFORE, 1000)


@pytest.mark.parametrize(
    ("change", "way"),
    [
        ({"unit_ms_total": 10_003}, "growth"),
        ({"unit_ms_total": 3_609_000}, "total"),
        ({"unit_ms_total": 9_000, "lost": (Lost("paused", 1001),)}, "lost"),
        ({"unit_ms_total": 9_600, "lost": (Lost("paused", 300), Lost("xid", 103))}, "growth"),
        ({"lost": (Lost("paused", 3),)}, "growth"),
    ],
)
def test_what_there_was_no_time_for_is_refused(change: dict[str, Any], way: str) -> None:
    with pytest.raises(ReceiptRefused) as caught:
        check_time(replace(NEXT, **change), BEFORE, 1000)
    assert caught.value.fields["way"] == way


def test_rounding_kept_back_is_never_more_than_the_whole_time() -> None:
    full = replace(BEFORE, unit_ms_total=10_000)
    with pytest.raises(ReceiptRefused, match="11001 unit-ms in 11000 ms"):
        check_time(replace(NEXT, unit_ms_total=11_001), full, 1000)
    first = replace(BEFORE, t1_ms=1000, unit_ms_total=250)
    check_time(first, None, 250)
    with pytest.raises(ReceiptRefused, match="251 unit-ms in 1000 ms"):
        check_time(replace(first, unit_ms_total=251), None, 250)


@pytest.mark.parametrize("units", [1, 10, 250, 333, 1000, 2500, 8000])
@pytest.mark.parametrize("elapsed", [0, 1, 7, 999, 60_000])
@pytest.mark.parametrize("lost", [0, 1, 6])
def test_what_the_adapter_may_state_is_what_the_rule_lets_pass(
    units: int, elapsed: int, lost: int
) -> None:
    before = 10_000 * units // 1000 - 5 * (units > 500)
    last, t1, lost = replace(BEFORE, unit_ms_total=before), 10_000 + elapsed, min(lost, elapsed)
    told = replace(NEXT, t1_ms=t1, lost=(Lost("paused", lost),) if lost else ())
    most = most_unit_ms(10_000, t1, lost, units, before)
    check_time(replace(told, unit_ms_total=most), last, units)
    with pytest.raises(ReceiptRefused):
        check_time(replace(told, unit_ms_total=most + 1), last, units)


@pytest.mark.parametrize("units", [10, 250, 333, 1000, 2500])
def test_a_lease_that_runs_without_a_break_is_billed_all_of_its_time(units: int) -> None:
    """Rounding is carried on, never lost: ticks of odd lengths, the total within a unit-ms."""
    last, at_ns, start_ns = None, 0, 40_000_000
    for tick in range(500):
        at_ns += 1_000_000_000 + (tick * 7_919_113) % 9_000_000
        true = (at_ns - start_ns) * units // 1_000_000_000
        t0, before = (last.t1_ms, last.unit_ms_total) if last else (0, 0)
        t1, lost = at_ns // 1_000_000, 40 if last is None else 0
        total = min(true, most_unit_ms(t0, t1, lost, units, before))
        told = (Lost("starting", lost),) if lost else ()
        following = replace(BEFORE, t0_ms=t0, t1_ms=t1, unit_ms_total=total, lost=told)
        check_time(following, last, units)
        last = following
        assert true - total <= 1


# --- the producer ---------------------------------------------------------------------------------


def test_a_start_that_fails_loses_no_more_time_than_there_was() -> None:
    """The runtime dates the death before the moment at which the start was reported."""
    bench = Bench()
    bench.do(LinkUp())
    bench.propose()
    bench.sign()
    bench.sight()
    bench.boot_ms += 57
    bench.do(Preparing("lease_1", starting=True))
    bench.boot_ms += 1479
    begun = bench.now.wall_ms
    bench.do(Started("lease_1", handle("lease_1", begun)))
    end = replace(bench.reading("lease_1", Phase.EXITED), at_ns=(bench.boot_ms - 160) * 1_000_000)
    times = Times(begun - 160, begun - 160, 127)
    bench.do(
        Exited("lease_1", Status(WorkloadState.EXITED, times, ExitReason.START_FAILED), (end,))
    )
    (receipt,) = bench.receipts()
    assert {part.cause: part.ms for part in receipt.lost} == {"pulling": 57, "starting": 1479}
    assert receipt.t1_ms == 1536 and receipt.unit_ms_total == 0
    check_time(receipt, None, bench.lease().terms.units_milli)


def test_one_lost_device_of_two_is_half_of_the_leases_time() -> None:
    lost = Meter("gpu", "GPU-1", 1000, lost_ns=((Cause.GPU_LOST, 500_000_000),))
    good = Meter("gpu", "GPU-2", 1000, billed_ns=500_000_000)
    lease = replace(Bench().running().lease(), meters=(lost, good))
    assert lost_total(lease)["gpu_lost"] == 250
