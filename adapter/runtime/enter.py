"""Run a command inside a process workload, as its user.

``python -m adapter.runtime.enter CGROUPS GROUP DISK_MIB PID UID GID FOLDER COMMAND…`` as root, or
with ``- -`` for UID and GID where the adapter is no root itself.  PID is bubblewrap's own first
process inside (0: the workload has no namespaces), never one of the tenant's, who may have laid
other programs over the host's in a mount namespace of its own.  And no file in there is looked up,
loaded or run before the identity is the workload's for good: all that happens by system calls of
this process, which was loaded outside.

setns(2), pid_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import termios
from pathlib import Path
from typing import Final

from adapter.host.cgroup import Cgroups
from adapter.runtime.shim import limit, plain_signals

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
)  # fmt: skip
_PARENT_DEATH_SIGNAL: Final = 1  # prctl(2)
_CAPBSET_DROP: Final = 24
_NO_NEW_PRIVILEGES: Final = 38
_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_CAPABILITIES: Final = 64  # as many as a set can hold; those that the kernel lacks are refused
CANNOT: Final = 126
"""Exit code for what could not be entered or run, as a shell's."""
KIND: Final = "xterm-256color"
ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(done: int, what: str) -> None:
    if done != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _enter(pid: int, user: bool) -> None:
    """The namespaces of *pid*, at once, by the rights from before; that of process ids counts from
    the next child on. :class:`OSError` where they cannot be entered.
    """
    held = os.pidfd_open(pid)
    spaces = _NEWNS | _NEWUTS | _NEWIPC | _NEWNET | _NEWPID | (_NEWUSER if user else 0)
    _check(_libc.setns(held, spaces), "setns")
    os.close(held)


def _become(uid: int, gid: int) -> None:
    """That user for good: no group, no capability, and no program that gives one."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def main(
    pid: int, owner: tuple[int, int] | None, folder: str, command: list[str], disk_mib: int
) -> int:
    """The command's exit code. It ends with this process, whatever group it makes for itself."""
    try:
        if pid:
            _enter(pid, user=owner is None)
    except OSError as error:
        os.write(1, f"the workload cannot be entered: {error.strerror}\n".encode())
        return CANNOT
    sat_at = os.isatty(0)
    if sat_at:  # before it is the workload's: a terminal is its session's
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code if code >= 0 else 128 - code
    try:
        plain_signals()
        limit(disk_mib)
        if owner is not None:
            _become(*owner)
        _check(_libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "prctl")
        os.chdir(folder)
        kind = {"TERM": KIND} if sat_at else {}
        os.execvpe(command[0], command, {**ENVIRONMENT, **kind, "HOME": folder})
    except OSError as error:
        os.write(1, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT)


if __name__ == "__main__":
    groups, group, mib, first, uid, gid, home, *words = sys.argv[1:]
    Cgroups(Path(groups)).join(group, os.getpid())
    who = None if uid == "-" else (int(uid), int(gid))
    os._exit(
        main(int(first), who, home, words, int(mib))
    )  # nothing is looked for in there any more
