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
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from adapter.host.cgroup import Cgroups
from adapter.runtime.logstore import LogStore
from marketplace import disk
from marketplace.disk import DiskFault
from marketplace.domain.work.workload import WORKSPACE

_NO_NEW_PRIVILEGES: Final = 38  # prctl(2)
ENVIRONMENT_FD: Final = 9
"""Where a confined workload's environment waits until the workload is its own user: what runs as
root before that (bubblewrap, setpriv) sees no variable of a tenant.
"""
ENTER: Final = f'. /dev/fd/{ENVIRONMENT_FD}; exec {ENVIRONMENT_FD}<&-; cd {WORKSPACE}; exec "$@"'
"""Run by the workload's own user: take the environment, enter the folder, become the command."""


def _exported(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}\n"


def write_status(folder: Path, **facts: object) -> None:
    """Replace status.json in one step."""
    disk.write_whole(folder / "status.json", json.dumps(facts).encode())


def limit(disk_mib: int) -> None:
    """This process's limits, and those of all that it starts: no core, few files, none beyond the
    disk's.
    """
    files = min(16_384, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    for what, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_FSIZE, disk_mib << 20),
    ):
        resource.setrlimit(what, (value, value))


def plain_signals() -> None:
    """As a program expects them. What is ignored or held back stays so through an execve, and an
    adapter that nohup or a script's ``&`` has started ignores some: there a Ctrl-C would end
    nothing (signal(7); POSIX, "Asynchronous Lists").
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _prepare(plan: dict[str, Any], groups: Cgroups) -> Callable[[], None]:
    """What the child does between fork and exec: limits, group, and its own identity."""

    def child() -> None:
        os.setpgrp()
        plain_signals()
        groups.join(plan["group"], os.getpid())
        limit(plan["disk_mib"])
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
    handed = (ENVIRONMENT_FD,) if plan["hands_over"] else ()
    if handed:
        waiting = os.memfd_create("environment", 0)
        with open(waiting, "wb", closefd=False) as file:
            file.write("".join(_exported(*one) for one in plan["env"].items()).encode())
        os.lseek(waiting, 0, os.SEEK_SET)
        os.dup2(waiting, ENVIRONMENT_FD)
    try:
        child = subprocess.Popen(
            plan["command"],
            env={"PATH": os.defpath} if handed else plan["env"],
            pass_fds=handed,
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
