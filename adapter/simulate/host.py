"""The state of a simulated host: GPUs that draw power and run processes, and a script of faults.

Everything moves with one clock, so a simulated hour takes no time.  The NVML face of this state is
``library.py``.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from adapter.host.clock import Clock, HostClock
from adapter.simulate.profiles import PREFIX, Model, SliceProfile, parse_profile
from marketplace.domain.errors import Malformed

_SPACE: Final = uuid.UUID("7a11e000-0000-4000-8000-000000000000")
DRIVER: Final = "999.00.simulated"


class FaultKind(StrEnum):
    """What a script can make happen."""

    GPU_LOST = "gpu_lost"  # NVML answers GpuIsLost for this device
    XID = "xid"  # the event *value* is raised once
    ENERGY_RESET = "energy_reset"  # the energy counter starts again at zero
    UUID_CHANGE = "uuid_change"  # another device answers at this index
    PID_REUSE = "pid_reuse"  # every process is replaced by one with pid *value*
    MISSED = "missed"  # every call answers Unknown: polls fail, nothing is known
    NVML_GONE = "nvml_gone"  # the driver is unloaded: Uninitialized everywhere
    HANG = "hang"  # calls block until the fault ends
    THROTTLE = "throttle"  # hardware slowdown is reported
    CLOCK_JUMP = "clock_jump"  # boot time jumps by *value* ms (the host slept)
    WALL_JUMP = "wall_jump"  # the wall clock jumps by *value* ms (NTP)
    REBOOT = "reboot"  # another boot id


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """From *at_ms* after the start, for *for_ms* (0: for ever, or once for an event)."""

    at_ms: int
    kind: FaultKind
    device: int = 0
    for_ms: int = 0
    value: int = 0


def load_script(path: Path) -> tuple[ScriptedFault, ...]:
    """A script from JSON: ``[{"at_ms": 5000, "kind": "xid", "device": 0, "value": 79}]``."""
    try:
        rows = cast("list[dict[str, object]]", json.loads(path.read_text()))
        return tuple(
            ScriptedFault(
                at_ms=int(cast("int", row["at_ms"])),
                kind=FaultKind(cast("str", row["kind"])),
                device=int(cast("int", row.get("device", 0))),
                for_ms=int(cast("int", row.get("for_ms", 0))),
                value=int(cast("int", row.get("value", 0))),
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"{path} is not a script of faults: {error}") from error


@dataclass
class SimSlice:
    """A GPU instance and its one compute instance, once created."""

    id: int
    profile: SliceProfile
    start: int
    uuid: str
    compute: bool = False


@dataclass
class SimProcess:
    """A process on a device; *util* is per cent of the SMs."""

    pid: int
    memory_mib: int
    util: int = 0
    slice_id: int = 0xFFFFFFFF


@dataclass
class SimGpu:
    """One simulated GPU.  *load* is per cent; energy is integrated whenever the load changes."""

    index: int
    model: Model
    uuid: str
    bus_id: str
    load: int = 0
    processes: list[SimProcess] = field(default_factory=list[SimProcess])
    mig: bool = False
    slices: list[SimSlice] = field(default_factory=list[SimSlice])
    next_slice: int = 1
    energy_uj: int = 0
    since_ns: int = 0
    residue: bytes = b""

    @property
    def name(self) -> str:
        """The model, marked as simulated."""
        return PREFIX + self.model.name

    @property
    def used_mib(self) -> int:
        """Driver's reserve plus what processes hold."""
        return 450 + sum(process.memory_mib for process in self.processes)

    @property
    def power_w(self) -> int:
        """Linear between idle and full load."""
        model = self.model
        return model.idle_w + (model.full_w - model.idle_w) * self.load // 100

    def settle(self, now_ns: int) -> None:
        """Account for the energy drawn until *now_ns*."""
        self.energy_uj += self.power_w * max(0, now_ns - self.since_ns) // 1000
        self.since_ns = now_ns


class SimClock:
    """A clock that tests move by hand, or the host's own with scripted jumps on top."""

    def __init__(self, base: Clock | None = None, boot_id: str = "simulated-boot") -> None:
        self._base = base
        self._boot_id = boot_id if base is None else base.boot_id()
        self._boot = self._mono = 0
        self._wall_ms = 1_800_000_000_000 if base is None else 0

    def advance(self, ms: int) -> None:
        """Let *ms* pass on every clock."""
        self._boot += ms * 1_000_000
        self._mono += ms * 1_000_000
        self._wall_ms += ms

    def jump_boot(self, ms: int) -> None:
        """Boot time only: what a suspended host sees when it wakes."""
        self._boot += ms * 1_000_000

    def jump_wall(self, ms: int) -> None:
        """The wall clock only: a step by NTP."""
        self._wall_ms += ms

    def reboot(self, boot_id: str) -> None:
        """Start counting anew under another boot id."""
        self._boot_id = boot_id

    def boot_ns(self) -> int:
        """Simulated CLOCK_BOOTTIME."""
        return self._boot + (0 if self._base is None else self._base.boot_ns())

    def mono_ns(self) -> int:
        """Simulated CLOCK_MONOTONIC."""
        return self._mono + (0 if self._base is None else self._base.mono_ns())

    def wall_ms(self) -> int:
        """Simulated wall clock."""
        return self._wall_ms + (0 if self._base is None else self._base.wall_ms())

    def boot_id(self) -> str:
        """The boot id that stands now."""
        return self._boot_id


class SimHost:
    """The whole simulated host.  Thread-safe: NVML's thread reads while a test changes it."""

    def __init__(
        self,
        profile: str = "h100x2",
        clock: SimClock | None = None,
        script: Iterable[ScriptedFault] = (),
        name: str = "sim",
    ) -> None:
        self.clock = clock or SimClock(HostClock())
        self.lock = threading.RLock()
        self.driver = DRIVER
        self._start_ns = self._script_ns()
        self._script = list(script)
        self._done: set[int] = set()
        self.gpus = [
            SimGpu(
                index=index,
                model=model,
                uuid=f"GPU-{uuid.uuid5(_SPACE, f'{name}/{profile}/{index}')}",
                bus_id=f"00000000:{index + 1:02X}:00.0",
                # as if at full power since boot: started anew, it counts from no less than before
                energy_uj=model.full_w * self.clock.boot_ns() // 1000,
                since_ns=self.clock.boot_ns(),
            )
            for index, model in enumerate(parse_profile(profile))
        ]
        self.events: list[tuple[SimGpu, int]] = []

    def _script_ns(self) -> int:
        """Scripts run on monotonic time, so that a boot-time jump does not trigger the next."""
        return self.clock.mono_ns()

    def add_fault(self, fault: ScriptedFault) -> None:
        """Add *fault* to the script; its *at_ms* still counts from the host's start."""
        with self.lock:
            self._script.append(fault)

    def fault_now(self, kind: FaultKind, device: int = 0, value: int = 0, for_ms: int = 0) -> None:
        """Make *kind* happen now."""
        at = (self._script_ns() - self._start_ns) // 1_000_000
        self.add_fault(ScriptedFault(at, kind, device, for_ms, value))

    def clear_faults(self) -> None:
        """Forget the script; what already happened stays."""
        with self.lock:
            self._script.clear()
            self._done.clear()

    def set_load(self, device: int, per_cent: int) -> None:
        """Let a device work at *per_cent*."""
        with self.lock:
            gpu = self.gpus[device]
            gpu.settle(self.clock.boot_ns())
            gpu.load = per_cent

    def set_processes(self, device: int, processes: Iterable[SimProcess]) -> None:
        """Replace what runs on a device."""
        with self.lock:
            self.gpus[device].processes = list(processes)

    def active(self, kind: FaultKind, device: int | None = None) -> ScriptedFault | None:
        """The scripted fault of *kind* that stands now (for *device*, if given)."""
        now = (self._script_ns() - self._start_ns) // 1_000_000
        with self.lock:
            for fault in self._script:
                stands = fault.at_ms <= now and (
                    not fault.for_ms or now < fault.at_ms + fault.for_ms
                )
                if fault.kind is kind and stands and device in (None, fault.device):
                    return fault
        return None

    def advance_script(self) -> None:
        """Perform every event that is due and was not performed yet."""
        now = (self._script_ns() - self._start_ns) // 1_000_000
        with self.lock:
            for place, fault in enumerate(self._script):
                if fault.at_ms > now or place in self._done:
                    continue
                if self._act(fault):
                    self._done.add(place)

    def _act(self, fault: ScriptedFault) -> bool:
        """Perform an event; False for a fault that is a lasting condition instead."""
        match fault.kind:
            case FaultKind.XID:
                self.events.append((self.gpus[fault.device], fault.value))
            case FaultKind.ENERGY_RESET:
                gpu = self.gpus[fault.device]
                gpu.settle(self.clock.boot_ns())
                gpu.energy_uj = 0
            case FaultKind.UUID_CHANGE:
                gpu = self.gpus[fault.device]
                gpu.uuid = f"GPU-{uuid.uuid5(_SPACE, gpu.uuid + '/other')}"
            case FaultKind.PID_REUSE:
                self.gpus[fault.device].processes = [SimProcess(fault.value, 100)]
            case FaultKind.CLOCK_JUMP:
                self.clock.jump_boot(fault.value)
            case FaultKind.WALL_JUMP:
                self.clock.jump_wall(fault.value)
            case FaultKind.REBOOT:
                self.clock.reboot(f"simulated-boot-{fault.at_ms}")
            case _:
                return False
        return True

    def create_slice(self, gpu: SimGpu, profile: SliceProfile) -> SimSlice | None:
        """A GPU instance at the first free placement; None when none is free."""
        taken = {place for s in gpu.slices for place in range(s.start, s.start + s.profile.size)}
        compute = sum(s.profile.slices for s in gpu.slices) + profile.slices
        for start in profile.starts:
            if compute <= 7 and not taken & set(range(start, start + profile.size)):
                made = SimSlice(
                    gpu.next_slice, profile, start,
                    f"MIG-{uuid.uuid5(_SPACE, f'{gpu.uuid}/{gpu.next_slice}/{start}')}",
                )  # fmt: skip
                gpu.next_slice += 1
                gpu.slices.append(made)
                return made
        return None
