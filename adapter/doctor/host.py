"""Checks of the host itself: clock, disk, memory, limits, keys, and the way to the market."""

from __future__ import annotations

import os
import re
import resource
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from adapter.doctor.findings import Finding, found
from adapter.doctor.world import ProbeFailed, World
from marketplace.chain.encoding import address as addresses
from marketplace.domain.errors import Malformed

LEAST_DISK_MIB: Final = 5 * 1024
LEAST_MEMORY_KIB: Final = 1 << 20
MOST_SKEW_S: Final = 5.0
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def check_kernel(world: World) -> Iterator[Finding]:
    """Rights, kernel and limits."""
    if world.uid() != 0:
        yield found("NOT_ROOT", f"runs as uid {world.uid()}")
    release = re.match(r"(\d+)\.(\d+)", world.text("/proc/sys/kernel/osrelease"))
    if release is not None and (int(release[1]), int(release[2])) < (5, 4):
        yield found("KERNEL_OLD", f"kernel {release[0]}")
    limits = re.search(r"Max open files\s+(\d+)", world.text("/proc/self/limits"))
    files = int(limits[1]) if limits else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files < 4096:
        yield found("NOFILE_LOW", f"at most {files} open files")
    memory = re.search(r"MemAvailable:\s+(\d+)", world.text("/proc/meminfo"))
    if memory is not None and int(memory[1]) < LEAST_MEMORY_KIB:
        yield found("MEMORY_LOW", f"{int(memory[1]) >> 10} MiB are available")
    if not world.text("/proc/sys/kernel/random/boot_id").strip():
        yield found("BOOT_ID_MISSING", "/proc/sys/kernel/random/boot_id cannot be read")


def check_clock(world: World) -> Iterator[Finding]:
    """The wall clock is kept by somebody."""
    code, said = world.command(("timedatectl", "show", "-p", "NTPSynchronized", "--value"))
    if code == 0 and said.strip() == "no":
        yield found("CLOCK_UNSYNCHRONISED", "timedatectl says that NTP is not synchronised")


def check_state(world: World) -> Iterator[Finding]:
    """The adapter's folder: room, rights, and a disk of its own."""
    state = world.config.state
    free, inodes, total = world.disk(state)
    if free < LEAST_DISK_MIB:
        yield found("DISK_LOW", f"{free} MiB are free under {state}")
    if total and inodes * 20 < total:
        yield found("INODES_LOW", f"{inodes} of {total} inodes are free under {state}")
    existing = state
    while not existing.exists():
        existing = existing.parent
    writable = os.access(existing, os.W_OK) and existing.is_dir()
    if not writable:
        yield found("STATE_UNWRITABLE", f"{existing} cannot be written to")
    elif existing == state and stat.S_IMODE(state.stat().st_mode) & 0o077:
        yield found("STATE_EXPOSED", f"{state} has mode {stat.S_IMODE(state.stat().st_mode):o}")
    kind = _file_system(world, state)
    if kind in _REMOTE:
        yield found("STATE_ON_NETWORK", f"{state} lies on {kind}")


def _file_system(world: World, path: Path) -> str:
    """The type of the mount that holds *path*: the longest mount point that is a parent."""
    best, kind = "", ""
    for line in world.text("/proc/mounts").splitlines():
        row = line.split()
        if len(row) < 3:
            continue
        point = row[1].rstrip("/")
        inside = str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, row[2]
    return kind


def check_keys(world: World) -> Iterator[Finding]:
    """The metering key is private; the payout's key is elsewhere."""
    key = world.config.key
    if key is not None:
        if not key.exists():
            yield found("KEY_MISSING", f"{key} does not exist yet")
        elif stat.S_IMODE(key.stat().st_mode) & 0o077:
            yield found("KEY_EXPOSED", f"{key} has mode {stat.S_IMODE(key.stat().st_mode):o}")
    if not world.config.payout:
        yield found("PAYOUT_MISSING", "no payout address is configured")
    elif world.config.payout != "devnet":
        try:
            addresses.from_text(world.config.payout)
        except Malformed as error:
            yield found("PAYOUT_UNREADABLE", f"payout: {error.message}")
    for folder in (world.config.state, world.path("/etc/tally")):
        for path in sorted(folder.glob("*.skey")) if folder.is_dir() else ():
            if re.search(r"pay(ment|out)", path.name):
                yield found("PAYOUT_KEY_PRESENT", f"{path.name} lies in {folder}")


def check_market(world: World) -> Iterator[Finding]:
    """The market can be reached, safely, and agrees on the time."""
    market = world.config.market
    if not market:
        yield found("MARKET_UNSET", "no market is configured")
        return
    parts = urlsplit(market)
    name = parts.hostname or ""
    if parts.scheme in ("http", "ws") and name not in _LOOPBACK:
        yield found("MARKET_INSECURE", f"{market} is not encrypted")
    if not world.resolves(name):
        yield found("MARKET_UNRESOLVED", f"{name or market} has no address")
        return
    try:
        theirs = world.market_time(market)
    except ProbeFailed as fault:
        yield found("MARKET_UNREACHABLE", f"{market}: {fault.message}")
        return
    skew = time.time() - theirs
    if abs(skew) > MOST_SKEW_S:
        yield found("CLOCK_OFF", f"this host is {skew:+.0f} s off the market's clock")
