"""Workloads as plain processes, for bare-metal and multi-node work.

Confined by bubblewrap where it is installed: own mount, pid, IPC and network namespaces, the host's
programs read-only, an own user, no capabilities.  Weaker than a container: no seccomp filter, the
host's ``/usr`` is visible, and a workload that is given the host's network (OPEN egress or ports)
can reach the host's services.  Without bubblewrap a workload is UNCONFINED and is refused unless
the provider's configuration allows it.

A detached shim (``shim.py``) is each workload's parent, so the adapter may restart at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

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
from adapter.host.cgroup import CgroupFault, Cgroups
from adapter.host.processes import start_time
from adapter.runtime.calls import in_thread, note_reason, noted_reason
from adapter.runtime.confinement import (
    UNCONFINED,
    ProcessConfig,
    command_line,
    device_nodes,
    environment,
    require_possible,
)
from adapter.runtime.logstore import LogStore
from adapter.runtime.own_processes import launch_shim, own_modules, reap, run_bounded
from adapter.runtime.terminal import LocalTerminal
from adapter.runtime.volumes.handed import hand_over
from adapter.runtime.workspace import DiskWatch, Workspace, owner_ids
from marketplace import disk
from marketplace.domain.work.workload import (
    WORKSPACE,
    ExitReason,
    WorkloadSpec,
    WorkloadState,
    exit_reason,
)

T = TypeVar("T")
_BEGINS_S: Final = 5.0
"""Within which the first process of a workload that was just started is there."""


@dataclass
class ProcessRuntime:
    """The bare-metal side of :class:`adapter.runtime.base.Runtime`."""

    config: ProcessConfig
    cgroups: Cgroups = field(default_factory=Cgroups)

    def __post_init__(self) -> None:
        self._logs = LogStore(self.config.state)
        self._disks = DiskWatch(self.config.state)

    @property
    def name(self) -> str:
        """The runtime's name in offers and handles."""
        return "process"

    @property
    def confinement(self) -> str:
        """``bubblewrap``, or UNCONFINED: shown with the offer."""
        return "bubblewrap" if self.config.bubblewrap else UNCONFINED

    async def _run(self, what: str, action: Callable[[], T], deadline_s: float | None = None) -> T:
        def guarded() -> T:
            try:
                return action()
            except CgroupFault as fault:
                raise RuntimeFault(f"{what}: {fault}") from fault
            except (OSError, ValueError, KeyError) as error:  # a record that was cut short, too
                raise RuntimeFault(f"{what}: {error}") from error

        return await in_thread(what, guarded, deadline_s or self.config.deadline_s)

    async def prepare(
        self, image: str, progress: Callable[[Progress], None], lease: str = ""
    ) -> str:
        """Nothing to fetch: programs are the host's, or come as files.  Refuses an image."""
        if image:
            raise RuntimeRefused("the process runtime runs no images")
        progress(Progress(1, 1, "ready"))
        return ""

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start *spec* under a shim, or return the workload that this lease already has."""
        return await self._run(f"start {spec.lease}", lambda: self._start(spec))

    async def adopt(self) -> list[Handle]:
        """Every workload below the state folder."""
        return await self._run("adopt", self._adopt)

    async def status(self, handle: Handle) -> Status:
        """From the shim's record; stops the workload at its disk limit."""
        return await self._run(f"status {handle.lease}", lambda: self._status(handle))

    async def pause(self, handle: Handle) -> None:
        """Freeze the group."""
        await self._run("pause", lambda: self.cgroups.freeze(handle.cgroup, True))

    async def resume(self, handle: Handle) -> None:
        """Thaw the group."""
        await self._run("resume", lambda: self.cgroups.freeze(handle.cgroup, False))

    async def stop(self, handle: Handle, grace_ms: int) -> Status:
        """TERM to every process, then KILL after the grace."""
        deadline = self.config.deadline_s + grace_ms / 1000
        return await self._run("stop", lambda: self._stop(handle, grace_ms), deadline)

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        """Read from the kept log, which the shim writes."""
        return await self._run("logs", lambda: self._logs.read(handle.lease, offset, limit))

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        """Run a command in the workload's namespaces, as its user."""
        return await self._run(
            "exec",
            lambda: run_bounded(self._inside(handle, command), timeout_ms / 1000, limit),
            self.config.deadline_s + timeout_ms / 1000,
        )

    async def terminal(
        self, handle: Handle, command: tuple[str, ...], rows: int, columns: int
    ) -> LocalTerminal:
        """The same, for somebody who sits at it."""
        line = await self._run("terminal", lambda: self._inside(handle, command))
        return LocalTerminal(line, rows, columns, own_modules())

    async def outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        """Collect outputs once the workload has exited."""
        return await self._run("outputs", lambda: self._outputs(handle, paths, limit_mib), 600.0)

    async def pids(self, handle: Handle) -> frozenset[int]:
        """The group's processes."""
        return await self._run("pids", lambda: self.cgroups.pids(handle.cgroup))

    async def remove(self, handle: Handle) -> None:
        """End what is left, forget the workload, keep its log."""
        await self._run("remove", lambda: self._remove(handle), 60.0)

    # -- start -------------------------------------------------------------------------------------

    def _folder(self, lease: str) -> Path:
        return self.config.state / "processes" / lease

    def _start(self, spec: WorkloadSpec) -> Handle:
        folder = self._folder(spec.lease)
        if (folder / "status.json").exists():
            return self._handle(folder)
        require_possible(self.config, spec)
        uid, gid = owner_ids(spec.user)
        workspace = Workspace(self.config.state, spec.lease)
        workspace.create(spec.files, uid, gid)
        hand_over(self.config.state, spec)
        folder.mkdir(parents=True, exist_ok=True)
        group = f"tally/{self.config.adapter}-{spec.lease}"
        self.cgroups.create(group, spec.cpu_milli, spec.memory_mib, spec.pids)
        nodes = device_nodes(spec.gpus, self.config.driver_proc)
        disk.write_whole(folder / "about.json", json.dumps(self._about(spec, group)).encode())
        confined = self.config.bubblewrap is not None
        plan = {
            "lease": spec.lease,
            "group": group,
            "command": command_line(self.config, spec, workspace.path, nodes),
            "env": environment(self.config, spec, workspace.path),
            "hands_over": confined and os.geteuid() == 0,
            "cwd": str(workspace.path),
            "uid": None if confined or os.geteuid() != 0 else uid,
            "gid": gid,
            "disk_mib": spec.disk_mib,
            "log_limit": spec.log_limit_kib << 10,
            "state": str(self.config.state),
            "cgroup_root": str(self.cgroups.root),
        }
        launch_shim(folder, plan)
        return self._await_start(folder, spec.lease)

    def _about(self, spec: WorkloadSpec, group: str) -> dict[str, object]:
        return {
            "lease": spec.lease,
            "group": group,
            "user": spec.user,
            "disk_mib": spec.disk_mib,
            "gpus": list(spec.gpus),
            "ports": list(spec.ports),
            "labels": spec.all_labels(),
            "boot_id": _boot_id(),
        }

    def _await_start(self, folder: Path, lease: str) -> Handle:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            facts = self._facts(folder)
            if "failed" in facts:
                said = str(facts["failed"])
                self._remove(Handle(self.name, lease, "", 0, cgroup=str(facts["group"])))
                raise RuntimeFault(f"{lease}: {said}")
            if "started_ms" in facts:
                return self._handle(folder)
            time.sleep(0.02)
        raise RuntimeTimeout(f"{lease}: its shim did not start")

    # -- a running workload ------------------------------------------------------------------------

    def _facts(self, folder: Path) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", json.loads((folder / "status.json").read_text()))
        except FileNotFoundError:
            return {}

    def _handle(self, folder: Path) -> Handle:
        about = cast("dict[str, Any]", json.loads((folder / "about.json").read_text()))
        facts = self._facts(folder)
        return Handle(
            runtime=self.name,
            lease=about["lease"],
            id=about["group"].removeprefix("tally/"),
            started_ms=int(facts.get("started_ms", 0)),
            pid=int(facts.get("pid", 0)),
            cgroup=about["group"],
            gpus=tuple(about["gpus"]),
            ports={int(port): ("127.0.0.1", int(port)) for port in about["ports"]},
            labels=about["labels"],
        )

    def _adopt(self) -> list[Handle]:
        folders = sorted((self.config.state / "processes").glob("*/status.json"))
        return [self._handle(path.parent) for path in folders]

    def _status(self, handle: Handle) -> Status:
        status = self._read_status(handle)
        if status.state is not WorkloadState.RUNNING:
            return status
        about = json.loads((self._folder(handle.lease) / "about.json").read_text())
        used = self._disks.usage(handle.lease)
        if used.disk_mib > int(about["disk_mib"]) or used.capped:
            self._note(handle.lease, ExitReason.DISK_LIMIT)
            return self._kill(handle)
        group = self.cgroups.usage(handle.cgroup)
        memory = 0 if group is None else group.memory_mib
        return Status(status.state, status.times, None, used.disk_mib, memory)

    def _read_status(self, handle: Handle) -> Status:
        reap()
        folder = self._folder(handle.lease)
        facts = self._facts(folder)
        if not facts:
            raise WorkloadGone(f"{handle.lease} has no record")
        times = Times(int(facts["started_ms"]), facts.get("finished_ms"), facts.get("exit_code"))
        if times.finished_ms is None:
            if start_time(int(facts["shim"])) is None or self._rebooted(folder):
                return Status(WorkloadState.EXITED, times, self._noted(folder) or ExitReason.LOST)
            frozen = self.cgroups.frozen(handle.cgroup)
            return Status(WorkloadState.PAUSED if frozen else WorkloadState.RUNNING, times)
        killed = bool(facts.get("oom")) and times.exit_code != 0
        reason = exit_reason(times.exit_code, out_of_memory=killed, stopped=False)
        return Status(WorkloadState.EXITED, times, self._noted(folder) or reason)

    def _rebooted(self, folder: Path) -> bool:
        return bool(json.loads((folder / "about.json").read_text())["boot_id"] != _boot_id())

    def _stop(self, handle: Handle, grace_ms: int) -> Status:
        status = self._read_status(handle)
        if status.state is WorkloadState.EXITED:
            return status
        self._note(handle.lease, ExitReason.STOPPED)
        self.cgroups.freeze(handle.cgroup, False)
        self._signal(handle, signal.SIGTERM)
        deadline = time.monotonic() + grace_ms / 1000
        while time.monotonic() < deadline:
            status = self._read_status(handle)
            if status.state is WorkloadState.EXITED:
                return status
            time.sleep(0.05)
        return self._kill(handle)

    def _kill(self, handle: Handle) -> Status:
        with contextlib.suppress(CgroupFault):  # the group may be gone with its last process
            self.cgroups.freeze(handle.cgroup, False)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            self._signal(handle, signal.SIGKILL)
            status = self._read_status(handle)
            if status.state is WorkloadState.EXITED:
                return status
            time.sleep(0.05)
        raise RuntimeTimeout(f"{handle.lease}: does not end")

    def _signal(self, handle: Handle, number: signal.Signals) -> None:
        """To every process of the group; TERM spares bubblewrap, whose death would be a KILL."""
        for pid in self.cgroups.pids(handle.cgroup):
            with contextlib.suppress(OSError):  # it ended meanwhile
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if number is signal.SIGKILL or name != "bwrap":
                    os.kill(pid, number)

    def _inside(self, handle: Handle, command: tuple[str, ...]) -> list[str]:
        """What runs *command* in the workload's namespaces, as its user."""
        about = json.loads((self._folder(handle.lease) / "about.json").read_text())
        confined = self.config.bubblewrap is not None
        first = self._first_inside(handle) if confined else 0
        owner = [str(one) for one in owner_ids(about["user"])] if os.geteuid() == 0 else ["-", "-"]
        home = WORKSPACE if confined else str(Workspace(self.config.state, handle.lease).path)
        if self.cgroups.frozen(handle.cgroup):
            raise RuntimeRefused(f"{handle.lease} is paused: nothing runs in it now")
        group = [str(self.cgroups.root), handle.cgroup, str(about["disk_mib"])]
        module = [sys.executable, "-m", "adapter.runtime.enter"]
        return [*module, *group, str(first), *owner, home, *command]

    def _first_inside(self, handle: Handle) -> int:
        """Bubblewrap's own first process in the workload's namespaces: the only child of the one
        that the shim started. What a tenant names ``bwrap`` is not asked.
        """
        deadline = time.monotonic() + _BEGINS_S
        while time.monotonic() < deadline:
            outer = int(self._facts(self._folder(handle.lease)).get("pid", 0))
            children = list[str]()
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
            # Asked last: then it was this one whose children those are.
            if outer and outer not in self.cgroups.pids(handle.cgroup):
                break
            if outer and children:
                return int(children[0])
            time.sleep(0.01)  # it was started a moment ago
        raise WorkloadGone(f"{handle.lease} runs no process")

    def _outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        if self._read_status(handle).state is not WorkloadState.EXITED:
            raise RuntimeRefused("outputs are collected after the workload has exited")
        return Workspace(self.config.state, handle.lease).collect(paths, limit_mib)

    def _remove(self, handle: Handle) -> None:
        folder = self._folder(handle.lease)
        if (folder / "status.json").exists() and "failed" not in self._facts(folder):
            if self._read_status(handle).state is not WorkloadState.EXITED:
                self._kill(handle)
        deadline = time.monotonic() + 5
        while handle.cgroup and not self.cgroups.remove(handle.cgroup):
            if time.monotonic() > deadline:
                raise RuntimeFault(f"{handle.cgroup} still holds processes")
            self._signal(handle, signal.SIGKILL)
            time.sleep(0.05)
        Workspace(self.config.state, handle.lease).remove()
        self._disks.forget(handle.lease)
        shutil.rmtree(folder, ignore_errors=True)
        reap()

    def _note(self, lease: str, reason: ExitReason) -> None:
        note_reason(self._folder(lease) / "reason", reason)

    def _noted(self, folder: Path) -> ExitReason | None:
        return noted_reason(folder / "reason")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
