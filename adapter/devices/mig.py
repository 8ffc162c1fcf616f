"""MIG slices by plan: what the owner wants, what is there, and the steps between.

Instances do not survive a reboot, so the plan is applied at every start.  A slice that a lease
holds is never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from adapter.devices.nvml.faults import NvmlBusy
from adapter.devices.nvml.nvml import Nvml
from adapter.devices.nvml.slices import MigProfile
from marketplace.domain.errors import Refusal
from marketplace.domain.supply.hardware import Gpu, MigMode


class SlicePlanRefused(Refusal):
    """The plan cannot be had on this device."""

    code = "SLICE_PLAN_REFUSED"
    remedy = (
        "correct `slices` in the adapter's configuration: the message lists what the device has"
    )


Plan = Mapping[str, Sequence[str]]
"""From a GPU's UUID to the profiles it is divided into; an empty list means whole."""


@dataclass(frozen=True, slots=True)
class Enable:
    """Switch MIG on or off."""

    uuid: str
    on: bool


@dataclass(frozen=True, slots=True)
class Create:
    """Make a slice of *profile* on the GPU *uuid*."""

    uuid: str
    profile: str


@dataclass(frozen=True, slots=True)
class Destroy:
    """End a slice."""

    device: Gpu


Step = Enable | Create | Destroy


def steps(plan: Plan, devices: Sequence[Gpu], held: Collection[str]) -> list[Step]:
    """What leads from *devices* to *plan* without touching what is *held* by a lease.

    Destroys come before creates, so that their places are free.  A GPU that the plan does not name
    is left as it is.
    """
    todo: list[Step] = []
    for uuid, wanted in plan.items():
        mine = [gpu for gpu in devices if gpu.slice is not None and gpu.slice.parent == uuid]
        whole = next((gpu for gpu in devices if gpu.uuid == uuid), None)
        if wanted and whole is not None and whole.mig is MigMode.UNSUPPORTED:
            raise SlicePlanRefused(f"{whole.model} has no MIG", device=uuid)
        if whole is not None and uuid in held:
            continue  # rented whole: the plan waits for the lease's end
        missing = Counter(wanted)
        for gpu in mine:
            profile = "" if gpu.slice is None else gpu.slice.profile
            if missing[profile] > 0:
                missing[profile] -= 1
            elif gpu.uuid not in held:
                todo.append(Destroy(gpu))
        if wanted and whole is not None and whole.mig is MigMode.DISABLED:
            todo.append(Enable(uuid, True))
        todo += [Create(uuid, profile) for profile in missing.elements()]
        if not wanted and not any(gpu.uuid in held for gpu in mine):
            if whole is None or whole.mig is MigMode.ENABLED:
                todo.append(Enable(uuid, False))
    return todo


def check_plan(plan: Plan, offered: Mapping[str, Sequence[MigProfile]]) -> None:
    """Refuse a profile that its device does not have, or more slices than it holds."""
    for uuid, wanted in plan.items():
        known = {profile.name: profile for profile in offered.get(uuid, ())}
        for name, count in Counter(wanted).items():
            if name not in known:
                raise SlicePlanRefused(
                    f"{uuid} has no profile {name}; it has {', '.join(known) or 'none'}"
                )
            if count > known[name].most:
                raise SlicePlanRefused(f"{uuid} holds {known[name].most} of {name}, not {count}")
        if sum(known[name].slices for name in wanted) > 7:
            raise SlicePlanRefused(f"{uuid}: the plan needs more than 7 compute slices")


def apply(plan: Plan, nvml: Nvml, held: Collection[str]) -> list[Gpu]:
    """Bring the host to *plan*; the devices afterwards.

    Raises :class:`SlicePlanRefused`, or NvmlBusy when a process that is no lease holds a device.
    The largest slices are placed first, as small ones fit around them and not the reverse.
    """
    devices = nvml.inventory()
    offered = {uuid: nvml.mig_profiles(uuid) for uuid in plan}
    check_plan(plan, offered)
    todo = steps(plan, devices, held)
    todo.sort(key=lambda step: isinstance(step, Create))
    creates = [step for step in todo if isinstance(step, Create)]
    sizes = {p.name: p.slices for profiles in offered.values() for p in profiles}
    creates.sort(key=lambda step: -sizes[step.profile])
    for step in [step for step in todo if not isinstance(step, Create)] + creates:
        match step:
            case Enable(uuid, on):
                nvml.set_mig(uuid, on)
            case Destroy(device):
                if device.slice is not None:
                    nvml.destroy_slice(device.slice)
            case Create(uuid, profile):
                chosen = next(one for one in offered[uuid] if one.name == profile)
                try:
                    nvml.create_slice(uuid, chosen)
                except NvmlBusy as fault:
                    raise SlicePlanRefused(
                        f"{uuid}: no place for {profile} beside the slices that are held"
                    ) from fault
    return nvml.inventory()
