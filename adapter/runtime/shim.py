"""The small parent of a process workload: lives on when the adapter does not.

Started detached as ``python -m adapter.runtime.shim DIRECTORY`` with a JSON plan on stdin (so that
secrets touch no disk).  It puts the child into its control group, pumps its output into the bounded
log, and records start, exit code and end in ``status.json``; nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from adapter.cgroup import Cgroups
from adapter.runtime.logstore import LogStore
from marketplace import disk
from marketplace.disk import DiskFault

_NO_NEW_PRIVILEGES: Final = 38  # prctl(2)


def write_status(folder: Path, **facts: object) -> None:
    """Replace status.json in one step."""
    disk.write_whole(folder / "status.json", json.dumps(facts).encode())


def _prepare(plan: dict[str, Any], groups: Cgroups) -> Callable[[], None]:
    """What the child does between fork and exec: limits, group, and its own identity."""

    def child() -> None:
        os.setpgrp()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        groups.join(plan["group"], os.getpid())
        for what, value in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
            (resource.RLIMIT_FSIZE, plan["disk_mib"] << 20),
        ):
            resource.setrlimit(what, (value, value))
        if plan["uid"] is not None:
            os.setgroups([])
            os.setgid(plan["gid"])
            os.setuid(plan["uid"])
            ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)

    return child


def main(folder: Path) -> int:
    """Run the plan to its end."""
    plan: dict[str, Any] = json.load(sys.stdin)
    groups = Cgroups(Path(plan["cgroup_root"]))
    logs = LogStore(Path(plan["state"]))
    facts: dict[str, object] = {"shim": os.getpid(), "group": plan["group"]}
    try:
        child = subprocess.Popen(
            plan["command"],
            env=plan["env"],
            cwd=plan["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_prepare(plan, groups),
        )
    except (OSError, subprocess.SubprocessError) as error:
        write_status(folder, **facts, failed=str(error))
        return 1
    started = time.time_ns() // 1_000_000
    write_status(folder, **facts, pid=child.pid, started_ms=started)
    assert child.stdout is not None
    while data := os.read(child.stdout.fileno(), 1 << 16):
        try:
            logs.append(plan["lease"], data, plan["log_limit"])
        except DiskFault as fault:  # what it prints is lost; the workload itself goes on
            with contextlib.suppress(OSError):
                os.write(2, fault.line().encode() + b"\n")
    code = child.wait()
    finished = time.time_ns() // 1_000_000
    found = groups.usage(plan["group"])
    for pid in groups.pids(plan["group"]):  # what it left in the background ends with it
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    write_status(
        folder,
        **facts,
        pid=child.pid,
        started_ms=started,
        finished_ms=finished,
        exit_code=code if code >= 0 else 128 - code,
        oom=bool(found and found.oom_kills),
        cpu_ns=found.cpu_ns if found else 0,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
