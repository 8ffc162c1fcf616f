"""What a host has: its devices, cores, memory and disk, as all parties see them.

Values only.  The adapter fills them from NVML and ``/proc``; the market matches on them; the wire
carries ``to_wire()``.  Memory is MiB, CPU is milli-cores, shares are per-mille, bandwidth is
kbit/s.  A device that comes from the simulated NVML says so in ``simulated`` and may be listed on
a devnet only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar, cast

from marketplace.domain.errors import Malformed
from marketplace.domain.units import WHOLE

Wire = Mapping[str, object]
E = TypeVar("E", bound=StrEnum)


class HardwareMalformed(Malformed):
    """A hardware description lacks a field, or a field has the wrong type or range."""

    code = "HARDWARE_MALFORMED"
    remedy = "update the adapter: its inventory does not read as this version's"


class Health(StrEnum):
    """Whether a device can be rented."""

    OK = "ok"
    DEGRADED = "degraded"  # works, with a note: throttled, remapped rows, narrow PCIe link
    QUARANTINED = "quarantined"  # the scrub or a self-test failed; needs its owner
    LOST = "lost"  # fell off the bus, or NVML cannot reach it


class MigMode(StrEnum):
    """Multi-Instance GPU: hardware slices, each an own device."""

    UNSUPPORTED = "unsupported"
    DISABLED = "disabled"
    ENABLED = "enabled"


class Sharing(StrEnum):
    """What a device is: a GPU, or a part of one that the hardware walls off."""

    WHOLE = "whole"
    MIG = "mig"


@dataclass(frozen=True, slots=True)
class Pcie:
    """A device's place on the bus; *generation* and *width* are the link's maximum."""

    bus_id: str
    generation: int = 0
    width: int = 0

    def to_wire(self) -> dict[str, object]:
        """A plain map."""
        return {"bus_id": self.bus_id, "generation": self.generation, "width": self.width}

    @classmethod
    def from_wire(cls, wire: Wire) -> Pcie:
        """The inverse of :meth:`to_wire`."""
        return cls(_text(wire, "bus_id"), _count(wire, "generation"), _count(wire, "width"))


@dataclass(frozen=True, slots=True)
class MigSlice:
    """Where a MIG device lies on its parent GPU: profile such as ``1g.10gb``, and instance ids."""

    profile: str
    parent: str
    gpu_instance: int
    compute_instance: int

    def to_wire(self) -> dict[str, object]:
        """A plain map."""
        return {
            "profile": self.profile,
            "parent": self.parent,
            "gpu_instance": self.gpu_instance,
            "compute_instance": self.compute_instance,
        }

    @classmethod
    def from_wire(cls, wire: Wire) -> MigSlice:
        """The inverse of :meth:`to_wire`."""
        return cls(
            _text(wire, "profile"),
            _text(wire, "parent"),
            _count(wire, "gpu_instance"),
            _count(wire, "compute_instance"),
        )


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device to rent: a whole GPU, or one MIG slice of it.

    *uuid* is NVML's (``GPU-…`` or ``MIG-…``) and is the identity; *index* is only where the driver
    listed it.  *share* is the per-mille that the market may rent (the owner keeps the rest).
    *links* names the devices reachable by NVLink.
    """

    uuid: str
    model: str
    vram_mib: int
    index: int = 0
    driver: str = ""
    compute_capability: str = ""
    pcie: Pcie | None = None
    mig: MigMode = MigMode.UNSUPPORTED
    slice: MigSlice | None = None
    sharing: Sharing = Sharing.WHOLE
    health: Health = Health.OK
    health_note: str = ""
    share: int = WHOLE
    links: tuple[str, ...] = ()
    simulated: bool = False

    def __post_init__(self) -> None:
        if not self.uuid or not self.model:
            raise HardwareMalformed("a device needs a uuid and a model")
        if self.vram_mib < 0 or not 0 <= self.share <= WHOLE:
            raise HardwareMalformed(f"{self.uuid}: vram_mib or share out of range")

    @property
    def rentable(self) -> bool:
        """True when a lease may start on it now."""
        return self.health in (Health.OK, Health.DEGRADED) and self.share > 0

    def takes(self, share: int, owner: object, held: Iterable[tuple[object, int]]) -> bool:
        """Whether *owner* may have *share* beside what is *held* (owner and share of each lease).

        Nothing holds a workload to its share of a device: one that is given a device can use all of
        it, its memory as well. So strangers never meet on one, and an owner's jobs only as far as
        their shares add up. What strangers may divide is a GPU with MIG: each slice is a device.
        """
        there = list(held)
        taken = sum(share for _, share in there)
        return share <= self.share - taken and all(one == owner for one, _ in there)

    def with_health(self, health: Health, note: str = "") -> Gpu:
        """This device in another state of health."""
        return replace(self, health=health, health_note=note)

    def to_wire(self) -> dict[str, object]:
        """A plain map, fit for JSON and CBOR."""
        return {
            "uuid": self.uuid,
            "model": self.model,
            "vram_mib": self.vram_mib,
            "index": self.index,
            "driver": self.driver,
            "compute_capability": self.compute_capability,
            "pcie": None if self.pcie is None else self.pcie.to_wire(),
            "mig": self.mig.value,
            "slice": None if self.slice is None else self.slice.to_wire(),
            "sharing": self.sharing.value,
            "health": self.health.value,
            "health_note": self.health_note,
            "share": self.share,
            "links": list(self.links),
            "simulated": self.simulated,
        }

    @classmethod
    def from_wire(cls, wire: Wire) -> Gpu:
        """The inverse of :meth:`to_wire`; raises :class:`HardwareMalformed`."""
        pcie, part = wire.get("pcie"), wire.get("slice")
        return cls(
            uuid=_text(wire, "uuid"),
            model=_text(wire, "model"),
            vram_mib=_count(wire, "vram_mib"),
            index=_count(wire, "index", 0),
            driver=_text(wire, "driver", ""),
            compute_capability=_text(wire, "compute_capability", ""),
            pcie=None if pcie is None else Pcie.from_wire(_map(pcie, "pcie")),
            mig=_enum(MigMode, wire, "mig", MigMode.UNSUPPORTED),
            slice=None if part is None else MigSlice.from_wire(_map(part, "slice")),
            sharing=_enum(Sharing, wire, "sharing", Sharing.WHOLE),
            health=_enum(Health, wire, "health", Health.OK),
            health_note=_text(wire, "health_note", ""),
            share=_count(wire, "share", WHOLE),
            links=_texts(wire, "links"),
            simulated=_flag(wire, "simulated"),
        )


@dataclass(frozen=True, slots=True)
class Cpu:
    """A host's processor: *milli* is what the market may rent, in milli-cores."""

    model: str
    cores: int
    milli: int

    def to_wire(self) -> dict[str, object]:
        """A plain map."""
        return {"model": self.model, "cores": self.cores, "milli": self.milli}

    @classmethod
    def from_wire(cls, wire: Wire) -> Cpu:
        """The inverse of :meth:`to_wire`."""
        return cls(_text(wire, "model"), _count(wire, "cores"), _count(wire, "milli"))


@dataclass(frozen=True, slots=True)
class HostHardware:
    """Everything one host offers.  *host* is a stable name of the machine, not an address."""

    host: str
    cpu: Cpu
    memory_mib: int
    disk_mib: int
    gpus: tuple[Gpu, ...] = ()
    region: str = ""
    up_kbit: int = 0
    down_kbit: int = 0
    runtimes: tuple[str, ...] = ("docker",)

    @property
    def simulated(self) -> bool:
        """True when any device is simulated: such a host may be listed on a devnet only."""
        return any(gpu.simulated for gpu in self.gpus)

    def gpu(self, uuid: str) -> Gpu | None:
        """The device with that UUID, if the host has it."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def rentable(self) -> tuple[Gpu, ...]:
        """The devices on which a lease may start now."""
        return tuple(gpu for gpu in self.gpus if gpu.rentable)

    def to_wire(self) -> dict[str, object]:
        """A plain map, fit for JSON and CBOR."""
        return {
            "host": self.host,
            "cpu": self.cpu.to_wire(),
            "memory_mib": self.memory_mib,
            "disk_mib": self.disk_mib,
            "gpus": [gpu.to_wire() for gpu in self.gpus],
            "region": self.region,
            "up_kbit": self.up_kbit,
            "down_kbit": self.down_kbit,
            "runtimes": list(self.runtimes),
        }

    @classmethod
    def from_wire(cls, wire: Wire) -> HostHardware:
        """The inverse of :meth:`to_wire`; raises :class:`HardwareMalformed`."""
        gpus = tuple(Gpu.from_wire(_map(one, "gpus")) for one in _list(wire, "gpus"))
        if len({gpu.uuid for gpu in gpus}) != len(gpus):
            raise HardwareMalformed("two devices have one uuid")
        return cls(
            host=_text(wire, "host"),
            cpu=Cpu.from_wire(_map(wire.get("cpu"), "cpu")),
            memory_mib=_count(wire, "memory_mib"),
            disk_mib=_count(wire, "disk_mib"),
            gpus=gpus,
            region=_text(wire, "region", ""),
            up_kbit=_count(wire, "up_kbit", 0),
            down_kbit=_count(wire, "down_kbit", 0),
            runtimes=_texts(wire, "runtimes"),
        )


def _text(wire: Wire, name: str, default: str | None = None) -> str:
    value = wire.get(name, default)
    if not isinstance(value, str):
        raise HardwareMalformed(f"{name} is not text")
    return value


def _count(wire: Wire, name: str, default: int | None = None) -> int:
    value = wire.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise HardwareMalformed(f"{name} is not a count")
    return value


def _flag(wire: Wire, name: str) -> bool:
    value = wire.get(name, False)
    if not isinstance(value, bool):
        raise HardwareMalformed(f"{name} is not true or false")
    return value


def _list(wire: Wire, name: str) -> Sequence[object]:
    value = wire.get(name, [])
    if not isinstance(value, (list, tuple)):
        raise HardwareMalformed(f"{name} is not a list")
    return cast("Sequence[object]", value)


def _texts(wire: Wire, name: str) -> tuple[str, ...]:
    values = _list(wire, name)
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise HardwareMalformed(f"{name} holds something that is not text")
    return texts


def _map(value: object, name: str) -> Wire:
    if not isinstance(value, Mapping):
        raise HardwareMalformed(f"{name} is not a map")
    return cast("Wire", value)


def _enum(kind: type[E], wire: Wire, name: str, default: E) -> E:
    value = wire.get(name, default.value)
    try:
        return kind(cast("str", value))
    except ValueError:
        raise HardwareMalformed(f"{name} cannot be {value!r}") from None
