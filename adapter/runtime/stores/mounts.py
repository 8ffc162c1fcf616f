"""The stores of one adapter's leases, mounted: made before a workload, found again after a crash,
and taken away.

What a lease has here is its folder: it is made before anything is mounted in it, and goes last. No
call looks at what is mounted, which could wait for a server that is away: the kernel's table of
mounts says all. Nothing below a mount is ever removed here: it is the consumer's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from adapter.core.workload import RuntimeFault
from adapter.host.processes import start_time
from adapter.runtime.calls import note_reason
from adapter.runtime.stores import guard
from adapter.runtime.stores.guard import Allowed, Guard
from marketplace import disk
from marketplace.domain.work.workload import ExitReason
from marketplace.rclone import PROGRAM, Source, StoreRefused, bare, is_here

ROOT: Final = Path("/run/tally/stores")
FILES: Final = "files"
MOUNTED_S: Final = 15.0
LOOK_S: Final = 25.0
ENDS_S: Final = 5.0
_RIGHTS: Final = (
    "--clear-groups", "--bounding-set=-all,+sys_admin", "--inh-caps=-all", "--no-new-privs",
)  # fmt: skip
_PATIENCE: Final = ("--contimeout=8s", "--timeout=180s", "--low-level-retries=3", "--retries=1")
_MODE: Final = (
    "--vfs-cache-mode=off", "--dir-cache-time=1s", "--attr-timeout=1s", "--poll-interval=0",
    "--no-modtime", "--allow-other", "--umask=0077", "--log-level=ERROR",
)  # fmt: skip
"""No cache: a file is at the store when its writer's close returns, and a member sees within a
second what another wrote.
"""
_STARTED: list[subprocess.Popen[bytes]] = []


class StoreFault(RuntimeFault):
    """A store could not be mounted, or taken away."""

    code = "STORE_FAULT"
    remedy = "see that the store's server answers, and run `tally adapter doctor` on the host"


def missing() -> str:
    """What this host lacks for stores; empty for nothing."""
    if os.geteuid() != 0:
        return "root (CAP_SYS_ADMIN)"
    if not is_here():
        return f"the program {PROGRAM}"
    for program in ("fusermount3", "setpriv", "umount", "iptables"):
        if shutil.which(program) is None:
            return f"the program {program}"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return guard.missing()


def place_of(state: Path) -> Path:
    """Where the stores of an adapter's leases are mounted: not below its *state*, for who removes
    that, whole, would remove what lies at the stores.
    """
    return ROOT / hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]


def folder_of(state: Path, lease: str) -> Path:
    """Where a lease's store is mounted, of the adapter with that *state*."""
    return place_of(state) / lease / FILES


class StoreMounts:
    """Of the adapter with that *state*; *networks*: what the owner opens to mounts beside the
    internet; *market*: the host of his market, whose own store may be there.
    """

    def __init__(self, state: Path, networks: Sequence[str] = (), market: str = "") -> None:
        self._state = state
        self._networks: tuple[Allowed, ...] = tuple((one, 0) for one in networks)
        self._market = market
        self._guard = Guard(state)
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def _locked(self, lease: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(lease, threading.Lock())

    def held(self) -> list[str]:
        """The leases that have anything here, also from an earlier run."""
        return sorted(path.name for path in place_of(self._state).glob("*"))

    def stands(self, lease: str) -> bool:
        """Whether it is mounted, and by a program that lives."""
        at = folder_of(self._state, lease)
        return str(at) in _mounted() and _pid(at.parent) is not None

    def up(self, lease: str, source: Source, owner: tuple[int, int]) -> None:
        """Mounted, for the user *owner* alone; StoreRefused where the consumer's own store does not
        let us in, StoreFault.
        """
        with self._locked(lease):
            if self.stands(lease):
                return
            self._down(lease)
            allowed = self._allowed(source)
            guard.want_reachable(source.at, allowed)
            group = self._guard.ensure_stores(allowed)
            at = folder_of(self._state, lease)
            at.mkdir(parents=True, mode=0o700)
            at.parent.chmod(0o700)
            _note(at.parent, 0, group)
            try:
                _look(source, group)
                _mount(source, at, owner, group)
            except BaseException:
                self._down(lease)
                raise

    def _allowed(self, source: Source) -> tuple[Allowed, ...]:
        """The market's own store may be where the market is, whose address is the owner's word."""
        if source.own:
            return self._networks
        host, port = source.at
        own = guard.addresses_of(host) & guard.addresses_of(self._market)
        return (*self._networks, *((f"{one}/32", port) for one in sorted(own)))

    def down(self, lease: str) -> None:
        """Nothing is left of it here; at the store everything stays."""
        with self._locked(lease):
            self._down(lease)
        with self._lock:
            self._locks.pop(lease, None)

    def _down(self, lease: str) -> None:
        at = folder_of(self._state, lease)
        if str(at) in _mounted():
            run = subprocess.run(
                ["umount", "-l", str(at)], capture_output=True, timeout=ENDS_S, check=False
            )
            if run.returncode and str(at) in _mounted():
                raise StoreFault(f"{lease}: {run.stderr.decode(errors='replace').strip()[:200]}")
        _end(at.parent)
        group = _group(at.parent)
        with contextlib.suppress(FileNotFoundError):
            at.rmdir()  # refused by the kernel for a mount, and for a folder with anything in it
        if at.parent.is_dir():
            (at.parent / "about.json").unlink(missing_ok=True)
            at.parent.rmdir()
        others = {_group(folder_of(self._state, one).parent) for one in self.held()}
        if group is not None and group not in others:
            self._guard.forget_group(group)

    def note_loss(self, lease: str) -> None:
        """The lease's workload ends for want of its store: a fault of this host's."""
        process = self._state / "processes" / lease
        place = process / "reason" if process.is_dir() else self._state / "reasons" / lease
        note_reason(place, ExitReason.PROVIDER_FAULT)


def remove_all(state: Path) -> None:
    """Every mount of an adapter that does not run."""
    mounts = StoreMounts(state)
    for lease in mounts.held():
        mounts.down(lease)
    with contextlib.suppress(FileNotFoundError):
        place_of(state).rmdir()


def _look(source: Source, group: int) -> None:
    """The store lets us in, before anything is mounted: its own word if not. What rclone says of it
    holds no credential: those are in no address.
    """
    line = [*_rights(group), PROGRAM, "lsf", "--max-depth=1", *_PATIENCE, source.remote]
    environment = {**bare(), **source.environment}
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_S, check=False,
            env=environment, cwd="/",
        )  # fmt: skip
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = "" if done.returncode == 0 else said[-1][-200:] if said else "no word"
    except subprocess.TimeoutExpired:
        why = f"no answer within {LOOK_S:g} s"
    if not why or "directory not found" in why:  # an empty place: it is made by the first file
        return
    why = _without(why, source.environment)
    where = f"the store at {source.at[0]}:{source.at[1]}"
    if source.own:
        raise StoreRefused(f"{where} does not let this provider in: {why}")
    raise StoreFault(f"{where}: {why}")


def _without(text: str, environment: Mapping[str, str]) -> str:
    """*text* without any value that opens the store, should a server have said one back."""
    for value in sorted(environment.values(), key=len, reverse=True):
        if len(value) >= 8:
            text = text.replace(value, "…")
    return text


def _rights(group: int) -> tuple[str, ...]:
    return ("setpriv", f"--regid={group}", *_RIGHTS)


def _mount(source: Source, at: Path, owner: tuple[int, int], group: int) -> None:
    whose = (f"--uid={owner[0]}", f"--gid={owner[1]}")
    line = [*_rights(group), PROGRAM, "mount", *_MODE, *_PATIENCE, *whose, source.remote, str(at)]
    made = subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/", env={**bare(), **source.environment},
    )  # fmt: skip
    _STARTED.append(made)
    _note(at.parent, made.pid, group)
    deadline = time.monotonic() + MOUNTED_S
    while str(at) not in _mounted():
        if made.poll() is not None or time.monotonic() > deadline:
            raise StoreFault(f"rclone mounts nothing at {at}")
        time.sleep(0.02)


def _mounted() -> set[str]:
    """Where anything is mounted, by the kernel's own table."""
    rows = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {_plain(row[4]) for row in rows if len(row) > 4}


def _plain(text: str) -> str:
    """The kernel writes spaces and the like as octal numbers."""
    return text.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _note(folder: Path, pid: int, group: int) -> None:
    """Of a lease's mount: its rclone, 0 before there is one, by number and start, and its group."""
    about = {"pid": pid, "began": start_time(pid) or 0, "group": group}
    disk.write_whole(folder / "about.json", json.dumps(about).encode())


def _about(folder: Path) -> dict[str, int]:
    """What was written of a lease's mount, in its *folder*; nothing where that was cut short."""
    try:
        found = cast("dict[str, Any]", json.loads((folder / "about.json").read_text()))
        return {name: int(found[name]) for name in ("pid", "began", "group")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _pid(folder: Path) -> int | None:
    """Its rclone; None where it does not run, whoever has its number now."""
    about = _about(folder)
    _reap()
    return about["pid"] if about and start_time(about["pid"]) == about["began"] else None


def _group(folder: Path) -> int | None:
    return _about(folder).get("group")


def _end(folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + ENDS_S
        while (pid := _pid(folder)) is not None and time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            time.sleep(0.02)
    if (pid := _pid(folder)) is not None:
        raise StoreFault(f"rclone (process {pid}) does not end")


def _reap() -> None:
    """Collect those that ended, so that none stays a zombie of this process."""
    _STARTED[:] = [one for one in _STARTED if one.poll() is None]
