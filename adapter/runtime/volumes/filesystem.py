"""A file system in a file: as large as was rented, all of it set aside at once, so that neither its
tenant can fill the host's disk nor the host take back what it sold.

ext4 on a loop device, mounted below the adapter's folder; its content lies in an encrypted folder
of it (:mod:`.fscrypt`). Needs root, and the commands ``mkfs.ext4`` and ``mount``. Everything here
blocks, and may be done again after a crash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapter.core.workload import RuntimeFault
from adapter.runtime.volumes import fscrypt

_MAKE: Final = (
    "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "encrypt", "-E", "nodiscard,lazy_itable_init=1",
)  # fmt: skip
_OPTIONS: Final = "loop,nosuid,nodev,errors=remount-ro"
HOST: Final = 1
"""The process whose mounts are the host's."""
COMMAND_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The one below *folder*: its image, where it is mounted, and where its content lies."""

    folder: Path

    @property
    def image(self) -> Path:
        """The file that holds it."""
        return self.folder / "image"

    @property
    def mounted(self) -> Path:
        """Where the host has it."""
        return self.folder / "mounted"

    @property
    def files(self) -> Path:
        """What a workload sees of it. There only while it is mounted: nobody can write below an
        empty mount point by mistake.
        """
        return self.mounted / "files"

    @property
    def incoming(self) -> Path:
        """What is on its way in; it takes the place of :attr:`files` when all of it is there."""
        return self.mounted / "incoming"

    @property
    def moving(self) -> Path:
        """There while its content goes out or comes in: nobody mounts it then."""
        return self.folder / "moving"

    @property
    def size_mib(self) -> int:
        """As it was rented."""
        return self.image.stat().st_size >> 20

    def make(self, size_mib: int) -> None:
        """Set *size_mib* aside, an empty file system in it; OSError (ENOSPC), RuntimeFault."""
        with self.image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_mib << 20)
        os.chmod(self.image, 0o600)
        _run(*_MAKE, str(self.image))

    def mount(self, key: bytes) -> None:
        """Mount it, unless it is, and let the kernel read it with *key*."""
        self.mounted.mkdir(mode=0o700, exist_ok=True)
        if self.device() is None:
            _run(*_on_the_host(), "mount", "-o", _OPTIONS, str(self.image), str(self.mounted))
        identifier = fscrypt.add_key(self.mounted, key)
        if not self.files.exists():
            self.files.mkdir(mode=0o755)
            fscrypt.encrypt(self.files, identifier)

    def unmount(self) -> None:
        """Let go of it; RuntimeFault while something of the host uses it."""
        if self.device() is not None:
            _run(*_on_the_host(), "umount", str(self.mounted))

    def device(self) -> str | None:
        """The name of the loop device that it is mounted from (``loop3``); None where it is not
        (proc_pid_mountinfo(5)).
        """
        place, found = str(self.mounted), None
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            if _plain(left.split()[4]) == place:
                found = right.split()[1].rpartition("/")[2]
        return found

    def written_kib(self) -> int | None:
        """What was ever written to it: the file system counts that itself, over mounts and
        reboots (Documentation/ABI/testing/sysfs-fs-ext4); None where nobody can say.
        """
        device = self.device()
        try:
            return int(Path(f"/sys/fs/ext4/{device}/lifetime_write_kbytes").read_text())
        except (OSError, ValueError):
            return None

    def used_mib(self) -> int:
        """Of its blocks."""
        found = os.statvfs(self.mounted)
        return (found.f_blocks - found.f_bfree) * found.f_frsize >> 20

    @property
    def full(self) -> bool:
        """Whether nothing more goes in."""
        return os.statvfs(self.mounted).f_bavail == 0

    def destroy(self) -> None:
        """All of it."""
        self.unmount()
        self.image.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _plain(path: str) -> str:
    """Spaces and the like are octal there."""
    return path.encode().decode("unicode_escape").encode("latin-1").decode()


def _on_the_host() -> tuple[str, ...]:
    """What begins a command that mounts. A service may have mounts of its own (systemd's
    ``ProtectHome`` makes them, and the unit of ours has that): Docker never sees what is mounted
    there, while what the host mounts comes to the service by itself.
    """
    try:
        own, hosts = (os.readlink(f"/proc/{pid}/ns/mnt") for pid in ("self", HOST))
    except OSError:
        return ()  # what may not be looked at cannot be entered
    return () if own == hosts else ("nsenter", "--target", str(HOST), "--mount")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeFault(f"{command[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeFault(f"{command[0]}: {said[-300:]}")
