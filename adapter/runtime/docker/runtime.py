"""Workloads in hardened Docker containers.

Every container: all capabilities dropped, no new privileges, the daemon's seccomp profile,
read-only root, non-root user, limits on memory, CPU, processes, files and log, own bridge (or no
network), image by digest.  Writable are /workspace (watched against the lease's disk limit) and
small tmpfs mounts.  GPUs by CDI.

A workload that the adapter left running is found again by its labels.  What Docker does not keep
(the reason of an end, the log after removal) is kept below *state*.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import docker
import docker.errors

from adapter.core.workload import (
    ExecResult,
    Handle,
    LogChunk,
    Outputs,
    Progress,
    RuntimeFault,
    RuntimeRefused,
    RuntimeTimeout,
    Status,
    Times,
    WorkloadGone,
)
from adapter.host.cgroup import Cgroups
from adapter.runtime.calls import in_thread, note_reason, noted_reason
from adapter.runtime.docker import inside
from adapter.runtime.docker.arguments import container_name, create_arguments
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import address, connect, map_docker
from adapter.runtime.docker.images import bring, require_allowed
from adapter.runtime.docker.inside import DockerTerminal
from adapter.runtime.docker.logs import begin, copy_new
from adapter.runtime.docker.market_images import MarketImages
from adapter.runtime.docker.networks import Networks, address_of
from adapter.runtime.docker.outages import Outages
from adapter.runtime.docker.shelf import Shelf
from adapter.runtime.docker.signed import Signatures, read_keys
from adapter.runtime.docker.stamps import milliseconds, ran
from adapter.runtime.docker.store import ImageStore
from adapter.runtime.egress import Firewall
from adapter.runtime.logstore import LogStore
from adapter.runtime.volumes.handed import hand_over
from adapter.runtime.workspace import DiskWatch, Workspace, owner_ids
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh_net import Seat
from marketplace.domain.work.workload import (
    WORKSPACE,
    ExitReason,
    WorkloadSpec,
    WorkloadState,
    exit_reason,
)

T = TypeVar("T")
_STATES: Final = {
    "created": WorkloadState.STARTING,
    "running": WorkloadState.RUNNING,
    "restarting": WorkloadState.STARTING,
    "paused": WorkloadState.PAUSED,
    "removing": WorkloadState.STOPPING,
    "exited": WorkloadState.EXITED,
    "dead": WorkloadState.EXITED,
}


@dataclass
class DockerRuntime:
    """The Docker side of :class:`adapter.runtime.base.Runtime`."""

    config: DockerConfig
    firewall: Firewall = field(default_factory=Firewall)
    cgroups: Cgroups = field(default_factory=Cgroups)
    client: Any = None
    market: MarketImages | None = None  # the market's own registry; none: its images are others'
    shelf: Shelf = field(init=False)
    networks: Networks = field(init=False)

    def __post_init__(self) -> None:
        self._logs = LogStore(self.config.state)
        self._disks = DiskWatch(self.config.state)
        self.shelf = Shelf(self.config.state / "images.json")
        self._signatures = Signatures(read_keys(self.config.signed_by))
        self._lock = threading.Lock()
        self._copying: dict[str, threading.Lock] = {}  # of each lease's log, one thread at a time
        self._outages = Outages(self.config.host)
        self.networks = Networks(self.config, self.firewall, self._docker)

    @property
    def name(self) -> str:
        """The runtime's name in offers and handles."""
        return "docker"

    # -- the interface: each call a thread with a deadline -----------------------------------------

    async def _run(self, what: str, action: Callable[[], T], deadline_s: float | None = None) -> T:
        def guarded() -> T:
            with map_docker(what):
                return action()

        return await in_thread(what, guarded, deadline_s or self.config.deadline_s)

    async def prepare(
        self, image: str, progress: Callable[[Progress], None], lease: str = ""
    ) -> str:
        """Pull *image* unless it is there; check allow-list, manifests and who signed it."""
        return await self._run(
            f"image {image}",
            lambda: self._prepare(image, progress, lease),
            self.config.pull_deadline_s,
        )

    async def hold(self, lease: str, job: JobSpec, seat: Seat) -> int:
        """The network of a cluster's member that is about to start; a process that is in it."""
        ports = tuple(port.port for port in job.ports)
        return await self._run(
            f"network {lease}", lambda: self.networks.hold(lease, job.egress, ports, seat), 60.0
        )

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start *spec*, or return the workload that this lease already has."""
        return await self._run(f"start {spec.lease}", lambda: self._start(spec), 60.0)

    async def adopt(self) -> list[Handle]:
        """Every container of this adapter, running or not."""
        return await self._run("adopt", self._adopt)

    async def status(self, handle: Handle) -> Status:
        """The container's state; stops it at its disk limit."""
        return await self._run(f"status {handle.lease}", lambda: self._status(handle))

    async def pause(self, handle: Handle) -> None:
        """Freeze the container."""
        await self._run(f"pause {handle.lease}", lambda: self._pause(handle, True))

    async def resume(self, handle: Handle) -> None:
        """Thaw the container."""
        await self._run(f"resume {handle.lease}", lambda: self._pause(handle, False))

    async def stop(self, handle: Handle, grace_ms: int) -> Status:
        """TERM, then KILL after the grace."""
        deadline = self.config.deadline_s + grace_ms / 1000
        return await self._run(
            f"stop {handle.lease}", lambda: self._stop(handle, grace_ms), deadline
        )

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        """Fetch what is new from Docker, keep it, and read from what is kept."""
        with contextlib.suppress(WorkloadGone):  # removed: what was kept is all there is
            await self._run(f"logs {handle.lease}", lambda: self._sync_logs(handle))
        return await self._run("logs", lambda: self._logs.read(handle.lease, offset, limit))

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        """Run a command inside; it is killed when it passes its time or its output bound."""
        return await self._run(
            f"exec {handle.lease}",
            lambda: inside.run(
                self._docker().api, self._get(handle), WORKSPACE, command, timeout_ms, limit
            ),
            self.config.deadline_s + timeout_ms / 1000,
        )

    async def terminal(
        self, handle: Handle, command: tuple[str, ...], rows: int, columns: int
    ) -> DockerTerminal:
        """Run a command inside, for somebody who sits at it."""
        container = await self._run("terminal", lambda: self._get(handle))
        return await DockerTerminal.open(
            address(self.config.host), self._docker().api, container, WORKSPACE, command, rows,
            columns,
        )  # fmt: skip

    async def outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        """Collect outputs once the container has exited."""
        return await self._run(
            f"outputs {handle.lease}", lambda: self._outputs(handle, paths, limit_mib), 600.0
        )

    async def pids(self, handle: Handle) -> frozenset[int]:
        """The container's processes."""
        return await self._run("pids", lambda: self.cgroups.pids(handle.cgroup))

    async def remove(self, handle: Handle) -> None:
        """Remove container, network, rules and workspace; keep the log."""
        await self._run(f"remove {handle.lease}", lambda: self._remove(handle), 60.0)

    @property
    def store(self) -> ImageStore:
        """The host's images."""
        return ImageStore(self.shelf, self._docker, self.market, self._prepare)

    # -- the daemon --------------------------------------------------------------------------------

    def _docker(self) -> Any:
        with self._lock:
            if self.client is None:
                self.client = connect(self.config.host, int(self.config.deadline_s))
            return self.client

    def _prepare(self, image: str, progress: Callable[[Progress], None], lease: str) -> str:
        self.shelf.begin(lease)
        ours = self.market is not None and self.market.has(image)
        require_allowed(self.config, image, ours=ours)
        login = self.market.login(image, lease) if self.market is not None else None
        self._signatures.require(self._docker(), image, login)
        most = self.config.image_mib
        return bring(self._docker(), image, most, progress, self.shelf, lease, login)

    # -- start -------------------------------------------------------------------------------------

    def _label_filter(self) -> str:
        return f"tally.adapter={self.config.adapter}"

    def _start(self, spec: WorkloadSpec) -> Handle:
        client = self._docker()
        try:
            found = client.containers.get(container_name(self.config, spec.lease))
            if found.status != "created":
                return self._handle(found)
            found.remove(force=True)  # a start that was cut off: begin again
        except docker.errors.NotFound:
            pass  # the ordinary case
        image = client.images.get(spec.pinned_image())
        (self.config.state / "reasons" / spec.lease).unlink(missing_ok=True)
        workspace = Workspace(self.config.state, spec.lease)
        try:
            workspace.create(spec.files, *owner_ids(spec.user))
            hand_over(self.config.state, spec)
            asked = create_arguments(self.config, spec, image, self.networks.of(spec))
            container = client.containers.create(**asked)
            begin(spec.lease, self._logs, self._cursor(spec.lease))
            container.start()
            container.reload()
            self.shelf.ran(spec.lease)
            return self._handle(container)
        except BaseException:
            with contextlib.suppress(RuntimeFault, docker.errors.DockerException):
                self._remove(
                    Handle("docker", spec.lease, container_name(self.config, spec.lease), 0)
                )
            raise

    # -- a running container -----------------------------------------------------------------------

    def _get(self, handle: Handle) -> Any:
        return self._docker().containers.get(handle.id)

    def _handle(self, container: Any) -> Handle:
        labels = cast("dict[str, str]", container.labels)
        state = container.attrs["State"]
        pid = int(state.get("Pid") or 0)
        mode = str(container.attrs["HostConfig"].get("NetworkMode") or "")
        address = address_of(container) or self.networks.address_for(mode)
        ports = [int(port) for port in labels.get("tally.ports", "").split(",") if port]
        prefix = "tally.label."
        kept = {k.removeprefix(prefix): v for k, v in labels.items() if k.startswith(prefix)}
        group = self.cgroups.of_pid(pid) if pid else None
        return Handle(
            runtime=self.name,
            lease=labels["tally.lease"],
            id=str(container.id),
            started_ms=milliseconds(state.get("StartedAt")) or 0,
            image=str(container.attrs.get("Image", "")),
            pid=pid,
            cgroup=group or "",
            gpus=tuple(uuid for uuid in labels.get("tally.gpus", "").split(",") if uuid),
            ports={port: (address, port) for port in ports if address},
            labels={**kept, "lease": labels["tally.lease"]},
        )

    def _adopt(self) -> list[Handle]:
        listed = self._docker().containers.list(
            all=True, filters={"label": self._label_filter()}, ignore_removed=True
        )
        found = [self._handle(container) for container in listed if container.status != "created"]
        self.networks.sweep([handle.lease for handle in found])
        return found

    def _status(self, handle: Handle) -> Status:
        try:
            with map_docker("inspect"):
                container = self._get(handle)
        except RuntimeFault as fault:
            self._outages.note(isinstance(fault, WorkloadGone))
            raise
        self._outages.note(True)
        status = self._read_status(handle, container)
        if status.state is not WorkloadState.RUNNING:
            return status
        limit = int(container.labels.get("tally.disk_mib", "0"))
        used = self._disks.usage(handle.lease)
        if limit and (used.disk_mib > limit or used.capped):
            self._note(handle.lease, ExitReason.DISK_LIMIT)
            with contextlib.suppress(docker.errors.APIError):  # it may have ended meanwhile
                container.kill()
            container.wait(timeout=10)
            container.reload()
            return self._read_status(handle, container)
        group = self.cgroups.usage(handle.cgroup) if handle.cgroup else None
        memory = 0 if group is None else group.memory_mib
        return Status(status.state, status.times, None, used.disk_mib, memory)

    def _read_status(self, handle: Handle, container: Any) -> Status:
        row = container.attrs["State"]
        state = _STATES.get(str(row["Status"]), WorkloadState.STARTING)
        started, finished = ran(row, handle.started_ms)
        if state is not WorkloadState.EXITED:
            return Status(state, Times(started))
        code = int(row["ExitCode"])
        times = Times(started, finished, code)
        return Status(state, times, self._reason(handle.lease, row, times))

    def _reason(self, lease: str, row: Mapping[str, Any], times: Times) -> ExitReason:
        noted = self._noted(lease)
        if noted is not None:
            return noted
        if self._outages.felled(times):
            return ExitReason.PROVIDER_FAULT
        killed = bool(row.get("OOMKilled"))
        return exit_reason(times.exit_code or 0, out_of_memory=killed, stopped=False)

    def _pause(self, handle: Handle, frozen: bool) -> None:
        container = self._get(handle)
        if container.status == "running" and frozen:
            container.pause()
        elif container.status == "paused" and not frozen:
            container.unpause()

    def _stop(self, handle: Handle, grace_ms: int) -> Status:
        container = self._get(handle)
        if container.status in ("running", "paused"):
            self._note(handle.lease, ExitReason.STOPPED)
            if container.status == "paused":
                container.unpause()  # a frozen process hears no signal
            container.stop(timeout=max(0, grace_ms // 1000))
            container.reload()
        return self._read_status(handle, container)

    # -- logs, exec, outputs -------------------------------------------------------------------

    def _sync_logs(self, handle: Handle) -> None:
        turn = self._copying.setdefault(handle.lease, threading.Lock())
        if not turn.acquire(timeout=self.config.deadline_s):
            raise RuntimeTimeout(f"logs {handle.lease}: Docker sends them too slowly")
        try:
            copy_new(self._get(handle), handle.lease, self._logs, self._cursor(handle.lease))
        finally:
            turn.release()

    def _cursor(self, lease: str) -> Path:
        return self.config.state / "logs" / f"{lease}.cursor"

    def _outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        status = self._read_status(handle, self._get(handle))
        if status.state is not WorkloadState.EXITED:
            raise RuntimeRefused("outputs are collected after the workload has exited")
        return Workspace(self.config.state, handle.lease).collect(paths, limit_mib)

    # -- end ---------------------------------------------------------------------------------------

    def _remove(self, handle: Handle) -> None:
        client = self._docker()
        try:
            container = client.containers.get(handle.id)
            with contextlib.suppress(RuntimeFault):
                self._sync_logs(Handle("docker", handle.lease, handle.id, 0))
            container.remove(force=True, v=True)
        except docker.errors.NotFound:
            pass  # idempotent
        self.networks.remove(handle.lease)
        Workspace(self.config.state, handle.lease).remove()
        self._disks.forget(handle.lease)
        self._cursor(handle.lease).unlink(missing_ok=True)
        self._copying.pop(handle.lease, None)

    def _note(self, lease: str, reason: ExitReason) -> None:
        """Keep why a workload is being ended; the first reason stands."""
        note_reason(self.config.state / "reasons" / lease, reason)

    def _noted(self, lease: str) -> ExitReason | None:
        return noted_reason(self.config.state / "reasons" / lease)
