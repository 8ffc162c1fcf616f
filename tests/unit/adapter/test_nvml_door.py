"""The NVML edge: its thread, its deadlines, its errors, the inventory, MIG by plan, the scrub."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from adapter.config import Config
from adapter.core.state import State
from adapter.devices.inventory import Inventory, Place, Reserve, default_rate_micro
from adapter.devices.mig import Create, Destroy, Enable, SlicePlanRefused, apply, steps
from adapter.devices.nvml.faults import DeviceLost, NvmlAbsent, NvmlBusy, NvmlHung, map_nvml
from adapter.devices.nvml.nvml import GpuProcess, Nvml
from adapter.devices.scrub import Quarantine, ScrubFailed, Wipe, scrub
from adapter.devices.wipe import wipe
from adapter.equipment import divide
from adapter.simulate.cuda import SimulatedCuda, simulated_wiper
from adapter.simulate.host import FaultKind, SimClock, SimHost, SimProcess, load_script
from adapter.simulate.library import SimulatedNvml
from marketplace.domain.errors import Malformed, NotFound
from marketplace.domain.supply.hardware import Gpu, Health, HostHardware, MigMode, Sharing


@pytest.fixture
def host() -> SimHost:
    return SimHost("h100+rtx4090", SimClock())


@pytest.fixture
def nvml(host: SimHost) -> Iterator[Nvml]:
    made = Nvml(SimulatedNvml(host), deadline_s=20)
    made.open()
    yield made
    host.clear_faults()
    made.close()


def test_a_machine_without_nvml_says_so() -> None:
    absent = Nvml(object())  # a library without a single symbol
    with pytest.raises(Exception, match="Function Not Found"):
        absent.open()
    absent.close()
    with pytest.raises(NvmlAbsent), map_nvml("init"):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_the_inventory_names_every_device_and_marks_it_simulated(nvml: Nvml) -> None:
    h100, rtx = nvml.inventory()
    assert h100.model == "SIMULATED NVIDIA H100 80GB HBM3"
    assert (h100.vram_mib, h100.compute_capability, h100.simulated) == (81559, "9.0", True)
    assert (h100.mig, rtx.mig) == (MigMode.DISABLED, MigMode.UNSUPPORTED)
    assert h100.pcie is not None and h100.pcie.generation == 5
    assert Gpu.from_wire(json.loads(json.dumps(h100.to_wire()))) == h100


def test_a_hung_call_ends_at_its_deadline_and_blocks_no_other_thread(
    host: SimHost, nvml: Nvml
) -> None:
    host.fault_now(FaultKind.HANG)
    with pytest.raises(NvmlHung, match="deadline"):
        nvml.inventory(0.2)
    with pytest.raises(NvmlHung, match="earlier"):
        nvml.memory_mib("GPU-any")
    host.clear_faults()
    deadline = 1000
    while deadline:
        try:
            assert len(nvml.inventory()) == 2
            break
        except NvmlHung:
            deadline -= 1
            time.sleep(0.02)
    assert deadline, "the thread never came back"


def test_a_lost_device_is_listed_as_lost(host: SimHost, nvml: Nvml, tmp_path: Path) -> None:
    inventory = Inventory(nvml, tmp_path, Place(host="h", region="eu"), Reserve())
    before = inventory.take()
    assert [gpu.health for gpu in before.gpus] == [Health.OK, Health.OK]
    host.fault_now(FaultKind.GPU_LOST, device=1)
    after = inventory.take()
    lost = after.gpu(before.gpus[1].uuid)
    assert lost is not None and lost.health is Health.LOST
    assert after.rentable() == (before.gpus[0],)
    with pytest.raises(DeviceLost):
        raise nvml.samples([before.gpus[1].uuid])[before.gpus[1].uuid].error or AssertionError


def test_the_reserve_is_kept_from_the_market(nvml: Nvml, tmp_path: Path) -> None:
    first, second = nvml.inventory()
    keep = Reserve(shares={first.uuid: 500}, excluded=frozenset({second.uuid}), memory_mib=10**9)
    taken = Inventory(nvml, tmp_path, reserve=keep).take()
    assert [(gpu.uuid, gpu.share) for gpu in taken.gpus] == [(first.uuid, 500)]
    assert taken.memory_mib == 0
    assert taken.simulated
    assert HostHardware.from_wire(taken.to_wire()) == taken


def test_prices_have_sane_defaults(nvml: Nvml) -> None:
    h100, rtx = nvml.inventory()
    assert default_rate_micro(h100) > default_rate_micro(rtx) > 0


# -- MIG by plan -----------------------------------------------------------------------------------


def test_a_plan_makes_slices_and_unmakes_them(nvml: Nvml) -> None:
    whole = nvml.inventory()[0].uuid
    made = apply({whole: ["1g.10gb", "3g.40gb", "1g.10gb"]}, nvml, held=())
    parts = [gpu for gpu in made if gpu.slice is not None]
    assert sorted(gpu.slice.profile for gpu in parts if gpu.slice) == [
        "1g.10gb", "1g.10gb", "3g.40gb",
    ]  # fmt: skip
    assert all(gpu.uuid.startswith("MIG-") and gpu.sharing is Sharing.MIG for gpu in parts)
    held = next(gpu.uuid for gpu in parts if gpu.slice and gpu.slice.profile == "3g.40gb")
    kept = apply({whole: ["2g.20gb", "3g.40gb"]}, nvml, held={held})
    profiles = sorted(gpu.slice.profile for gpu in kept if gpu.slice)
    assert profiles == ["2g.20gb", "3g.40gb"]
    assert held in {gpu.uuid for gpu in kept}
    assert [gpu.slice for gpu in apply({whole: []}, nvml, held=())] == [None, None]


def test_profiles_that_the_driver_does_not_know_are_left_out(nvml: Nvml) -> None:
    h100, rtx = nvml.inventory()
    names = [profile.name for profile in nvml.mig_profiles(h100.uuid)]
    assert "1g.10gb" in names and "7g.80gb" in names
    assert nvml.mig_profiles(rtx.uuid) == []


def test_a_slice_that_a_lease_holds_is_never_destroyed(nvml: Nvml) -> None:
    whole = nvml.inventory()[0].uuid
    part = apply({whole: ["7g.80gb"]}, nvml, held=())[0]
    with pytest.raises(SlicePlanRefused, match="no place"):
        apply({whole: ["3g.40gb"]}, nvml, held={part.uuid})
    assert part.uuid in {gpu.uuid for gpu in nvml.inventory()}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (["9g.900gb"], "no profile"),
        (["4g.40gb"] * 2, "holds 1"),
        (["3g.40gb"] * 2 + ["2g.20gb"], "7"),
    ],
)
def test_an_impossible_plan_is_refused(nvml: Nvml, wanted: list[str], why: str) -> None:
    with pytest.raises(SlicePlanRefused, match=why):
        apply({nvml.inventory()[0].uuid: wanted}, nvml, held=())


def test_mig_does_not_change_under_a_running_process(host: SimHost, nvml: Nvml) -> None:
    host.set_processes(0, [SimProcess(1, 10)])
    with pytest.raises(NvmlBusy):
        apply({nvml.inventory()[0].uuid: ["1g.10gb"]}, nvml, held=())


def test_the_steps_of_a_plan_are_ordered() -> None:
    whole = Gpu("GPU-a", "A100", 80_000, mig=MigMode.DISABLED)
    assert steps({"GPU-a": ["1g.10gb"]}, [whole], ()) == [
        Enable("GPU-a", True),
        Create("GPU-a", "1g.10gb"),
    ]
    assert steps({"GPU-a": ["1g.10gb"]}, [whole], {"GPU-a"}) == []
    with pytest.raises(SlicePlanRefused, match="no MIG"):
        steps({"GPU-b": ["1g.10gb"]}, [Gpu("GPU-b", "T4", 15_000)], ())
    assert not any(isinstance(one, Destroy) for one in steps({}, [whole], ()))


# -- scrub -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", [True, False], ids=["counted there", "fetched"])
def test_a_tenants_memory_is_gone_after_the_scrub(
    host: SimHost, nvml: Nvml, tmp_path: Path, compiler: bool
) -> None:
    host.gpus[0].residue = b"canary of the last tenant" * 1000
    uuid = nvml.inventory()[0].uuid
    cuda = SimulatedCuda(host, 0, compiler=compiler)
    done = scrub(uuid, nvml, lambda _uuid: wipe(cuda), Quarantine(tmp_path / "q.json"))
    assert done.complete() and done.residue_blocks > 0
    assert host.gpus[0].residue == b""
    assert SimulatedCuda(host, 0).memory.find(b"canary") == -1


@pytest.mark.parametrize("compiler", [True, False], ids=["counted there", "fetched"])
def test_memory_that_does_not_take_the_pattern_quarantines_the_device(
    host: SimHost, nvml: Nvml, tmp_path: Path, compiler: bool
) -> None:
    quarantine = Quarantine(tmp_path / "quarantine.json")
    uuid = nvml.inventory()[0].uuid
    stuck = SimulatedCuda(host, 0, stuck=frozenset({12_345}), compiler=compiler)
    with pytest.raises(ScrubFailed, match="bad blocks"):
        scrub(uuid, nvml, lambda _uuid: wipe(stuck), quarantine)
    inventory = Inventory(nvml, tmp_path)
    assert inventory.take().gpus[0].health is Health.QUARANTINED
    assert quarantine.release(uuid) and not quarantine.release(uuid)
    assert inventory.take().gpus[0].health is Health.OK


def test_a_device_that_is_still_in_use_is_not_scrubbed(
    host: SimHost, nvml: Nvml, tmp_path: Path
) -> None:
    host.set_processes(0, [SimProcess(99, 10)])
    uuid = nvml.inventory()[0].uuid
    waited: list[float] = []
    quarantine = Quarantine(tmp_path / "q.json")

    def wiper(_uuid: str) -> Wipe:
        raise AssertionError("must not be reached")

    with pytest.raises(ScrubFailed, match="still used by 99"):
        scrub(uuid, nvml, wiper, quarantine, settle_s=3, pause=waited.append)
    assert sum(waited) == 3
    assert quarantine.reason(uuid)


def test_the_scrub_waits_for_a_tenant_to_leave(host: SimHost, nvml: Nvml, tmp_path: Path) -> None:
    host.set_processes(0, [SimProcess(99, 10)])
    uuid = nvml.inventory()[0].uuid
    done = scrub(
        uuid, nvml, simulated_wiper(host), Quarantine(tmp_path / "q"),
        pause=lambda _s: host.set_processes(0, []),
    )  # fmt: skip
    assert done.complete()


def test_too_little_memory_covered_is_a_failure(nvml: Nvml, tmp_path: Path) -> None:
    class Idle:
        def processes(self, uuid: str) -> list[GpuProcess]:
            return []

    with pytest.raises(ScrubFailed):
        scrub("GPU-a", Idle(), lambda _u: Wipe(1000, 900, 0), Quarantine(tmp_path / "q"))


# -- the simulator's own script --------------------------------------------------------------------


def test_scripts_and_profiles_are_checked(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text('[{"at_ms": 5, "kind": "xid", "value": 79}]')
    assert load_script(good)[0].value == 79
    bad = tmp_path / "bad.json"
    bad.write_text('[{"at_ms": 5, "kind": "gremlins"}]')
    with pytest.raises(Malformed):
        load_script(bad)
    with pytest.raises(NotFound):
        SimHost("voodoo2x2")


def test_the_owners_plan_is_applied_when_the_adapter_starts(nvml: Nvml) -> None:
    whole = nvml.inventory()[0].uuid
    divide(Config(slices={whole: ("3g.40gb",)}), nvml, State())
    divide(Config(), None, State())
    assert [gpu.slice.profile for gpu in nvml.inventory() if gpu.slice] == ["3g.40gb"]
