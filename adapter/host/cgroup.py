"""Control groups, versions 1 and 2: what a workload's CPU time is, and a scope for a process.

Read on the host while the workload lives (the group vanishes at its exit); a reading inside gVisor
is wrong.  Version 1 keeps one tree for each controller, version 2 one for all; both may be mounted
at once ("hybrid"), so each controller is looked for where it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.domain.errors import Fault

ROOT: Final = Path("/sys/fs/cgroup")
_CONTROLLERS: Final = ("cpu", "cpuacct", "memory", "pids", "freezer")
_PERIOD_US: Final = 100_000


class CgroupFault(Fault):
    """A control group could not be made or changed."""

    code = "CGROUP_FAULT"
    remedy = "run the adapter as root, with the cgroup file system mounted and writable"


@dataclass(frozen=True, slots=True)
class Usage:
    """Cumulative CPU, and memory now and at most."""

    cpu_ns: int
    memory_mib: int = 0
    oom_kills: int = 0


class Cgroups:
    """The host's control groups under *root*."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    @property
    def version(self) -> int:
        """2 when the unified tree holds the controllers, else 1; 0 when nothing is mounted."""
        if (self.root / "cgroup.controllers").exists():
            return 2
        return 1 if (self.root / "cpuacct").is_dir() or (self.root / "memory").is_dir() else 0

    def of_pid(self, pid: int, proc: Path = Path("/proc")) -> str | None:
        """The group of a process as a path below the mount; None when it is gone."""
        try:
            lines = (proc / str(pid) / "cgroup").read_text().splitlines()
        except OSError:
            return None
        wanted = "" if self.version == 2 else "cpuacct"
        for line in lines:
            _number, controllers, path = line.split(":", 2)
            if (not wanted and not controllers) or (wanted and wanted in controllers.split(",")):
                return path.lstrip("/")
        return None

    def usage(self, group: str) -> Usage | None:
        """What the group has used; None once it is gone."""
        try:
            if self.version == 2:
                return self._usage_2(self.root / group)
            cpu = int((self.root / "cpuacct" / group / "cpuacct.usage").read_text())
        except (OSError, ValueError):
            return None
        memory = self.root / "memory" / group
        oom = _fields(memory / "memory.oom_control").get("oom_kill", 0)
        return Usage(cpu, _number(memory / "memory.usage_in_bytes") >> 20, oom)

    def _usage_2(self, path: Path) -> Usage:
        stat = _fields(path / "cpu.stat", required=True)
        oom = _fields(path / "memory.events").get("oom_kill", 0)
        memory = _number(path / "memory.current") >> 20
        return Usage(stat["usage_usec"] * 1000, memory, oom)

    def pids(self, group: str) -> frozenset[int]:
        """The processes in the group and below it."""
        found: set[int] = set()
        for tree in self._trees(group)[:1]:
            for directory, _names, _files in os.walk(tree):
                try:
                    found.update(map(int, (Path(directory) / "cgroup.procs").read_text().split()))
                except OSError:
                    continue  # the group vanished while it was read
        return frozenset(found)

    def create(self, group: str, cpu_milli: int, memory_mib: int, pids: int) -> None:
        """Make *group* with limits; :class:`CgroupFault` if the host does not allow it."""
        quota = cpu_milli * _PERIOD_US // 1000
        limit = memory_mib << 20
        try:
            for tree in self._trees(group):
                tree.mkdir(parents=True, exist_ok=True)
            if self.version == 2:
                parent = (self.root / group).parent
                _write(parent / "cgroup.subtree_control", "+cpu +memory +pids")
                one = self.root / group
                _write(one / "cpu.max", f"{quota} {_PERIOD_US}")
                _write(one / "memory.max", str(limit))
                _optional_write(one / "memory.swap.max", "0")
                _write(one / "pids.max", str(pids))
                return
            _write(self.root / "cpu" / group / "cpu.cfs_period_us", str(_PERIOD_US))
            _write(self.root / "cpu" / group / "cpu.cfs_quota_us", str(quota))
            _write(self.root / "memory" / group / "memory.limit_in_bytes", str(limit))
            swap = self.root / "memory" / group / "memory.memsw.limit_in_bytes"
            _optional_write(swap, str(limit))
            _write(self.root / "pids" / group / "pids.max", str(pids))
        except OSError as error:
            raise CgroupFault(f"{group}: {error}") from error

    def join(self, group: str, pid: int) -> None:
        """Move a process into the group."""
        try:
            for tree in self._trees(group):
                _write(tree / "cgroup.procs", str(pid))
        except OSError as error:
            raise CgroupFault(f"{group}: {error}") from error

    def freeze(self, group: str, frozen: bool) -> None:
        """Stop or resume every process of the group at once."""
        try:
            if self.version == 2:
                _write(self.root / group / "cgroup.freeze", str(int(frozen)))
            else:
                state = "FROZEN" if frozen else "THAWED"
                _write(self.root / "freezer" / group / "freezer.state", state)
        except OSError as error:
            raise CgroupFault(f"{group}: {error}") from error

    def frozen(self, group: str) -> bool:
        """True while the group is frozen."""
        try:
            if self.version == 2:
                return (self.root / group / "cgroup.freeze").read_text().strip() == "1"
            return (self.root / "freezer" / group / "freezer.state").read_text().strip() != "THAWED"
        except OSError:
            return False

    def remove(self, group: str) -> bool:
        """Remove an empty group; False while processes remain."""
        done = True
        for tree in self._trees(group):
            try:
                tree.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                done = False
        return done

    def _trees(self, group: str) -> list[Path]:
        if self.version == 2:
            return [self.root / group]
        return [self.root / name / group for name in _CONTROLLERS if (self.root / name).is_dir()]


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _optional_write(path: Path, text: str) -> None:
    """A limit that kernels without swap accounting do not have."""
    if path.exists():
        path.write_text(text)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _fields(path: Path, *, required: bool = False) -> dict[str, int]:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        if required:
            raise
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
