"""A member's network namespace: named, so that it is found again and outlives the adapter, and
there before the workload.

Inside is nothing but loopback and the mesh: no way to the host, to its neighbours or to another
group, whatever a workload sends. Nothing is forwarded, and there is no IPv6.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from adapter.core.workload import RuntimeFault

T = TypeVar("T")
PREFIX: Final = "tlw"
RUN: Final = Path("/run/netns")
_NEWNET: Final = 0x40000000  # setns(2)
_KIND_OF_NAMESPACE: Final = 0xB703  # NS_GET_NSTYPE, ioctl_ns(2)
_DEADLINE_S: Final = 10.0
_QUIET: Final = (
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/all/rp_filter", "1"),
)
"""A new namespace takes the host's for IPv4, which forwards wherever Docker runs."""


class MeshFault(RuntimeFault):
    """A member's network could not be made or kept."""

    code = "MESH_FAULT"
    remedy = "run `tally adapter doctor` on the host: a mesh needs root, /dev/net/tun, wireguard-go"


def name_of(lease: str, adapter: str) -> str:
    """Of the lease's namespace, and of its interface while that is outside: unique on a host, at
    most 15 characters as the kernel wants.
    """
    return PREFIX + hashlib.sha256(f"{adapter}/{lease}".encode()).hexdigest()[:12]


def path_of(name: str) -> Path:
    """The namespace as a file, to enter it by."""
    return RUN / name


def run(*line: str, text: str = "") -> str:
    """What the command said; :class:`MeshFault` with its own words where it fails."""
    try:
        done = subprocess.run(
            line, input=text.encode(), capture_output=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeshFault(f"{line[0]}: {error}") from error
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode:
        raise MeshFault(f"{' '.join(line)}: {said}")
    return said


def is_there(name: str) -> bool:
    """Whether the namespace stands; a file that a crash left between two steps is none."""
    try:
        with path_of(name).open() as file:
            return fcntl.ioctl(file, _KIND_OF_NAMESPACE) == _NEWNET
    except OSError:
        return False


def make(name: str, pid: int = 0) -> None:
    """The namespace, closed and with its loopback up; may be repeated. One that process *pid* is in
    (0: none) is named again instead of made: a service that has mounts of its own loses the name
    when it is started anew, and its workloads live on.
    """
    theirs = _network_of(pid)
    if is_there(name) and theirs is not None and theirs != _node(path_of(name)):
        remove(name)  # of an earlier try: its workload is to begin in another
    if not is_there(name):
        path_of(name).unlink(missing_ok=True)
        if theirs is not None:
            run("ip", "netns", "attach", name, str(pid))
        else:
            run("ip", "netns", "add", name)
    inside(name, _close)
    run("ip", "-n", name, "link", "set", "lo", "up")


def _node(path: str | Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _network_of(pid: int) -> tuple[int, int] | None:
    """Which network the living process *pid* is in; None for this one's own, and for no process."""
    try:
        theirs = _node(f"/proc/{pid}/ns/net") if pid else None
    except OSError:
        return None
    return None if theirs == _node("/proc/self/ns/net") else theirs


def _close() -> None:
    for what, value in _QUIET:
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            Path("/proc/sys", what).write_text(value)


def remove(name: str) -> None:
    """The name goes, and the namespace with its last process; may be repeated."""
    if is_there(name):
        run("ip", "netns", "del", name)
    path_of(name).unlink(missing_ok=True)


def inside(name: str, action: Callable[[], T]) -> T:
    """*action*, by a thread of its own that is in the namespace and ends there: no thread that does
    anything else is ever in one. What it opens stays the namespace's.
    """
    made: list[T] = []
    failed: list[Exception] = []

    def enter() -> None:
        try:
            with path_of(name).open() as file:
                if _libc.setns(file.fileno(), _NEWNET) != 0:
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error), str(path_of(name)))
            made.append(action())
        except Exception as error:  # noqa: BLE001  raised again below, by the caller's thread
            failed.append(error)

    thread = threading.Thread(target=enter, name=f"in {name}", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise MeshFault(f"{name}: {failed[0]}") from failed[0]
    return made[0]


_libc = ctypes.CDLL(None, use_errno=True)
