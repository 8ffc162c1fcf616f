"""The WireGuard device of one member: wireguard-go, in userspace, on every host.

It starts in the host's network under the namespace's name, so that its UDP socket stays outside;
then the interface moves into the member's namespace and is called ``tally0`` there, while the
socket by which it is told things keeps the first name. It has the right to make that interface, and
no other; it ends by itself when the namespace does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from adapter.mesh import netns, uapi
from adapter.mesh.netns import MeshFault, run
from marketplace.domain.work.mesh_net import INTERFACE, MTU, PREFIX

SOCKETS: Final = Path("/var/run/wireguard")
PROGRAM: Final = "wireguard-go"
TUN: Final = Path("/dev/net/tun")
_BEGINS_S: Final = 5.0
_ENDS_S: Final = 5.0
_RIGHTS: Final = ("setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", "--no-new-privs")
_STARTED: list[subprocess.Popen[bytes]] = []


def missing() -> str:
    """What this host lacks for a mesh; empty for nothing."""
    if os.geteuid() != 0:
        return "root (CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN)"
    for program in (PROGRAM, "ip", "setpriv", "nsenter"):
        if shutil.which(program) is None:
            return f"the program {program}"
    try:
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return f"{TUN}: {error.strerror}"
    return ""


def socket_of(name: str) -> Path:
    """Where the device *name* is told things."""
    return SOCKETS / f"{name}.sock"


def stands(name: str) -> bool:
    """Whether the device runs and its interface is in its namespace."""
    try:
        uapi.get(socket_of(name))
        return bool(run("ip", "-n", name, "-o", "link", "show", INTERFACE))
    except MeshFault:
        return False


def start(name: str, address: str) -> None:
    """A fresh device in the namespace *name*, as *address* there; what is left of another goes."""
    stop(name)
    _STARTED.append(
        subprocess.Popen(
            [*_RIGHTS, PROGRAM, "-f", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LOG_LEVEL": "error"},
        )
    )
    deadline = time.monotonic() + _BEGINS_S
    while _pid(name) is None:
        if _STARTED[-1].poll() is not None or time.monotonic() > deadline:
            raise MeshFault(f"{PROGRAM} {name} does not start")
        time.sleep(0.01)
    run("ip", "link", "set", name, "netns", name, "name", INTERFACE)
    run("ip", "-n", name, "address", "replace", f"{address}/{PREFIX}", "dev", INTERFACE)
    run("ip", "-n", name, "link", "set", INTERFACE, "mtu", str(MTU), "up")


def stop(name: str) -> None:
    """The device goes, wherever it is; may be repeated."""
    pid = _pid(name)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _ENDS_S
        while pid is not None and _lives(pid) and time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            time.sleep(0.01)
    if pid is not None and _lives(pid):
        raise MeshFault(f"{PROGRAM} {name} (process {pid}) does not end")
    socket_of(name).unlink(missing_ok=True)  # a kill leaves it
    reap()


def _lives(pid: int) -> bool:
    reap()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def reap() -> None:
    """Collect those that ended, so that none stays a zombie of this process."""
    _STARTED[:] = [one for one in _STARTED if one.poll() is None]


def _pid(name: str) -> int | None:
    """The process that listens at the device's socket: it is asked of the kernel, for a number in a
    file may be another's by now.
    """
    try:
        with closing(socket.socket(socket.AF_UNIX)) as door:
            door.settimeout(1.0)
            door.connect(str(socket_of(name)))
            told = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    pid: int = struct.unpack("3i", told)[0]
    try:
        known = Path(f"/proc/{pid}/comm").read_text().strip() == PROGRAM
    except OSError:
        return None
    return pid if known else None


def configure(name: str, private: bytes, port: int) -> None:
    """Its key, and the UDP port that it listens at; :class:`uapi.DeviceRefused` (98) where that is
    another program's.
    """
    held = uapi.get(socket_of(name))
    lines = "" if held.key == private else f"private_key={private.hex()}\n"
    lines += "" if held.port == port else f"listen_port={port}\n"
    uapi.put(socket_of(name), lines)


def is_whole(name: str) -> bool:
    """Whether namespace and device are both there."""
    return netns.is_there(name) and stands(name)
