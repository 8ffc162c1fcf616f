"""Whether any process of a workload is left on the host: by its control group, by the namespace of
processes that it had for its own, whatever left that group, and by its mesh's device.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from adapter.host.cgroup import Cgroups
from adapter.mesh.netns import name_of
from tests.e2e.support.embedded import until_true


class Workloads:
    """The processes of leases that ran here; *note* them while they do."""

    def __init__(self) -> None:
        self._groups = Cgroups()
        self.leases: set[str] = set()
        self._spaces = set[str]()
        self._devices = set[str]()

    def note(self, lease: str) -> int:
        """Remember the namespaces of *lease*'s processes; how many processes it has."""
        self.leases.add(lease)
        self._devices |= {
            name_of(lease, group.removesuffix(f"-{lease}").removeprefix("tally/"))
            for group in self._of(lease)
        }
        pids = self._pids(lease)
        self._spaces |= {_space(pid) for pid in pids} - {_space("self"), ""}
        return len(pids)

    def kill(self, lease: str) -> None:
        """SIGKILL to each process of *lease*, at once."""
        for pid in self._pids(lease):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def until_none(self) -> None:
        """Until no process is left of any of them."""
        assert len(self._spaces) >= len(self.leases), "each had a namespace of its own"

        left = list[str]()

        async def none() -> bool:
            left[:] = self._left()
            return not left

        try:
            await until_true(none, "the end of all processes", 60)
        except AssertionError:
            raise AssertionError(f"left behind: {left}") from None

    def _left(self) -> list[str]:
        """What is left, in words."""
        pids = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]
        return (
            [f"{pid} runs in a workload's namespace" for pid in pids if _space(pid) in self._spaces]
            + [
                f"{pid} is in the group of {lease}"
                for lease in self.leases
                for pid in self._pids(lease)
            ]
            + [f"{pid} keeps a mesh" for pid in pids if self._devices & _line(pid)]
        )

    def _pids(self, lease: str) -> set[int]:
        return {pid for group in self._of(lease) for pid in self._groups.pids(group)}

    def _of(self, lease: str) -> list[str]:
        """The groups of *lease*."""
        tree = self._groups.root / ("" if self._groups.version == 2 else "cpuacct") / "tally"
        return [f"tally/{one.name}" for one in tree.glob(f"*-{lease}")]


def _space(pid: int | str) -> str:
    """The namespace of processes that *pid* is in; empty when it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _line(pid: int) -> set[str]:
    """The words that *pid* was started with."""
    with contextlib.suppress(OSError):
        return set(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
    return set()
