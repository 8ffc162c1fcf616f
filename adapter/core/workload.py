"""What every runtime does: one small interface over Docker and over plain processes.

All methods are coroutines with a deadline inside; none blocks the loop.  A runtime keeps what must
outlive the adapter (start and exit times, logs, the reason of an end) on disk or in its daemon, so
that :meth:`Runtime.adopt` after a restart finds every workload as it was left.

* RuntimeFault            the runtime failed: ours to retry, never the consumer's cost
  x RuntimeTimeout          a call outlived its deadline
  x WorkloadGone            the runtime no longer knows this workload
  x EgressUnenforced        the firewall rules could not be set, so nothing is started
* (Refusal)
  x ImageRefused            not on the allow-list, needs root, or cannot be had
  x RuntimeRefused          this runtime cannot give what the spec asks
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from marketplace.domain.errors import Fault, Refusal
from marketplace.domain.isolation import Isolation
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState


class RuntimeFault(Fault):
    """The runtime failed."""

    code = "RUNTIME_FAULT"
    remedy = "run `tally adapter doctor` on the host; the lease is kept through its grace period"


class RuntimeTimeout(RuntimeFault):
    """A call to the runtime outlived its deadline."""

    code = "RUNTIME_TIMEOUT"


class WorkloadGone(RuntimeFault):
    """The runtime no longer knows this workload."""

    code = "WORKLOAD_GONE"


class EgressUnenforced(RuntimeFault):
    """The firewall rules that contain a workload could not be set; nothing was started."""

    code = "EGRESS_UNENFORCED"
    remedy = "give the adapter root or CAP_NET_ADMIN and the iptables command"


class ImageRefused(Refusal):
    """The image is not on the allow-list, needs root, or cannot be had."""

    code = "IMAGE_REFUSED"
    remedy = "use an image that the offer allows, by digest"


class RuntimeRefused(Refusal):
    """This runtime cannot give what the spec asks."""

    code = "RUNTIME_REFUSED"
    remedy = "ask for another runtime, or drop what is named"


RUNTIME_OF: Final = {Isolation.PROCESS: "process", Isolation.CONTAINER: "docker"}
"""The runtime that gives each isolation; the others have none yet."""


VOLUMES: Final = "volume"
"""The runtime of leases of disk, which need no isolation."""


def isolations(runtimes: Collection[str]) -> tuple[Isolation, ...]:
    """What a host with these *runtimes* offers, weakest first."""
    return tuple(one for one in Isolation if RUNTIME_OF.get(one) in runtimes)


def runtime_for(asked: Isolation, offered: Collection[Isolation]) -> str | None:
    """The name of the runtime for a job that asks for *asked*, of what is *offered*; None for
    none.
    """
    chosen = asked.among(offered)
    return None if chosen is None else RUNTIME_OF.get(chosen)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pull is: bytes, summed over the layers known so far."""

    done: int
    total: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Handle:
    """A workload that a runtime knows.  *id* is the container's id or the scope's name.

    *ports* maps the workload's port to the (address, port) at which the host reaches it;
    *cgroup* is a path below the cgroup mount, for the meter; *pid* is the first process.
    """

    runtime: str
    lease: str
    id: str
    started_ms: int
    image: str = ""
    pid: int = 0
    cgroup: str = ""
    gpus: tuple[str, ...] = ()
    ports: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    labels: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Times:
    """The runtime's own record, wall-clock milliseconds: the cross-check of the meter."""

    started_ms: int
    finished_ms: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """What the runtime says of a workload now.  *reason* is set once it has exited; *written_kib*:
    what was ever written to a volume.
    """

    state: WorkloadState
    times: Times
    reason: ExitReason | None = None
    disk_mib: int = 0
    memory_mib: int = 0
    written_kib: int | None = None


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Log bytes from *offset*; *next* is where to read on.  Old bytes beyond the bound are gone:
    then *offset* is larger than the one asked for."""

    offset: int
    data: bytes
    next: int


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command inside a workload answered; *output* is bounded."""

    exit_code: int
    output: bytes


@dataclass(frozen=True, slots=True)
class Outputs:
    """The workload's outputs as one archive: *path* is a plain tar named by *digest*
    (``sha256:…``), *size* bytes long, with *files* regular files and no links.
    *skipped* says what was left out, and why."""

    path: Path
    digest: str
    size: int
    files: int
    skipped: tuple[str, ...] = ()


class Terminal(Protocol):
    """A program inside a workload that somebody sits at."""

    async def read(self) -> bytes:
        """What it shows; empty once it has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """What is typed there."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Its screen has another size."""
        ...

    async def end(self) -> None:
        """Hang up: the program ends."""
        ...


class Runtime(Protocol):
    """Runs workloads.  Raises the classes above, and nothing else."""

    @property
    def name(self) -> str:
        """``docker``, ``process`` or ``volume``."""
        ...

    async def prepare(
        self, image: str, progress: Callable[[Progress], None], lease: str = ""
    ) -> str:
        """Make *image* (a digest) present and check it against the allow-list; its image id.
        *lease*: for which it is pulled, where its registry asks.
        """
        ...

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start *spec*; idempotent per lease: a workload that already runs is returned."""
        ...

    async def adopt(self) -> list[Handle]:
        """Every workload of this adapter that the runtime still knows, exited ones included."""
        ...

    async def status(self, handle: Handle) -> Status:
        """Its state now; also enforces the disk limit (an overfull workload is stopped)."""
        ...

    async def pause(self, handle: Handle) -> None:
        """Freeze it: it uses no CPU and keeps its memory and its device."""
        ...

    async def resume(self, handle: Handle) -> None:
        """Let a frozen workload go on."""
        ...

    async def stop(self, handle: Handle, grace_ms: int) -> Status:
        """End it: TERM, then KILL after the grace; its last status.  Idempotent."""
        ...

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        """At most *limit* bytes of its output from byte *offset*; also after :meth:`remove`."""
        ...

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        """Run *command* inside it, as its user; at most *limit* bytes of output are kept."""
        ...

    async def terminal(
        self, handle: Handle, command: tuple[str, ...], rows: int, columns: int
    ) -> Terminal:
        """The same, at a terminal, until it ends or is ended."""
        ...

    async def outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        """Collect *paths* of its workspace, after it exited."""
        ...

    async def pids(self, handle: Handle) -> frozenset[int]:
        """Its processes, as the host numbers them."""
        ...

    async def remove(self, handle: Handle) -> None:
        """Forget it: container, network, rules and workspace go; the kept log stays.
        Idempotent.
        """
        ...
