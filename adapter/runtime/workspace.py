"""A lease's directory on the host: files in, disk limit, outputs back.

The workload owns what lies in it and may be hostile: nothing here follows a link, every path is
opened one component at a time from a directory handle, and every walk is bounded.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import shutil
import stat
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from adapter.core.workload import Outputs, RuntimeFault
from marketplace.domain.work.workload import workspace_path

MOST_FILES: Final = 200_000
"""More directory entries than this count as over the disk limit: inodes are disk, too."""
REST_MOST_S: Final = 2.0
"""The longest rest between two looks at a workspace: what passes its limit is stopped within 5 s.
"""
NAMED: Final = {"USER": "tally", "LOGNAME": "tally"}
"""What a workload's user is called: it has no line in ``/etc/passwd``, and programs that ask who
they are (torch does, when it compiles) end without one.
"""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workspace holds; *capped* when the walk was cut short by :data:`MOST_FILES`."""

    disk_mib: int
    entries: int
    capped: bool = False


class DiskWatch:
    """Looks at workspaces as often as it is asked, but spends at most a fifth of the time on one of
    them: a workload that makes looking slow pays with a later look, never with its neighbours'
    meters.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, tuple[float, Usage]] = {}

    def usage(self, lease: str) -> Usage:
        """What the lease's workspace holds, at most :data:`REST_MOST_S` ago."""
        begun = time.monotonic()
        due, seen = self._seen.get(lease, (begun, Usage(0, 0)))
        if begun < due:
            return seen
        used = Workspace(self._root, lease).usage()
        ended = time.monotonic()
        self._seen[lease] = (ended + min(REST_MOST_S, 4 * (ended - begun)), used)
        return used

    def forget(self, lease: str) -> None:
        """It is gone."""
        self._seen.pop(lease, None)


class Workspace:
    """One lease's directory below *root*."""

    def __init__(self, root: Path, lease: str) -> None:
        self.path = root / "workspaces" / lease
        self._outputs = root / "outputs"

    def create(self, files: Mapping[str, bytes], uid: int, gid: int) -> None:
        """Make the directory with *files* in it, all owned by the workload's user."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
        os.chmod(self.path, 0o700)
        top = os.open(self.path, _FOLDER)
        try:
            for name, data in files.items():
                _put(top, workspace_path(name).split("/"), data, uid, gid)
            _own(top, uid, gid)
        finally:
            os.close(top)

    def usage(self) -> Usage:
        """Blocks on disk, summed without following links."""
        blocks = entries = 0
        pending = [self.path]
        while pending:
            try:
                with os.scandir(pending.pop()) as listing:
                    for entry in listing:
                        entries += 1
                        if entries > MOST_FILES:
                            return Usage(blocks >> 11, entries, capped=True)
                        blocks += entry.stat(follow_symlinks=False).st_blocks
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(Path(entry.path))
            except OSError:
                continue  # the workload removed it meanwhile
        return Usage(blocks >> 11, entries)

    def collect(self, wanted: tuple[str, ...], limit_mib: int) -> Outputs:
        """Everything under the workspace that fits a pattern of *wanted*, as one plain tar.

        Links, sockets, devices and pipes are skipped by name; so is a file that would pass the
        limit.  The archive is deterministic (sorted, no times, no owners), so equal outputs have
        equal digests.
        """
        patterns = [workspace_path(one) for one in wanted]
        skipped: list[str] = []
        self._outputs.mkdir(parents=True, exist_ok=True)
        draft = self._outputs / f".{self.path.name}.part"
        room, count = limit_mib << 20, 0
        with draft.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                for name, folder, leaf in self._walk(skipped):
                    if not _fits(name, patterns):
                        continue
                    size = _add(archive, name, folder, leaf, room, skipped)
                    if size is not None:
                        room -= size
                        count += 1
        digest = _sha256(draft)
        final = self._outputs / f"{digest}.tar"
        draft.replace(final)
        size = final.stat().st_size
        return Outputs(final, f"sha256:{digest}", size, count, tuple(skipped[:100]))

    def _walk(self, skipped: list[str]) -> Iterator[tuple[str, int, str]]:
        """(relative name, handle of its folder, last component) of each file, in order."""
        try:
            top = os.open(self.path, _FOLDER)
        except OSError as error:
            raise RuntimeFault(f"no workspace: {error}") from error
        yield from self._walk_folder(top, "", skipped, [0])

    def _walk_folder(
        self, folder: int, prefix: str, skipped: list[str], seen: list[int]
    ) -> Iterator[tuple[str, int, str]]:
        try:
            for leaf in sorted(os.listdir(folder)):
                name = f"{prefix}{leaf}"
                seen[0] += 1
                if seen[0] > MOST_FILES:
                    skipped.append(f"{name}: and the rest, too many files")
                    return
                mode = os.stat(leaf, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode) and prefix.count("/") < 64:
                    inner = os.open(leaf, _FOLDER, dir_fd=folder)
                    yield from self._walk_folder(inner, f"{name}/", skipped, seen)
                elif stat.S_ISREG(mode):
                    yield name, folder, leaf
                else:
                    kind = "a link" if stat.S_ISLNK(mode) else "not a regular file"
                    skipped.append(f"{name}: {kind}")
        finally:
            os.close(folder)

    def remove(self) -> None:
        """Delete everything; links are removed, never followed."""
        shutil.rmtree(self.path, ignore_errors=True)


def _put(folder: int, path: list[str], data: bytes, uid: int, gid: int) -> None:
    """*data* at *path* below the handle *folder*."""
    first, *rest = path
    if not rest:
        _write(folder, first, data, uid, gid)
        return
    inner = _entered(folder, first)
    try:
        _put(inner, rest, data, uid, gid)
        _own(inner, uid, gid)
    finally:
        os.close(inner)


def _entered(folder: int, name: str) -> int:
    """A handle of the folder *name*, made if it is not there, or a link or file lies in its place.
    OSError where its tenant is quicker."""
    with contextlib.suppress(OSError):
        return os.open(name, _FOLDER, dir_fd=folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    os.mkdir(name, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _write(folder: int, name: str, data: bytes, uid: int, gid: int) -> None:
    """Anew, through no link: what lies there may be the workload's own, of a start that was cut
    off.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o755 if data.startswith(b"#!") else 0o644)
        _own(file.fileno(), uid, gid)


def _own(handle: int, uid: int, gid: int) -> None:
    """The workload's from here on, if it was made here: what its tenant moved there has its
    owner.
    """
    if os.geteuid() == 0 and os.fstat(handle).st_uid == 0:
        os.fchown(handle, uid, gid)


def _fits(name: str, patterns: list[str]) -> bool:
    return any(
        name == pattern or name.startswith(pattern + "/") or fnmatch.fnmatchcase(name, pattern)
        for pattern in patterns
    )


def _add(
    archive: tarfile.TarFile, name: str, folder: int, leaf: str, room: int, skipped: list[str]
) -> int | None:
    """Add one file; its size, or None when it was skipped."""
    handle = os.open(leaf, _FILE, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            skipped.append(f"{name}: not a regular file")
            return None
        if found.st_size > room:
            skipped.append(f"{name}: over the limit of the outputs")
            return None
        entry = tarfile.TarInfo(name)
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & 0o111 else 0o644
        archive.addfile(entry, cast("BinaryIO", file))
        return found.st_size


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def owner_ids(user: str) -> tuple[int, int]:
    """uid and gid of ``10001`` or ``10001:20``."""
    uid, _, gid = user.partition(":")
    return int(uid), int(gid or uid)
