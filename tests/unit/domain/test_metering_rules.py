"""The meter's arithmetic: one healthy run, then one case for each rule that stops the bill."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.metering.codec import MeterMalformed, meter_from_wire, meter_to_wire
from marketplace.domain.metering.merkle import MerkleLog, merkle_root
from marketplace.domain.metering.meter import Meter, integrate
from marketplace.domain.metering.reading import (
    Cause,
    Evidence,
    FaultClass,
    Phase,
    Reading,
    classify_xid,
)
from marketplace.domain.metering.usage import usage

S = 1_000_000_000


def reading(seconds: float, **changes: object) -> Reading:
    at = int(seconds * S)
    base = Reading(
        at_ns=at,
        mono_ns=at,
        wall_ms=at // 1_000_000,
        boot_id="boot",
        device="GPU-1",
        workload="container",
        started_ms=1,
        phase=Phase.RUNNING,
        evidence=Evidence(energy_mj=int(seconds * 1000), util_permille=500, memory_mib=100),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run(*readings: Reading, resource: str = "gpu", weight: int = 1000) -> Meter:
    meter = Meter(resource, "GPU-1", weight)  # type: ignore[arg-type]
    for one in readings:
        meter = integrate(meter, one)
    return meter


def test_a_healthy_run_bills_its_whole_life() -> None:
    meter = run(reading(10), reading(11), reading(12.5), reading(13, phase=Phase.EXITED))
    assert meter.delivered_ms == 3000
    assert meter.unit_ms == 3000
    assert meter.lost_ms() == {}
    assert meter.summary.energy_mj == 3000
    assert meter.summary.readings == 4


def test_the_share_and_the_cores_weigh_the_time() -> None:
    assert run(reading(0), reading(3), weight=250).unit_ms == 750
    assert run(reading(0), reading(3), weight=2500, resource="core").unit_ms == 7500


LOST_AFTER_TWO = {
    "gpu lost": ({"fault": Cause.GPU_LOST}, Cause.GPU_LOST),
    "nvml gone": ({"fault": Cause.NVML_GONE}, Cause.NVML_GONE),
    "provider xid": ({"xids": (79,)}, Cause.XID),
    "another device": ({"device": "GPU-2"}, Cause.IDENTITY),
    "another container": ({"workload": "other"}, Cause.IDENTITY),
    "another start time": ({"started_ms": 2}, Cause.IDENTITY),
    "another boot": ({"boot_id": "later"}, Cause.REBOOT),
    "energy went backwards": ({"evidence": Evidence(energy_mj=1)}, Cause.ENERGY_RESET),
    "the host slept": ({"mono_ns": 2 * S}, Cause.SUSPENDED),
    "paused": ({"phase": Phase.PAUSED}, Cause.PAUSED),
}


@pytest.mark.parametrize(("changes", "cause"), LOST_AFTER_TWO.values(), ids=LOST_AFTER_TWO)
def test_nothing_is_billed_past_the_last_good_reading(
    changes: dict[str, object], cause: Cause
) -> None:
    meter = run(reading(1), reading(2), reading(4, **changes))
    assert meter.delivered_ms == 1000
    assert cause in dict(meter.lost_ns)


@pytest.mark.parametrize("fault", [{"fault": Cause.GPU_LOST}, {"xids": (79,)}, {"device": "G"}])
def test_a_fallen_device_stays_fallen_however_healthy_it_looks(fault: dict[str, object]) -> None:
    meter = run(reading(1), reading(2), reading(3, **fault), reading(4), reading(5))
    assert meter.delivered_ms == 1000
    assert meter.fault is not None


@pytest.mark.parametrize("xid", [63, 92, 94])
def test_a_passing_xid_loses_its_segments_only(xid: int) -> None:
    meter = run(reading(1), reading(2), reading(3, xids=(xid,)), reading(4), reading(5))
    assert meter.delivered_ms == 2000
    assert meter.lost_ms() == {Cause.XID: 2000}


def test_a_tenants_xid_is_billed_and_recorded() -> None:
    meter = run(reading(1), reading(2, xids=(13,)), reading(3))
    assert meter.delivered_ms == 2000
    assert meter.summary.xids == (13,)


def test_a_pause_is_free_and_shown() -> None:
    meter = run(
        reading(1), reading(2), reading(2, phase=Phase.PAUSED),
        reading(9, phase=Phase.PAUSED), reading(9), reading(10),
    )  # fmt: skip
    assert meter.delivered_ms == 2000
    assert meter.lost_ms() == {Cause.PAUSED: 7000}


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause.off_tip])
def test_a_relay_is_billed_between_two_looks_that_found_it_at_its_tip(cause: Cause) -> None:
    meter = run(reading(1), reading(2), reading(3, fault=cause), reading(4), reading(5))
    assert (meter.delivered_ms, meter.lost_ms()) == (2000, {cause: 2000})
    assert meter.latched is None and meter.fault is None


def test_no_counter_shows_that_a_relay_served_while_nobody_looked() -> None:
    """An adapter that was away, or had rather not look, bills none of it."""
    seen = Evidence(energy_mj=9000, cpu_ns=9 * S, tip=(100, b"t" * 32))
    before = replace(seen, energy_mj=1, cpu_ns=1)
    meter = run(
        reading(1, evidence=before), reading(6, evidence=before), reading(12, evidence=seen)
    )
    assert (meter.delivered_ms, meter.lost_ms()) == (5000, {Cause.UNPROVEN: 6000})
    assert (
        run(
            reading(1, evidence=replace(before, tip=None)),
            reading(12, evidence=replace(seen, tip=None)),
        ).delivered_ms
        == 11_000
    )


def test_a_missed_poll_of_five_seconds_is_bridged_without_proof() -> None:
    blind = Evidence()
    meter = run(reading(1, evidence=blind), reading(6, evidence=blind))
    assert meter.delivered_ms == 5000


def test_a_longer_gap_needs_proof() -> None:
    blind = Evidence()
    assert run(reading(1), reading(61)).delivered_ms == 60_000
    unproven = run(reading(1, evidence=blind), reading(61, evidence=blind))
    assert unproven.delivered_ms == 0
    assert unproven.lost_ms() == {Cause.UNPROVEN: 60_000}


def test_cores_prove_a_gap_by_their_cpu_time() -> None:
    def core(seconds: float, cpu: int | None) -> Reading:
        return reading(seconds, evidence=Evidence(cpu_ns=cpu))

    assert run(core(1, 5), core(31, 9), resource="core").delivered_ms == 30_000
    assert run(core(1, 9), core(31, 5), resource="core").delivered_ms == 0
    assert run(core(1, None), core(31, 5), resource="core").delivered_ms == 0


def test_a_clock_that_goes_backwards_never_bills_an_instant_twice() -> None:
    meter = run(reading(10), reading(12), reading(5), reading(11), reading(12), reading(13))
    assert meter.delivered_ms == 3000
    assert Cause.CLOCK in dict(meter.lost_ns)


def test_an_exit_before_the_last_poll_ends_the_meter() -> None:
    meter = run(reading(1), reading(2), reading(1.8, phase=Phase.EXITED), reading(9))
    assert meter.delivered_ms == 1000
    assert meter.last is not None and meter.last.phase is Phase.EXITED


def test_nothing_is_billed_after_the_exit() -> None:
    meter = run(reading(1), reading(2, phase=Phase.EXITED), reading(3), reading(4))
    assert meter.delivered_ms == 1000


def test_a_device_that_died_with_its_workload_bills_to_the_last_good_reading() -> None:
    died = reading(3, phase=Phase.EXITED, fault=Cause.GPU_LOST)
    assert run(reading(1), reading(2), died).delivered_ms == 1000


def test_the_wall_clock_is_only_a_label() -> None:
    meter = run(reading(1), reading(2, wall_ms=9_999_999_999), reading(3, wall_ms=0))
    assert meter.delivered_ms == 2000


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=40))
def test_billed_time_never_exceeds_the_span_of_the_readings(stamps: list[int]) -> None:
    meter = run(*(reading(ms / 1000) for ms in stamps))
    assert 0 <= meter.delivered_ms <= max(stamps) - stamps[0] if max(stamps) > stamps[0] else True
    assert meter.delivered_ms <= max(0, max(stamps) - stamps[0])


@given(st.lists(st.sampled_from([0.5, 1.0, 7.0]), min_size=1, max_size=30), st.integers(0, 30))
def test_a_restart_between_any_two_readings_changes_nothing(steps: list[float], cut: int) -> None:
    now, readings = 0.0, [reading(0)]
    for step in steps:
        now += step
        readings.append(reading(now))
    whole = run(*readings)
    meter = Meter("gpu", "GPU-1", 1000)
    for place, one in enumerate(readings):
        meter = integrate(meter, one)
        if place == cut:
            meter = meter_from_wire(meter_to_wire(meter))
    assert meter.billed_ns == whole.billed_ns
    assert meter.log.root == whole.log.root
    assert meter.summary == whole.summary


def test_a_damaged_meter_is_refused() -> None:
    wire = meter_to_wire(run(reading(1), reading(2)))
    for name in ("resource", "log", "summary", "lost_ns"):
        with pytest.raises(MeterMalformed):
            meter_from_wire({**wire, name: "nonsense"})


def test_the_xid_classes() -> None:
    assert {x: classify_xid(x) for x in (13, 79, 999)} == {
        13: FaultClass.TENANT,
        79: FaultClass.PROVIDER,
        999: None,
    }


def _tree(leaves: list[bytes]) -> bytes:
    """RFC 9162's recursive definition, as the oracle."""

    def digest(data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=32).digest()

    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return digest(b"\x01" + _tree(leaves[:half]) + _tree(leaves[half:]))


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70))
def test_the_logs_root_is_the_tree_over_all_leaves(leaves: list[bytes]) -> None:
    assert merkle_root(leaves) == _tree(leaves)


def test_the_log_is_small_and_notices_every_change() -> None:
    leaves = [reading(n).leaf() for n in range(1000)]
    log = MerkleLog()
    for leaf in leaves:
        log = log.add(leaf)
    assert len(log.peaks) <= 10
    assert log.root == merkle_root(leaves)
    assert log.root != merkle_root([*leaves[:500], reading(5000).leaf(), *leaves[501:]])
    assert reading(1).leaf() != reading(1, phase=Phase.PAUSED).leaf()


def test_a_leases_usage_sums_its_devices() -> None:
    first = run(reading(0), reading(4))
    second = replace(run(reading(0), reading(2), reading(4, fault=Cause.NVML_GONE)), device="GPU-0")
    total = usage([first, second])
    assert total.unit_ms("gpu") == 6000
    assert total.unit_ms("gpu") == 6000
    assert total.lost_ms == ((Cause.NVML_GONE, 2000),)
    assert total.util_permille == 500
    assert total.root == usage([second, first]).root


def test_a_volume_is_there_while_nobody_looks_if_its_file_system_is_the_one_that_was() -> None:
    """What was ever written to it only grows: a smaller count is another file system's."""

    def seen(at: float, written: int | None) -> Reading:
        return reading(at, evidence=Evidence(written_kib=written))

    def held(*readings: Reading) -> Meter:
        meter = Meter("disk", reading(0).device, 2000)
        for one in readings:
            meter = integrate(meter, one)
        return meter

    kept = held(seen(1, 10), seen(100, 10), seen(101, 50))
    assert (kept.delivered_ms, kept.unit_ms, kept.lost_ms()) == (100_000, 200_000, {})
    other = held(seen(1, 10), seen(100, 9), seen(101, 9))
    assert (other.delivered_ms, other.lost_ms()) == (1000, {Cause.UNPROVEN: 99_000})
    assert held(seen(1, 10), seen(100, None)).lost_ms() == {Cause.UNPROVEN: 99_000}
