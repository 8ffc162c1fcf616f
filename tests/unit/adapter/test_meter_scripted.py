"""Ten simulated minutes through the real binding, and every scripted fault against its bill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from adapter.core.lifecycle import new_meters
from adapter.core.ticks import fold
from adapter.devices.nvml.nvml import Nvml
from adapter.metering.meter import Metering, Subject
from adapter.simulate.host import FaultKind, ScriptedFault, SimClock, SimHost, SimProcess
from adapter.simulate.library import SimulatedNvml
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import Cause, Phase
from marketplace.domain.metering.usage import usage
from marketplace.domain.supply.grant import Grant
from tests.unit.support.meter import off_by_ms

Rig = Callable[..., "Bench"]


class Bench:
    """A simulated host, its meter, and one lease on its first device."""

    def __init__(self, profile: str, script: tuple[ScriptedFault, ...], deadline_s: float) -> None:
        self.clock = SimClock()
        self.host = SimHost(profile, self.clock, script)
        self.nvml = Nvml(SimulatedNvml(self.host), deadline_s=deadline_s)
        self.nvml.open()
        uuid = self.nvml.inventory()[0].uuid
        self.started = self.clock.wall_ms()
        self.subject = Subject("lease", "c" * 64, self.started, Phase.RUNNING, (uuid,))
        self.metering = Metering(self.clock, self.nvml)
        self.meters = new_meters(Grant((uuid,), 1000, 1000, 0, 0))

    def poll(self) -> None:
        self.meters = fold(self.meters, self.metering.poll([self.subject])["lease"])

    def run(self, seconds: int) -> Meter:
        for _ in range(seconds):
            self.clock.advance(1000)
            self.poll()
        return self.meters[0]


@pytest.fixture
def rig() -> Iterator[Rig]:
    benches: list[Bench] = []

    def make(*script: ScriptedFault, profile: str = "h100x2", deadline_s: float = 20) -> Bench:
        benches.append(Bench(profile, script, deadline_s))
        benches[-1].poll()
        return benches[-1]

    yield make
    for bench in benches:
        bench.host.clear_faults()
        bench.nvml.close()


def test_ten_minutes_are_metered_within_a_thousandth(rig: Rig) -> None:
    bench = rig()
    steps = [997, 1003, 1000, 250, 1740, 1011, 999]  # a loop that never keeps its second
    passed = 0
    while passed < 600_000:
        step = min(steps[passed % len(steps)], 600_000 - passed)
        bench.clock.advance(step)
        passed += step
        bench.poll()
    meter = bench.meters[0]
    assert abs(meter.delivered_ms - 600_000) <= 600
    assert off_by_ms(meter, bench.started, bench.clock.wall_ms()) == 0
    assert usage(bench.meters).unit_ms("gpu") == meter.delivered_ms


FAULTS = {
    "gpu lost": (FaultKind.GPU_LOST, 0, Cause.GPU_LOST),
    "xid 79": (FaultKind.XID, 79, Cause.XID),
    "uuid change": (FaultKind.UUID_CHANGE, 0, Cause.IDENTITY),
    "nvml gone": (FaultKind.NVML_GONE, 0, Cause.NVML_GONE),
    "polls missed for ever": (FaultKind.MISSED, 0, Cause.NVML_GONE),
}


@pytest.mark.parametrize(("kind", "value", "cause"), FAULTS.values(), ids=FAULTS)
def test_a_lasting_fault_bills_nothing_past_the_last_good_tick(
    rig: Rig, kind: FaultKind, value: int, cause: Cause
) -> None:
    bench = rig(ScriptedFault(30_500, kind, 0, value=value))
    meter = bench.run(120)
    assert meter.delivered_ms == 30_000
    assert meter.lost_ms()[cause] > 60_000
    assert meter.fault is cause


def test_an_energy_reset_loses_its_segment(rig: Rig) -> None:
    meter = rig(ScriptedFault(30_500, FaultKind.ENERGY_RESET)).run(60)
    assert meter.delivered_ms == 59_000
    assert meter.lost_ms() == {Cause.ENERGY_RESET: 1000}


def test_a_sleeping_host_delivers_nothing(rig: Rig) -> None:
    meter = rig(ScriptedFault(30_500, FaultKind.CLOCK_JUMP, value=3_600_000)).run(60)
    assert 58_000 <= meter.delivered_ms <= 59_000
    assert meter.lost_ms()[Cause.SUSPENDED] >= 3_600_000


def test_a_step_of_the_wall_clock_changes_nothing(rig: Rig) -> None:
    meter = rig(ScriptedFault(30_500, FaultKind.WALL_JUMP, value=-86_400_000)).run(60)
    assert meter.delivered_ms == 60_000


def test_a_reboot_loses_its_segment(rig: Rig) -> None:
    meter = rig(ScriptedFault(30_500, FaultKind.REBOOT)).run(60)
    assert meter.delivered_ms == 59_000


def test_a_few_missed_polls_are_bridged(rig: Rig) -> None:
    meter = rig(ScriptedFault(30_500, FaultKind.MISSED, for_ms=4000)).run(60)
    assert meter.delivered_ms == 60_000


def test_a_hung_nvml_is_a_missed_poll_and_then_a_fault(rig: Rig) -> None:
    bench = rig(deadline_s=0.3)
    bench.host.fault_now(FaultKind.HANG)
    meter = bench.run(20)
    assert meter.delivered_ms == 0
    assert meter.fault is Cause.NVML_GONE
    assert meter.lost_ms()[Cause.NVML_GONE] >= 10_000


def test_processes_are_attributed_by_start_time_and_strangers_are_counted(rig: Rig) -> None:
    import os

    bench = rig()
    bench.host.set_processes(0, [SimProcess(os.getpid(), 100, 10)])
    bench.metering.relist(bench.subject.devices[0])
    meter = bench.run(1)
    assert meter.last is not None
    assert meter.last.evidence.strangers == 1  # this test is in no container of the lease
    bench.host.fault_now(FaultKind.PID_REUSE, value=2**22 - 1)
    bench.metering.relist(bench.subject.devices[0])
    meter = bench.run(1)
    assert meter.last is not None
    assert meter.last.evidence.strangers == 0
    assert meter.delivered_ms == 2000


def test_a_mig_slice_is_metered_with_gpm(rig: Rig) -> None:
    bench = rig(profile="h100")
    whole = bench.subject.devices[0]
    profiles = {one.name: one for one in bench.nvml.mig_profiles(whole)}
    bench.nvml.set_mig(whole, True)
    bench.nvml.create_slice(whole, profiles["2g.20gb"])
    part = bench.nvml.inventory()[0]
    assert part.slice is not None
    bench.host.set_processes(0, [SimProcess(77, 10, 40, slice_id=part.slice.gpu_instance)])
    bench.subject = Subject("lease", "c" * 64, 0, Phase.RUNNING, (part.uuid,))
    bench.meters = new_meters(Grant((part.uuid,), 1000, 1000, 0, 0))
    bench.poll()
    meter = bench.run(10)
    assert meter.delivered_ms == 10_000
    assert meter.last is not None and meter.last.evidence.util_permille == 400
    bench.host.fault_now(FaultKind.XID, value=79)
    assert bench.run(5).delivered_ms == 10_000


def test_process_lists_are_asked_for_rarely(rig: Rig) -> None:
    bench = rig()
    library = bench.nvml._library
    assert isinstance(library, SimulatedNvml)
    before = library.calls
    bench.run(100)
    per_poll = (library.calls - before) / 100
    assert per_poll < 12, "more calls than the cheap set"


@pytest.mark.prove
def test_the_meter_costs_less_than_half_a_per_cent_of_a_core_per_gpu(rig: Rig) -> None:
    bench = rig(profile="a100x8")
    uuids = tuple(gpu.uuid for gpu in bench.nvml.inventory())
    subjects = [Subject(f"l{n}", "c" * 64, 0, Phase.RUNNING, (u,)) for n, u in enumerate(uuids)]
    spent = time.process_time()
    for _ in range(300):
        bench.clock.advance(1000)
        bench.metering.poll(subjects)
    per_gpu_second = (time.process_time() - spent) / 300 / len(uuids)
    assert per_gpu_second <= 0.005
