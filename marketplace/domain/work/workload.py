"""A workload: the container or process that a lease runs on the provider's host.

The spec is what the adapter hands to a runtime; the state is what the runtime tells; why it ended
is data.
Limits are whole numbers: milli-cores, MiB, milliseconds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.mesh_net import Seat
from marketplace.domain.work.volume import Mount

WORKSPACE: Final = "/workspace"
"""The one writable directory that outlives the process: files go in, outputs come out."""
DEFAULT_USER: Final = "10001:10001"
_DIGEST: Final = re.compile(r"(?:[a-z0-9][a-z0-9._/:-]*@)?sha256:[0-9a-f]{64}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_TARGET: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?:([1-9][0-9]{0,4})")
MOST_TARGETS: Final = 32
_RESERVED_ENV: Final = ("LD_", "NVIDIA_", "CUDA_MPS_", "DYLD_")


class WorkloadRefused(Refusal):
    """The spec asks for something that no adapter runs."""

    code = "WORKLOAD_REFUSED"
    remedy = "change the field that is named"


class ImageNotPinned(WorkloadRefused):
    """The image is named by a tag: what runs could change under the terms."""

    code = "IMAGE_NOT_PINNED"
    remedy = "name the image by digest: repository@sha256:…, or sha256:… for one the host has"


class WorkloadState(Enum):
    """Where a workload stands, as its runtime tells; the adapter's wish is a machine of its own."""

    STARTING = auto()  # created, not yet seen running: free
    RUNNING = auto()  # billed while its devices are healthy
    PAUSED = auto()  # frozen for want of a voucher: free
    STOPPING = auto()  # asked to end; the grace period runs: billed to its exit
    EXITED = auto()  # its end and its reason are known


class ExitReason(StrEnum):
    """Why a workload ended; what a user reads."""

    COMPLETED = "COMPLETED"  # exit code 0
    CRASHED = "CRASHED"  # another exit code
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DISK_LIMIT = "DISK_LIMIT"
    STOPPED = "STOPPED"  # by the consumer's end, the budget or the time limit
    START_FAILED = "START_FAILED"
    PROVIDER_FAULT = "PROVIDER_FAULT"  # the host, its daemon or its device failed
    LOST = "LOST"  # the runtime no longer knows it

    @property
    def by_provider(self) -> bool:
        """True when the provider answers for the end."""
        return self in (ExitReason.PROVIDER_FAULT, ExitReason.LOST)


class EgressMode(StrEnum):
    """Where a workload may connect to."""

    NONE = "none"  # nowhere; its ports are still reachable through the market
    LIST = "list"  # the named hosts and ports only
    OPEN = "open"  # the internet, never the host, its neighbours or private ranges


@dataclass(frozen=True, slots=True)
class Egress:
    """The outward policy; *allow* holds 1 to 32 ``host:port`` under LIST and nothing otherwise.

    :class:`Malformed` for anything else. What a name may lead to is judged where it is resolved.
    """

    mode: EgressMode = EgressMode.NONE
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.mode is EgressMode.LIST) is not bool(self.allow):
            raise Malformed("egress is none, open, or a list of at least one host:port")
        if len(self.allow) > MOST_TARGETS:
            raise Malformed(f"egress has {len(self.allow)} entries; at most {MOST_TARGETS}")
        for entry in self.allow:
            found = _TARGET.fullmatch(entry)
            if found is None or int(found[1]) > 65_535:
                raise Malformed(f"egress: {entry[:80]!r} is not host:port, e.g. pypi.org:443")


NO_EGRESS: Final = Egress()


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """What to run.  *image* is a digest (empty for the process runtime); *gpus* are device UUIDs.

    *files* maps a path under /workspace to its bytes; *outputs* are paths or globs under it.
    *volumes* are those that it mounts, by lease; *mesh*: where it sits in its cluster's network;
    *store*: its cluster's store is mounted for it.
    *secrets* are environment values already opened by the adapter: never logged or stored, and
    kept out of ``repr``.  *labels* always hold ``lease``.  *root_allowed* comes from the offer.
    """

    lease: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cpu_milli: int = 1000
    memory_mib: int = 1024
    disk_mib: int = 1024
    pids: int = 1024
    shm_mib: int = 64
    gpus: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    outputs: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    volumes: tuple[Mount, ...] = ()
    user: str = DEFAULT_USER
    root_allowed: bool = False
    egress: Egress = NO_EGRESS
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    mesh: Seat | None = None
    store: bool = False
    stop_grace_ms: int = 10_000
    log_limit_kib: int = 4096

    def __post_init__(self) -> None:
        limits = (self.cpu_milli, self.memory_mib, self.disk_mib, self.pids, self.log_limit_kib)
        rules = (
            (re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", self.lease), "lease is not an id"),
            (all(limit > 0 for limit in limits), "a limit is not positive"),
            (self.memory_mib >= 6, "memory_mib is below 6, the least that a container takes"),
            (all(0 < port < 65_536 for port in self.ports), "a port is not within 1-65535"),
            (len(set(self.gpus)) == len(self.gpus), "a device is named twice"),
            (self.root_allowed or not runs_as_root(self.user), "the offer allows no root user"),
            (all(map(_ENV_NAME.fullmatch, (*self.env, *self.secrets))), "env name is malformed"),
        )
        for holds, why in rules:
            if not holds:
                raise WorkloadRefused(why, lease=self.lease)
        for name in (*self.env, *self.secrets):
            if name.startswith(_RESERVED_ENV):
                raise WorkloadRefused(f"env {name} is set by the adapter only", lease=self.lease)
        for path in (*self.files, *self.outputs):
            workspace_path(path)

    def pinned_image(self) -> str:
        """The image if it is named by digest, else :class:`ImageNotPinned`."""
        if not _DIGEST.fullmatch(self.image):
            raise ImageNotPinned(f"image {self.image!r} has no digest", image=self.image)
        return self.image

    def all_labels(self) -> dict[str, str]:
        """The labels by which a runtime finds the workload again, ``lease`` among them."""
        return {**self.labels, "lease": self.lease}


def runs_as_root(user: str) -> bool:
    """True for uid 0 in any spelling; a name other than a number counts as root: it cannot be
    checked against an image that is not open yet."""
    uid = user.partition(":")[0]
    return not uid.isdecimal() or int(uid) == 0


def workspace_path(path: str) -> str:
    """*path* relative to /workspace, normal and inside it; :class:`WorkloadRefused` otherwise."""
    inner = path.removeprefix(WORKSPACE + "/") if path.startswith("/") else path
    normal = posixpath.normpath(inner)
    if not inner or normal.startswith(("/", "..")) or normal == "." or "\x00" in normal:
        raise WorkloadRefused(f"{path!r} does not lie inside {WORKSPACE}", path=path)
    return normal


def exit_reason(code: int | None, *, out_of_memory: bool, stopped: bool) -> ExitReason:
    """Why a workload whose *code* is known ended; a stop that was asked for comes first."""
    if stopped:
        return ExitReason.STOPPED
    if out_of_memory:
        return ExitReason.OUT_OF_MEMORY
    if code is None:
        return ExitReason.LOST
    return ExitReason.COMPLETED if code == 0 else ExitReason.CRASHED
