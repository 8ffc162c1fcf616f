"""Whose process is this: pid → cgroup → container, safe against a pid that is used again.

NVML reports the host's pids.  A pid alone is not an identity: it is cached together with the
process's start time (field 22 of ``/proc/PID/stat``), so a successor is looked up anew.  A whole
device needs no join at all: exclusive use is the attribution, and a stranger's pid is a breach.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
_SCOPE: Final = re.compile(r"tally/([A-Za-z0-9_.-]+)")


@dataclass(frozen=True, slots=True)
class Owner:
    """A process and the workload that it belongs to; *workload* is None for a stranger."""

    pid: int
    started: int
    workload: str | None


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Clock ticks after boot at which the process began; None when it is gone."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return int(fields[19]) if len(fields) > 19 else None


def workload_of(pid: int, proc: Path = PROC) -> str | None:
    """The container id, or the scope's name, that the process's cgroup names."""
    try:
        text = (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return None
    found = _CONTAINER.search(text)
    if found is not None:
        return found[0]
    scope = _SCOPE.search(text)
    return None if scope is None else scope[1]


@dataclass
class Attribution:
    """Looks owners up, and remembers them as long as the process is the same one."""

    proc: Path = PROC
    _known: dict[int, Owner] = field(default_factory=dict[int, Owner])

    def owner(self, pid: int) -> Owner | None:
        """Who *pid* is now; None when it is gone."""
        started = start_time(pid, self.proc)
        if started is None:
            self._known.pop(pid, None)
            return None
        known = self._known.get(pid)
        if known is None or known.started != started:
            known = Owner(pid, started, workload_of(pid, self.proc))
            self._known[pid] = known
        return known

    def split(self, pids: Iterable[int], workload: str) -> tuple[tuple[int, ...], int]:
        """The pids of *workload*, and how many live processes are strangers to it."""
        mine: list[int] = []
        strangers = 0
        for pid in pids:
            owner = self.owner(pid)
            if owner is None:
                continue
            if owner.workload == workload:
                mine.append(pid)
            else:
                strangers += 1
        return tuple(sorted(mine)), strangers

    def forget(self, alive: Iterable[int]) -> None:
        """Drop every pid that is not *alive*, so that the memory stays small."""
        keep = set(alive)
        for pid in [pid for pid in self._known if pid not in keep]:
            del self._known[pid]
