"""The meter on the host's own clocks: against Docker's times for cores, and for a GPU below pynvml.

Five seconds here, from the first reading on, so that a crowded machine's slow start is not counted
as the meter's error; twenty under ``make prove`` and a minute under ``make nightly``, against the
container's whole life.  The bound is the specification's: within 1 s.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from adapter.core.lifecycle import new_meters
from adapter.core.ticks import fold
from adapter.core.workload import Handle, Runtime
from adapter.devices.nvml.nvml import Nvml
from adapter.host.cgroup import Cgroups
from adapter.host.clock import HostClock
from adapter.metering.meter import Metering, Subject
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.process import ProcessRuntime
from adapter.simulate.host import SimHost
from adapter.simulate.library import SimulatedNvml
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import Phase
from marketplace.domain.supply.grant import Grant
from marketplace.domain.work.workload import WorkloadSpec, WorkloadState
from tests.integration.support import images
from tests.requires import need_bubblewrap, need_docker
from tests.unit.support.meter import off_by_ms

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[DockerRuntime]:
    need_docker()
    made = images.docker_runtime(tmp_path)
    yield made
    if made.client is not None:
        made.client.close()


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    made = Nvml(SimulatedNvml(SimHost("h100x2")))
    made.open()
    yield made
    made.close()


async def metered(
    runtime: Runtime, handle: Handle, metering: Metering, devices: tuple[str, ...]
) -> tuple[tuple[Meter, ...], int, int]:
    """Poll about once a second until the exit, as the adapter does; the meters, and
    the wall-clock times of the first reading and of the end."""

    def subject(phase: Phase, finished: int | None = None) -> Subject:
        return Subject(
            handle.lease, handle.id, handle.started_ms, phase, devices, handle.cgroup, finished
        )

    running = subject(Phase.RUNNING)
    meters = new_meters(Grant(devices, 1000, 500, 0, 0))
    began = 0
    while True:
        status = await runtime.status(handle)
        if status.state is WorkloadState.EXITED:
            finished = status.times.finished_ms
            assert finished is not None
            last = subject(Phase.EXITED, finished)
            meters = fold(meters, metering.poll([last])[handle.lease])
            return meters, began, finished
        meters = fold(meters, metering.poll([running])[handle.lease])
        if not began and meters[0].last is not None:
            began = meters[0].last.wall_ms
        await anyio.sleep(0.7)


def busy(seconds: int, **changes: object) -> WorkloadSpec:
    code = f"import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: time.sleep(.001)"
    return images.python_spec(code, cpu_milli=500, **changes)


def agrees(meters: tuple[Meter, ...], started: int, finished: int) -> None:
    assert finished > started
    for meter in meters:
        assert abs(off_by_ms(meter, started, finished)) <= 1000
        assert meter.billed_ns > 0
        assert not meter.lost_ms()


@pytest.mark.docker
@pytest.mark.parametrize(
    "seconds",
    [
        5,
        pytest.param(20, marks=pytest.mark.prove),
        pytest.param(60, marks=[pytest.mark.nightly, pytest.mark.alone]),
    ],
)
async def test_gpu_and_cores_agree_with_dockers_own_times(
    docker: DockerRuntime, nvml: Nvml, seconds: int
) -> None:
    uuids = tuple(gpu.uuid for gpu in nvml.inventory())
    metering = Metering(HostClock(), nvml, Cgroups())
    found: dict[str, tuple[tuple[Meter, ...], int, int]] = {}

    async def one(name: str, devices: tuple[str, ...]) -> None:
        async with images.running(docker, busy(seconds)) as handle:
            found[name] = await metered(docker, handle, metering, devices)

    async with anyio.create_task_group() as group:
        group.start_soon(one, "gpu", uuids)
        group.start_soon(one, "core", ())
    for meters, began, finished in found.values():
        agrees(meters, began, finished)
        last = meters[0].last
        if seconds >= 20 and last is not None:
            # The machine's, to the first reading; both ends are whole milliseconds.
            late = max(0, began - last.started_ms - 1000 + 2)
            agrees(meters, last.started_ms + late, finished)
    assert len(found["gpu"][0]) == 2
    core = found["core"][0][0]
    assert core.unit_ms == core.billed_ns * 500 // 1000 // 1_000_000
    assert core.summary.cpu_ns > 0


async def test_a_process_agrees_with_its_shims_times(tmp_path: Path) -> None:
    need_bubblewrap()
    runtime = ProcessRuntime(ProcessConfig(tmp_path, images.lease_id("a")))
    job = WorkloadSpec(images.lease_id(), "", ("sleep", "4"), memory_mib=64)
    async with images.running(runtime, job) as handle:
        agrees(*await metered(runtime, handle, Metering(HostClock()), ()))


def test_the_adapters_hands_stay_small(tmp_path: Path) -> None:
    """Inventory, meter and both runtimes imported and used: well under the adapter's 120 MB, and
    without the market's or a web framework's weight."""
    code = """
import sys
from pathlib import Path
from adapter.devices.inventory import Inventory
from adapter.metering.meter import Metering, Subject
from adapter.host.clock import HostClock
from adapter.devices.nvml.nvml import Nvml
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.process import ProcessRuntime
from adapter.doctor.run import run_doctor
from adapter.simulate.host import SimHost
from adapter.simulate.library import SimulatedNvml
from marketplace.domain.metering.reading import Phase
nvml = Nvml(SimulatedNvml(SimHost('a100x8'))); nvml.open()
host = Inventory(nvml, Path(sys.argv[1])).take()
subjects = [Subject(g.uuid, 'c', 0, Phase.RUNNING, (g.uuid,)) for g in host.gpus]
metering = Metering(HostClock(), nvml)
for _ in range(200): metering.poll(subjects)
heavy = {'fastapi', 'numpy', 'sqlmodel', 'sqlalchemy'} & set(sys.modules)
heavy |= {m for m in sys.modules if m.startswith(('marketplace.market', 'marketplace.store'))}
# VmHWM belongs to this program; ru_maxrss also remembers the process that started it
peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
print(int(peak.split()[1]) >> 10, sorted(heavy))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    size, heavy = done.stdout.decode().strip().split(" ", 1)
    assert heavy == "[]"
    assert int(size) <= 120
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
