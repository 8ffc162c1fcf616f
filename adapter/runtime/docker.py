"""Workloads in hardened Docker containers: the only file that calls docker-py.

Every container: all capabilities dropped, no new privileges, the daemon's seccomp profile,
read-only root, non-root user, limits on memory, CPU, processes, files and log, own bridge (or no
network), image by digest.  Writable are /workspace (watched against the lease's disk limit) and
small tmpfs mounts.  GPUs by CDI.

A workload that the adapter left running is found again by its labels.  What Docker does not keep
(the reason of an end, the log after removal) is kept below *state*.

Over 400 lines: one workload's life in Docker, and the one mapping of docker-py's errors.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import docker
import docker.errors
import docker.types
import requests.exceptions
import urllib3.exceptions

from adapter.core import registries
from adapter.core.workload import (
    ExecResult,
    Handle,
    ImageRefused,
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
from adapter.runtime.egress import Firewall, bridge_name, resolve
from adapter.runtime.logstore import LogStore
from adapter.runtime.manifest import require_whole
from adapter.runtime.pull import pull
from adapter.runtime.workspace import DiskWatch, Workspace, owner_ids
from marketplace import disk
from marketplace.domain.work.workload import (
    WORKSPACE,
    EgressMode,
    ExitReason,
    WorkloadSpec,
    WorkloadState,
    exit_reason,
)

T = TypeVar("T")
_NOWHERE: Final = "192.0.2.1"
"""RFC 5737 TEST-NET: the name server of a workload that may resolve nothing.  Docker's own resolver
would otherwise forward questions from an internal network to the outside."""
NEAR_MS: Final = 15_000
"""A death so close to the daemon's absence counts as one with it: we look once a second, and the
daemon dates what it finds dead to its own return."""
_STATES: Final = {
    "created": WorkloadState.STARTING,
    "running": WorkloadState.RUNNING,
    "restarting": WorkloadState.STARTING,
    "paused": WorkloadState.PAUSED,
    "removing": WorkloadState.STOPPING,
    "exited": WorkloadState.EXITED,
    "dead": WorkloadState.EXITED,
}


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """How to reach the daemon and what to allow.

    *allow* is the owner's list of repositories (:mod:`adapter.core.registries`); *image_mib* the
    most of the disk that pulling one may take; *local* permits ``sha256:…`` images that the host
    already has. *gpu_request*: ``cdi``, or ``legacy`` for older daemons.
    """

    state: Path
    adapter: str
    host: str = ""
    allow: tuple[str, ...] = ()
    image_mib: int = 40_960
    local: bool = True
    gpu_request: Literal["cdi", "legacy"] = "cdi"
    deadline_s: float = 30.0
    pull_deadline_s: float = 1800.0
    tmp_mib: int = 64


@contextmanager
def map_docker(what: str) -> Generator[None]:
    """The one door through which docker-py's errors become ours."""
    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise ImageRefused(f"{what}: {error.explanation}") from error
    except docker.errors.NotFound as error:
        raise WorkloadGone(f"{what}: {error.explanation}") from error
    except docker.errors.APIError as error:
        raise RuntimeFault(f"{what}: {error.explanation or error}") from error
    except requests.exceptions.Timeout as error:
        raise RuntimeTimeout(f"{what}: no answer from the Docker daemon") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise RuntimeFault(f"{what}: {error}") from error
    except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError) as error:
        # A daemon that dies while it answers: half a line, half a JSON, a field that is missing.
        raise RuntimeFault(f"{what}: {type(error).__name__}: {error}") from error


def connect(host: str = "", timeout_s: int = 30) -> Any:
    """A docker-py client: *host*, else DOCKER_HOST, else the usual socket."""
    base = _address(host)
    with map_docker(f"connect to {base}"):
        return docker.DockerClient(base_url=base, timeout=timeout_s)


def _address(host: str) -> str:
    return host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@dataclass
class DockerRuntime:
    """The Docker side of :class:`adapter.runtime.base.Runtime`."""

    config: DockerConfig
    firewall: Firewall = field(default_factory=Firewall)
    cgroups: Cgroups = field(default_factory=Cgroups)
    client: Any = None

    def __post_init__(self) -> None:
        self._logs = LogStore(self.config.state)
        self._disks = DiskWatch(self.config.state)
        self._lock = threading.Lock()
        self._outage: tuple[int, int | None] | None = None  # wall ms: from, until (None = it lasts)

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

    async def prepare(self, image: str, progress: Callable[[Progress], None]) -> str:
        """Pull *image* unless it is there; check it against the allow-list, and its manifests."""
        return await self._run(
            f"image {image}", lambda: self._prepare(image, progress), self.config.pull_deadline_s
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
            lambda: self._exec(handle, command, timeout_ms, limit),
            self.config.deadline_s + timeout_ms / 1000,
        )

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

    # -- images ------------------------------------------------------------------------------------

    def _docker(self) -> Any:
        with self._lock:
            if self.client is None:
                self.client = connect(self.config.host, int(self.config.deadline_s))
            return self.client

    def _prepare(self, image: str, progress: Callable[[Progress], None]) -> str:
        if image.startswith("sha256:"):
            if not self.config.local:
                raise ImageRefused("this offer takes no image that is only on the host")
        else:
            why = registries.refused(image, self.config.allow)
            if why:
                raise ImageRefused(why, image=image.partition("@")[0])
        client = self._docker()
        try:
            found = client.images.get(image)
        except docker.errors.ImageNotFound:
            if image.startswith("sha256:"):
                raise
            require_whole(client, image)
            pull(client, image, self.config.image_mib, progress)
            found = client.images.get(image)
        progress(Progress(1, 1, "ready"))
        return str(found.id)

    # -- start -------------------------------------------------------------------------------------

    def _container_name(self, lease: str) -> str:
        return f"tally-{self.config.adapter[:16]}-{lease}"

    def _label_filter(self) -> str:
        return f"tally.adapter={self.config.adapter}"

    def _start(self, spec: WorkloadSpec) -> Handle:
        client = self._docker()
        try:
            found = client.containers.get(self._container_name(spec.lease))
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
            network = self._network(spec)
            container = client.containers.create(**self.create_arguments(spec, image, network))
            container.start()
            container.reload()
            return self._handle(container)
        except BaseException:
            with contextlib.suppress(RuntimeFault, docker.errors.DockerException):
                self._remove(Handle("docker", spec.lease, self._container_name(spec.lease), 0))
            raise

    def _network(self, spec: WorkloadSpec) -> str:
        """The lease's own bridge with its rules in force, or ``none``."""
        if spec.egress.mode is EgressMode.NONE and not spec.ports:
            return "none"
        bridge = bridge_name(spec.lease, self.config.adapter)
        self.firewall.ensure()
        self.firewall.forget(bridge)
        if spec.egress.mode is EgressMode.LIST:
            self.firewall.allow(bridge, resolve(spec.egress.allow))
        elif spec.egress.mode is EgressMode.OPEN:
            self.firewall.open(bridge)
        client = self._docker()
        with contextlib.suppress(docker.errors.NotFound):
            client.networks.get(bridge).remove()
        client.networks.create(
            bridge,
            driver="bridge",
            internal=spec.egress.mode is EgressMode.NONE,
            options={"com.docker.network.bridge.name": bridge},
            labels={"tally.adapter": self.config.adapter, "tally.lease": spec.lease},
        )
        return bridge

    def create_arguments(self, spec: WorkloadSpec, image: Any, network: str) -> dict[str, Any]:
        """Everything that is asked of the daemon for *spec*; pure but for the image's config."""
        config = cast("Mapping[str, Any]", image.attrs.get("Config") or {})
        size = f"size={self.config.tmp_mib}m,mode=1777,nosuid,nodev"
        declared = cast("Mapping[str, Any]", config.get("Volumes") or {})
        volumes = {path: size for path in declared if path != WORKSPACE}
        workspace = str(Workspace(self.config.state, spec.lease).path)
        arguments: dict[str, Any] = {
            "image": image.id,
            "command": list(spec.command) or None,
            "name": self._container_name(spec.lease),
            "labels": self._labels(spec),
            "environment": self._environment(spec),
            "user": spec.user,
            "working_dir": WORKSPACE,
            "hostname": "tally",
            "detach": True,
            "init": True,
            "healthcheck": {"test": ["NONE"]},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "privileged": False,
            "read_only": True,
            "tmpfs": {"/tmp": size, **volumes},
            "mounts": [docker.types.Mount(WORKSPACE, workspace, type="bind")],
            "mem_limit": f"{spec.memory_mib}m",
            "memswap_limit": f"{spec.memory_mib}m",
            "nano_cpus": spec.cpu_milli * 1_000_000,
            "pids_limit": spec.pids,
            "shm_size": f"{spec.shm_mib}m",
            "ipc_mode": "private",
            "ulimits": [
                docker.types.Ulimit(name="nofile", soft=16_384, hard=16_384),
                docker.types.Ulimit(name="core", soft=0, hard=0),
                docker.types.Ulimit(
                    name="fsize", soft=spec.disk_mib << 20, hard=spec.disk_mib << 20
                ),
            ],
            "log_config": docker.types.LogConfig(
                type="json-file",
                config={"max-size": f"{max(64, spec.log_limit_kib // 2)}k", "max-file": "2"},
            ),
            "restart_policy": {"Name": "no"},
        }
        return {**arguments, **self._connection(spec, network), **self._gpu_request(spec)}

    def _connection(self, spec: WorkloadSpec, network: str) -> dict[str, Any]:
        if network == "none":
            return {"network_mode": "none"}
        names: dict[str, str] = {}
        if spec.egress.mode is EgressMode.LIST:
            names = {target.name: target.address for target in resolve(spec.egress.allow)}
        servers: dict[str, list[str]] = {}
        if spec.egress.mode is not EgressMode.OPEN:
            servers = {"dns": [_NOWHERE], "dns_opt": ["timeout:1", "attempts:1"]}
        return {"network": network, "extra_hosts": names, **servers}

    def _gpu_request(self, spec: WorkloadSpec) -> dict[str, Any]:
        if not spec.gpus:
            return {}
        if self.config.gpu_request == "cdi":
            names = [f"nvidia.com/gpu={uuid}" for uuid in spec.gpus]
            return {"device_requests": [docker.types.DeviceRequest(driver="cdi", device_ids=names)]}
        wanted = [["gpu", "compute", "utility"]]
        request = docker.types.DeviceRequest(device_ids=list(spec.gpus), capabilities=wanted)
        return {"device_requests": [request]}

    def _labels(self, spec: WorkloadSpec) -> dict[str, str]:
        own = {
            "tally.adapter": self.config.adapter,
            "tally.lease": spec.lease,
            "tally.user": spec.user,
            "tally.disk_mib": str(spec.disk_mib),
            "tally.log_kib": str(spec.log_limit_kib),
            "tally.gpus": ",".join(spec.gpus),
            "tally.ports": ",".join(map(str, spec.ports)),
        }
        return {**{f"tally.label.{key}": value for key, value in spec.labels.items()}, **own}

    def _environment(self, spec: WorkloadSpec) -> dict[str, str]:
        """The adapter's own words come last: a preload in the image must not reach a GPU hook that
        runs with the host's privileges (CVE-2025-23266)."""
        fixed = {"LD_PRELOAD": "", "LD_AUDIT": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        if spec.gpus:
            fixed["NVIDIA_DRIVER_CAPABILITIES"] = "compute,utility"
            if self.config.gpu_request == "legacy":
                fixed["NVIDIA_VISIBLE_DEVICES"] = ",".join(spec.gpus)
        defaults = {"HOME": WORKSPACE, "TALLY_LEASE": spec.lease}
        return {**defaults, **spec.env, **spec.secrets, **fixed}

    # -- a running container -----------------------------------------------------------------------

    def _get(self, handle: Handle) -> Any:
        return self._docker().containers.get(handle.id)

    def _handle(self, container: Any) -> Handle:
        labels = cast("dict[str, str]", container.labels)
        state = container.attrs["State"]
        pid = int(state.get("Pid") or 0)
        address = ""
        for network in container.attrs["NetworkSettings"]["Networks"].values():
            address = str(network.get("IPAddress") or address)
        ports = [int(port) for port in labels.get("tally.ports", "").split(",") if port]
        prefix = "tally.label."
        kept = {k.removeprefix(prefix): v for k, v in labels.items() if k.startswith(prefix)}
        group = self.cgroups.of_pid(pid) if pid else None
        return Handle(
            runtime=self.name,
            lease=labels["tally.lease"],
            id=str(container.id),
            started_ms=_milliseconds(state.get("StartedAt")) or 0,
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
        return [self._handle(container) for container in listed if container.status != "created"]

    def _status(self, handle: Handle) -> Status:
        try:
            with map_docker("inspect"):
                container = self._get(handle)
        except RuntimeFault as fault:
            self._note_outage(isinstance(fault, WorkloadGone))
            raise
        self._note_outage(True)
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

    def _note_outage(self, answers: bool) -> None:
        """Remember the daemon's last absence: what fell in it fell with the daemon."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            since, until = self._outage or (now, now)
            lasts = self._outage is not None and until is None
            if answers and lasts:
                self._outage = (since, now)
            elif not answers and not lasts:
                self._outage = (now, None)

    def _fell_in_outage(self, finished_ms: int) -> bool:
        if self._outage is None:
            return False
        since, until = self._outage
        return since - NEAR_MS <= finished_ms and (until is None or finished_ms <= until + NEAR_MS)

    def _read_status(self, handle: Handle, container: Any) -> Status:
        row = container.attrs["State"]
        state = _STATES.get(str(row["Status"]), WorkloadState.STARTING)
        started = _milliseconds(row.get("StartedAt")) or handle.started_ms
        if state is not WorkloadState.EXITED:
            return Status(state, Times(started))
        code = int(row["ExitCode"])
        times = Times(started, _milliseconds(row.get("FinishedAt")), code)
        return Status(state, times, self._reason(handle.lease, row, times))

    def _reason(self, lease: str, row: Mapping[str, Any], times: Times) -> ExitReason:
        noted = self._noted(lease)
        if noted is not None:
            return noted
        code, finished = times.exit_code or 0, times.finished_ms or 0
        killed_by_host = code in (137, 143, 255)
        if killed_by_host and self._fell_in_outage(finished):
            return ExitReason.PROVIDER_FAULT  # it fell together with its daemon
        begun = self._daemon_begun_ms()
        if killed_by_host and times.started_ms < begun and abs(finished - begun) <= 60_000:
            return ExitReason.PROVIDER_FAULT  # the daemon was restarted between two of our looks
        killed = bool(row.get("OOMKilled"))
        return exit_reason(code, out_of_memory=killed, stopped=False)

    def _daemon_begun_ms(self) -> int:
        """When the daemon began to listen: its socket is made anew at every start. 0 = unknown."""
        scheme, _, path = _address(self.config.host).partition("://")
        try:
            return os.stat(path).st_ctime_ns // 1_000_000 if scheme == "unix" else 0
        except OSError:
            return 0

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
        """Copy what Docker has and we have not.  Docker's stamp of the last line is the cursor."""
        container = self._get(handle)
        limit = int(container.labels.get("tally.log_kib", "1024")) << 10
        cursor = self.config.state / "logs" / f"{handle.lease}.cursor"
        last = cursor.read_text() if cursor.exists() else ""
        since = int(_milliseconds(last) or 0) // 1000 if last else None
        stream = container.logs(stream=True, timestamps=True, since=since, follow=False)
        fresh = bytearray()
        newest = last
        for line in _lines(stream):
            stamp, _, text = line.partition(b" ")
            when = _sortable(stamp.decode(errors="replace"))
            if when <= last:
                continue
            if len(fresh) >= 2 * limit:
                break  # the rest is fetched by the next call
            fresh += text
            newest = when
        if fresh:
            self._logs.append(handle.lease, bytes(fresh), limit)
            disk.write_whole(cursor, newest.encode())

    def _exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        container, api = self._get(handle), self._docker().api
        user = container.labels.get("tally.user", "65534")
        made = api.exec_create(container.id, list(command), user=user, workdir=WORKSPACE)["Id"]
        killer = threading.Timer(timeout_ms / 1000, self._end_exec, (api, made))
        killer.daemon = True
        kept = bytearray()
        try:
            stream = api.exec_start(made, stream=True)
            killer.start()
            for piece in stream:
                kept += piece[: limit - len(kept)]
                if len(kept) >= limit:
                    self._end_exec(api, made)
        finally:
            killer.cancel()
        code = api.exec_inspect(made)["ExitCode"]
        return ExecResult(137 if code is None else int(code), bytes(kept))

    def _end_exec(self, api: Any, made: str) -> None:
        with contextlib.suppress(docker.errors.DockerException, OSError):  # gone already
            pid = int(api.exec_inspect(made).get("Pid") or 0)
            if pid > 1:
                os.kill(pid, signal.SIGKILL)

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
        bridge = bridge_name(handle.lease, self.config.adapter)
        with contextlib.suppress(docker.errors.NotFound):
            client.networks.get(bridge).remove()
            self.firewall.forget(bridge)
        Workspace(self.config.state, handle.lease).remove()
        self._disks.forget(handle.lease)
        (self.config.state / "logs" / f"{handle.lease}.cursor").unlink(missing_ok=True)

    def _note(self, lease: str, reason: ExitReason) -> None:
        """Keep why a workload is being ended; the first reason stands."""
        note_reason(self.config.state / "reasons" / lease, reason)

    def _noted(self, lease: str) -> ExitReason | None:
        return noted_reason(self.config.state / "reasons" / lease)


def _lines(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream that comes in any pieces."""
    rest = b""
    for piece in stream:
        rest += piece
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _sortable(stamp: str) -> str:
    """Docker trims a stamp's trailing zeros; with all nine digits, later is greater as text."""
    whole, _, part = stamp.rstrip("Z").partition(".")
    return f"{whole}.{part.ljust(9, '0')}Z"


def _milliseconds(stamp: object) -> int | None:
    """Docker's RFC 3339 stamp with nanoseconds as milliseconds; None for its zero time."""
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", str(stamp or "")
    )
    if match is None or match[1].startswith("0001"):
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    whole = datetime.fromisoformat(match[1] + zone).astimezone(UTC)
    return int(whole.timestamp()) * 1000 + int((match[2] or "0").ljust(9, "0")[:3])
