"""What a job is made of: needs, files, ports, limits, each with its form on the wire, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from marketplace.domain.canonical import (
    want_fields,
    want_flag,
    want_int,
    want_text,
    want_text_map,
    want_texts,
)
from marketplace.domain.errors import Malformed
from marketplace.domain.isolation import Isolation, want_isolation
from marketplace.domain.metering.kinds import KINDS, Resource

UNLIMITED: Final = 2**53
MOST_MEMBERS: Final = 64


@dataclass(frozen=True)
class Range:
    """``least..most``, both included; *most* is :data:`UNLIMITED` when open."""

    least: int
    most: int = UNLIMITED

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise Malformed(f"{self.least}..{self.most} is an empty range")

    def to_wire(self) -> dict[str, Any]:
        """``most`` only where there is one."""
        return {"least": self.least} | ({} if self.most == UNLIMITED else {"most": self.most})

    @staticmethod
    def from_wire(value: object, name: str) -> Range:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, name, {"least"}, {"most"})
        most = want_int(w["most"], name) if "most" in w else None
        if most == UNLIMITED:  # two forms of one job would have two hashes
            raise Malformed(f"{name} has no upper end: leave `most` out")
        return Range(want_int(w["least"], name), UNLIMITED if most is None else most)


@dataclass(frozen=True)
class GpuNeed:
    """*count* devices of any of *models* (empty = any), each with *vram* MiB and *share*
    per-mille.
    """

    models: tuple[str, ...] = ()
    count: Range = Range(1, 1)
    vram: Range = Range(0)
    share: int = 1000

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return {
            "models": list(self.models),
            "count": self.count.to_wire(),
            "vram": self.vram.to_wire(),
            "share": self.share,
        }

    @staticmethod
    def from_wire(value: object) -> GpuNeed:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "gpu", {"models", "count", "vram", "share"})
        return GpuNeed(
            models=want_texts(w["models"], "models", 32),
            count=Range.from_wire(w["count"], "count"),
            vram=Range.from_wire(w["vram"], "vram"),
            share=want_int(w["share"], "share", 1, 1000),
        )


@dataclass(frozen=True)
class Resources:
    """One acceptable set: CPU in milli-cores, memory and disk in MiB."""

    cpu: Range = Range(1000)
    memory: Range = Range(512)
    disk: Range = Range(0)
    gpu: GpuNeed | None = None

    def to_wire(self) -> dict[str, Any]:
        """``gpu`` only where there is one."""
        fixed = {
            "cpu": self.cpu.to_wire(),
            "memory": self.memory.to_wire(),
            "disk": self.disk.to_wire(),
        }
        return fixed if self.gpu is None else {**fixed, "gpu": self.gpu.to_wire()}

    @staticmethod
    def from_wire(value: object) -> Resources:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "resources", {"cpu", "memory", "disk"}, {"gpu"})
        return Resources(
            cpu=Range.from_wire(w["cpu"], "cpu"),
            memory=Range.from_wire(w["memory"], "memory"),
            disk=Range.from_wire(w["disk"], "disk"),
            gpu=GpuNeed.from_wire(w["gpu"]) if "gpu" in w else None,
        )


@dataclass(frozen=True)
class FileIn:
    """A file to be put at *dst* before the start; *sha256* is its content's hash, *size* in
    bytes.
    """

    dst: str
    sha256: str
    size: int
    mode: int = 0o644

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @staticmethod
    def from_wire(value: object) -> FileIn:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "file", {"dst", "sha256", "size", "mode"})
        return FileIn(
            dst=want_text(w["dst"], "dst", 1000),
            sha256=want_text(w["sha256"], "sha256", 64),
            size=want_int(w["size"], "size"),
            mode=want_int(w["mode"], "mode", 0, 0o7777),
        )


@dataclass(frozen=True)
class Port:
    """A port of a workload, reachable at one URL through the market; *auth* is token or public.
    *direct*: at an address of its provider's own as well, where whoever finds it comes in.
    """

    port: int
    auth: str = "token"
    direct: bool = False

    def to_wire(self) -> dict[str, Any]:
        """``direct`` only where it is."""
        plain: dict[str, Any] = {"port": self.port, "auth": self.auth}
        return plain | ({"direct": True} if self.direct else {})

    @staticmethod
    def from_wire(value: object) -> Port:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "port", {"port", "auth"}, {"direct"})
        if not w.get("direct", True):  # two forms of one job would have two hashes
            raise Malformed("a port that is not direct leaves `direct` out")
        return Port(
            want_int(w["port"], "port", 1, 65535),
            want_text(w["auth"], "auth", 10),
            "direct" in w and want_flag(w["direct"], "direct"),
        )


@dataclass(frozen=True)
class Placement:
    """Where the job may run."""

    regions: tuple[str, ...] = ()
    isolation: Isolation = Isolation.CONTAINER
    min_trust: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    providers: tuple[str, ...] = ()
    not_providers: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return {
            "regions": list(self.regions),
            "isolation": self.isolation.value,
            "min_trust": self.min_trust,
            "labels": dict(self.labels),
            "providers": list(self.providers),
            "not_providers": list(self.not_providers),
        }

    @staticmethod
    def from_wire(value: object) -> Placement:
        """The reverse; :class:`Malformed`."""
        names = {"regions", "isolation", "min_trust", "labels", "providers", "not_providers"}
        w = want_fields(value, "placement", names)
        return Placement(
            regions=want_texts(w["regions"], "regions", 64),
            isolation=want_isolation(w["isolation"]),
            min_trust=want_int(w["min_trust"], "min_trust", 0, 100),
            labels=want_text_map(w["labels"], "labels", 32),
            providers=want_texts(w["providers"], "providers", 256),
            not_providers=want_texts(w["not_providers"], "not_providers", 256),
        )


@dataclass(frozen=True)
class Price:
    """Caps: micro-lovelace per GPU-, core- and GB-second (0 = no cap), and the job's hard *budget*.
    *wait_rate*: what a second until it runs is worth to whoever posts it, micro-lovelace; None: as
    much as a second of running.
    """

    max_gpu_rate: int = 0
    max_core_rate: int = 0
    budget: int = 10_000_000
    wait_rate: int | None = None
    max_disk_rate: int = 0

    def cap(self, resource: Resource) -> int:
        """The most that a unit of *resource* may cost a second, in micro-lovelace; 0: no cap."""
        return int(getattr(self, KINDS[resource].cap))

    def to_wire(self) -> dict[str, Any]:
        """``wait_rate`` and ``max_disk_rate`` only where there is one."""
        rare = () if self.max_disk_rate else ("max_disk_rate",)
        every = asdict(self).items()
        return {name: value for name, value in every if value is not None and name not in rare}

    @staticmethod
    def from_wire(value: object) -> Price:
        """The reverse; :class:`Malformed`."""
        names = {"max_gpu_rate", "max_core_rate", "budget"}
        w = want_fields(value, "price", names, {"wait_rate", "max_disk_rate"})
        return Price(
            max_gpu_rate=want_int(w["max_gpu_rate"], "max_gpu_rate"),
            max_core_rate=want_int(w["max_core_rate"], "max_core_rate"),
            budget=want_int(w["budget"], "budget"),
            wait_rate=want_int(w["wait_rate"], "wait_rate") if "wait_rate" in w else None,
            # Left out where there is none: two forms of one job would have two hashes.
            max_disk_rate=want_int(w["max_disk_rate"], "max_disk_rate", 1)
            if "max_disk_rate" in w
            else 0,
        )


@dataclass(frozen=True)
class Policy:
    """Limits and what to do on failure; durations in ms; *idle_gpu_below* is per cent, 0 = off."""

    max_duration_ms: int = 3_600_000
    retry_on: tuple[str, ...] = ()
    retry_max: int = 0
    idle_gpu_below: int = 0
    idle_for_ms: int = 0
    queue: bool = False
    priority: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return {
            "max_duration_ms": self.max_duration_ms,
            "retry_on": list(self.retry_on),
            "retry_max": self.retry_max,
            "idle_gpu_below": self.idle_gpu_below,
            "idle_for_ms": self.idle_for_ms,
            "queue": self.queue,
            "priority": self.priority,
        }

    @staticmethod
    def from_wire(value: object) -> Policy:
        """The reverse; :class:`Malformed`."""
        w = want_fields(
            value,
            "policy",
            {
                "max_duration_ms",
                "retry_on",
                "retry_max",
                "idle_gpu_below",
                "idle_for_ms",
                "queue",
                "priority",
            },
        )
        return Policy(
            max_duration_ms=want_int(w["max_duration_ms"], "max_duration_ms", 1),
            retry_on=want_texts(w["retry_on"], "retry_on", 16),
            retry_max=want_int(w["retry_max"], "retry_max", 0, 100),
            idle_gpu_below=want_int(w["idle_gpu_below"], "idle_gpu_below", 0, 100),
            idle_for_ms=want_int(w["idle_for_ms"], "idle_for_ms"),
            queue=want_flag(w["queue"], "queue"),
            priority=want_int(w["priority"], "priority", 0, 100),
        )


@dataclass(frozen=True)
class Gang:
    """Equal *members*, placed all together or not at all: *spread* on one host each, *same_region*
    in one.
    """

    members: int
    spread: bool = False
    same_region: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)

    @staticmethod
    def from_wire(value: object) -> Gang:
        """The reverse; :class:`Malformed`."""
        w = want_fields(value, "gang", {"members", "spread", "same_region"})
        return Gang(
            members=want_int(w["members"], "members", 2, MOST_MEMBERS),
            spread=want_flag(w["spread"], "spread"),
            same_region=want_flag(w["same_region"], "same_region"),
        )
