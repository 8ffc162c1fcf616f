"""What the matchmaker is told and what it answers: plain values, no behaviour beyond checks.

Units as everywhere: cpu in milli-cores, memory and disk in MiB, share of a device in per-mille,
rates in micro-lovelace per GPU-second (or core-second), time in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

WHOLE: Final = 1000
"""Per-mille of a whole device."""
MIB_A_GB: Final = 1024

WORDS: Final = {
    "devices": "have too few devices",
    "model": "lack the model",
    "vram": "lack the device memory",
    "region": "in the wrong region",
    "labels": "lack a label",
    "isolation": "do not isolate as asked",
    "trust": "below the trust tier",
    "network": "too slow a network",
    "egress": "allow no egress",
    "cluster": "bear too little of a cluster's waiting",
    "mesh": "join no cluster's network",
    "store": "show no cluster's store",
    "avoided": "asked to be avoided",
    "price": "too dear",
    "minimum": "ask for more than the job may cost",
    "maintenance": "in or before maintenance",
    "draining": "draining",
    "too_small": "too small even when idle",
    "cpu": "short of cores now",
    "memory": "short of memory now",
    "disk": "short of disk now",
    "owner": "have room only beside another consumer",
    "gpu": "have no device free enough now",
}
"""Filter name to what it says of hosts; the order is the order of judgement."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device, of which shares are rented to one owner at a time
    (``domain.hardware.Gpu.takes``).

    ``offered`` is the per-mille to be rented: its owner keeps the rest, so below 1000 it is never a
    whole device.
    """

    model: str
    vram_mib: int = 0
    rate: int = 0
    offered: int = WHOLE


@dataclass(frozen=True, slots=True)
class Host:
    """A provider's machine as offered: totals, not what is free.

    ``isolation`` are the ways in which it holds a workload apart; a request names those that it
    accepts (none = any). ``trust`` is a rank (higher is stronger), of which a request names the
    least. ``maintenance`` holds [start, end) windows in which no lease may run.
    ``minimum`` is the least that a job must be able to cost, lovelace. ``disk_rate`` is per
    GB-second of disk that is rented alone. ``cluster_free_ms``: how long a cluster's member may
    wait there unbilled (0: it takes none); ``mesh``: it joins a cluster's network;
    ``store``: it shows a store to its members.
    """

    id: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    disk_mib: int = 0
    core_rate: int = 0
    region: str = ""
    labels: frozenset[str] = frozenset()
    isolation: frozenset[str] = frozenset()
    trust: int = 0
    upload_mbps: int = 0
    download_mbps: int = 0
    egress: bool = False
    provider: str = ""
    maintenance: tuple[tuple[int, int], ...] = ()
    minimum: int = 0
    disk_rate: int = 0
    cluster_free_ms: int = 0
    mesh: bool = False
    store: bool = False

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.disk_mib) < 0:
            raise ValueError(f"host {self.id}: negative resources")
        if any(not 1 <= gpu.offered <= WHOLE for gpu in self.gpus):
            raise ValueError(f"host {self.id}: offered is per-mille of one device: 1 to 1000")
        if any(start >= end for start, end in self.maintenance):
            raise ValueError(f"host {self.id}: an empty maintenance window")


@dataclass(frozen=True, slots=True)
class Request:
    """What one member of a job needs on one host.

    ``gpu_milli`` is per device; several devices are always whole ones. ``gpu_count_max`` makes a
    range: the largest count that fits is taken. ``any_of`` holds alternatives tried, in order,
    after this one. ``duration_ms`` is the longest run, compared with maintenance windows; 0 asks
    only about now. ``budget`` is the most it may cost, lovelace, whose hosts' minimum counts; None
    asks not about that. ``spent`` is, by host, what counts towards a minimum there already.
    ``rents_disk``: the disk is what it pays for, and no cores. ``cluster_free_ms``: the longest
    that it may wait unbilled for others, as a cluster's member; ``mesh``: they have a network of
    their own; ``store``: they share a folder.
    """

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_milli: int = WHOLE
    gpu_models: frozenset[str] = frozenset()
    vram_mib: int = 0
    vram_max_mib: int | None = None
    gpu_count_max: int | None = None
    disk_mib: int = 0
    regions: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    isolation: frozenset[str] = frozenset()
    trust: int = 0
    upload_mbps: int = 0
    download_mbps: int = 0
    egress: bool = False
    cluster_free_ms: int = 0
    mesh: bool = False
    store: bool = False
    max_gpu_rate: int | None = None
    max_core_rate: int | None = None
    max_disk_rate: int | None = None
    rents_disk: bool = False
    owner: str = ""
    priority: int = 0
    duration_ms: int = 0
    avoid: frozenset[str] = frozenset()
    budget: int | None = None
    spent: tuple[tuple[str, int], ...] = ()
    image: str = ""
    wait_rate: int | None = None
    any_of: tuple[Request, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpu_count, self.disk_mib) < 0:
            raise ValueError("a request cannot ask for less than nothing")
        if self.gpu_count and not 1 <= self.gpu_milli <= WHOLE:
            raise ValueError("gpu_milli is per-mille of one device: 1 to 1000")
        if self.gpu_count > 1 and self.gpu_milli != WHOLE:
            raise ValueError("several devices are whole devices: gpu_milli must be 1000")
        if self.gpu_count_max is not None and self.gpu_count_max < self.gpu_count:
            raise ValueError("gpu_count_max is below gpu_count")

    @property
    def gpu_demand(self) -> int:
        """Per-mille of devices asked for in all."""
        return self.gpu_count * self.gpu_milli if self.gpu_count else 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request landed. ``rate`` is micro-lovelace per second for all of it."""

    id: int
    host: str
    gpus: tuple[int, ...]
    request: Request
    rate: int = 0

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change to a request that would make it match: how many hosts then, and from what rate per
    second.
    """

    change: str
    request: Request
    hosts: int
    rate: int


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Nothing fits. ``reasons``: filter name to the number of hosts that fell there first; they add
    up to ``hosts``.
    """

    request: Request
    hosts: int
    reasons: Mapping[str, int]
    relaxations: tuple[Relaxation, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        """The sentence a consumer reads."""
        told = ", ".join(
            f"{count} {self.details.get(name, WORDS[name])}" for name, count in self.reasons.items()
        )
        text = f"0 of {self.hosts} hosts: {told or 'the market is empty'}"
        for way in self.relaxations[:1]:
            text += f"; with {way.change}: {way.hosts} matches from {way.rate / 1e6:g} lovelace/s"
        return text


@dataclass(frozen=True, slots=True)
class Gang:
    """Members placed all or nothing. ``spread``: one member per host; otherwise as few hosts as
    possible.

    ``same_region`` keeps all members in one region.
    """

    members: tuple[Request, ...]
    spread: bool = False
    same_region: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What the market's operator may choose.

    ``price_weight``: how many idle GPUs of fragmentation a doubling of the price is worth; the
    default makes the cheapest adequate host win and fragmentation decide among equals.
    ``wait_worth``: as many seconds of running as a second of waiting for the start is worth to
    whoever does not say. ``learn``: count arrivals into the mix.
    """

    price_weight: float = 8.0
    wait_worth: float = 1.0
    learn: bool | None = None
    max_shapes: int = 2048
