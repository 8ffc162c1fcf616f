"""The doors to a real GPU: `make gpu` runs these where an NVIDIA driver answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter.devices.inventory import default_rate_micro
from adapter.devices.nvml.nvml import Nvml
from adapter.devices.scrub import Quarantine, ScrubFailed, Wipe, scrub, wipe_in_child
from marketplace.domain.metering.reading import Evidence
from marketplace.domain.supply.hardware import Gpu, Health
from tests.integration.support import burn, device_memory
from tests.requires import need_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
MIB = 4096


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    need_gpu()
    made = Nvml()
    made.open()
    yield made
    made.close()


@pytest.fixture
def gpu(nvml: Nvml) -> Gpu:
    return nvml.inventory()[0]


@contextmanager
def busy(seconds: float) -> Generator[subprocess.Popen[str]]:
    """A process that holds 4 GiB of the device and keeps it at work."""
    command = [sys.executable, burn.__file__, str(seconds), str(MIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "busy\n"
        try:
            yield process
        finally:
            process.kill()


def seen(nvml: Nvml, gpu: Gpu) -> Evidence:
    sample = nvml.samples([gpu.uuid])[gpu.uuid]
    assert sample.error is None
    return sample.evidence


def hardware(what: str, uuid: str, way: str = "fetched") -> Any:
    """What the program beside this says, in a process that sees this device alone."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    command = [sys.executable, "-m", device_memory.__name__, what, way]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=True
    )
    said = json.loads(done.stdout)
    return Wipe(**said) if what == "wipe" else said


def until(there: Callable[[], bool], patience_s: float = 20.0) -> None:
    deadline = time.monotonic() + patience_s
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_real_device_is_described_whole(gpu: Gpu) -> None:
    assert gpu.uuid.startswith("GPU-") and gpu.health is Health.OK and not gpu.simulated
    assert gpu.vram_mib > 1000 and gpu.pcie is not None and default_rate_micro(gpu) > 0


def test_the_slice_profiles_of_any_driver_are_read(nvml: Nvml, gpu: Gpu) -> None:
    for profile in nvml.mig_profiles(gpu.uuid):
        assert profile.memory_mib > 0 and profile.most > 0 and "g." in profile.name


def test_work_shows_in_the_readings_and_ends_with_its_process(nvml: Nvml, gpu: Gpu) -> None:
    idle = seen(nvml, gpu)
    with busy(60) as process:
        until(lambda: (seen(nvml, gpu).util_permille or 0) > 500)
        at_work = seen(nvml, gpu)
        assert (at_work.memory_mib or 0) >= (idle.memory_mib or 0) + MIB
        assert len(nvml.processes(gpu.uuid)) == 1
        process.kill()
        until(lambda: not nvml.processes(gpu.uuid))
    after = seen(nvml, gpu)
    assert (after.memory_mib or 0) < (at_work.memory_mib or 0)
    if idle.energy_mj is not None:
        assert after.energy_mj is not None and after.energy_mj > idle.energy_mj


@pytest.mark.parametrize("compiler", [True, False], ids=["counted there", "fetched"])
def test_a_whole_device_is_scrubbed_well_before_its_deadline(
    nvml: Nvml, gpu: Gpu, tmp_path: Path, compiler: bool
) -> None:
    with busy(1) as process:
        process.wait()
    quarantine = Quarantine(tmp_path / "quarantine.json")

    def wiper(uuid: str) -> Wipe:
        return wipe_in_child(uuid, timeout_s=60) if compiler else hardware("wipe", uuid)

    done = scrub(gpu.uuid, nvml, wiper, quarantine)
    assert done.complete() and done.checked_mib > gpu.vram_mib * 9 // 10
    assert quarantine.all() == {}


@pytest.mark.parametrize("way", ["counted there", "fetched"])
def test_one_word_that_differs_is_found_on_the_device(gpu: Gpu, way: str) -> None:
    """The check of a scrub must be able to fail: what it says of memory whose content is known."""
    found = hardware("count", gpu.uuid, way)
    counted = way == "counted there"
    words = (8 << 20) // 4
    assert found == {
        "same": 0, "first": 1, "middle": 1, "last": 1, "three": 3 if counted else 1,
        "none": words if counted else 1,
    }  # fmt: skip


def test_a_device_at_work_is_not_scrubbed_under_it(nvml: Nvml, gpu: Gpu, tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.json")
    with busy(60), pytest.raises(ScrubFailed, match="still used by"):
        scrub(gpu.uuid, nvml, wipe_in_child, quarantine, settle_s=1)
    assert gpu.uuid in quarantine.all()
