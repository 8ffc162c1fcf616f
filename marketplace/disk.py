"""Files of ours on a disk that may be full or failing: whole rows or none, and a fault of their
own.

* :class:`Rows`: a file that grows by whole rows. A write that fails is cut back, and nothing more
  is written by this process: what was not stored must not be acted on, and after a failed ``fsync``
  nobody knows what was (the kernel forgets that pages were dirty).
* :func:`write_whole`: a small file that is replaced in one step.
* :func:`good_rows`, :func:`set_aside`: reading what a crash or a bad disk left. A damaged *tail*
  was never acted on, or can be learned again: it is kept beside the file, and the rest is used.
  Damage before a readable row is :class:`JournalDamaged`.

An ``OSError`` of these files leaves here as :class:`DiskFault`, which is no ``OSError``: nobody who
waits for a lost connection can take it for one. The operating system's calls come in as
:class:`Files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from marketplace.domain.errors import Halt, Malformed

T = TypeVar("T")


class DiskFault(Halt):
    """The disk under one of our own files does not take or keep what is written."""

    code = "DISK_FAULT"
    remedy = (
        "look at the disk (dmesg, smartctl), move the folder to a good one, and start again: what"
        " was not written was not acted on"
    )


class DiskFull(DiskFault):
    """There is no room where something is written."""

    code = "DISK_FULL"
    remedy = "free some space there, and do it again: nothing half written counts"


class JournalDamaged(Malformed):
    """A row in the middle of a book or log cannot be read."""

    code = "JOURNAL_DAMAGED"
    remedy = "restore the file from a copy; meanwhile nothing is signed by it"


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def fault(error: OSError, doing: str, path: Path | str) -> DiskFault:
    """The fault for *error*: what was being done, where, and why it failed."""
    text = f"{doing}: {path}: {error.strerror or error}"
    return DiskFull(text) if error.errno in _FULL else DiskFault(text)


class Files(Protocol):
    """The operating system's calls that our files are written with: :mod:`os`, or a failing one."""

    def open(self, path: Any, flags: int, mode: int = 0o777, /) -> int:
        """A file descriptor."""
        ...

    def write(self, fd: int, data: Any, /) -> int:
        """So many bytes were taken; fewer than all when there is no room for more."""
        ...

    def fsync(self, fd: int, /) -> None:
        """Durable when it returns."""
        ...

    def ftruncate(self, fd: int, length: int, /) -> None:
        """Cut to *length* bytes."""
        ...

    def close(self, fd: int, /) -> None:
        """Give the descriptor back."""
        ...

    def replace(self, source: Any, target: Any, /) -> None:
        """Rename over."""
        ...


OS: Final[Files] = os


class Rows:
    """An append-only file, opened for one writer at a time (its lock is the caller's)."""

    def __init__(self, path: Path, files: Files = OS, *, durable: bool = True) -> None:
        self._path = path
        self._files = files
        self._durable = durable  # else the system writes it out when it likes
        self._broken: DiskFault | None = None
        try:
            fresh = not path.exists()
            self._fd = files.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            if fresh and durable:
                sync_folder(path.parent, files)
        except OSError as error:
            raise fault(error, "a file of ours cannot be opened", path) from error

    def add(self, data: bytes) -> None:
        """Append *data*, whole rows, and reach the disk. On :class:`DiskFault` none of it counts,
        and every later call raises the same.
        """
        if self._broken is not None:
            raise self._broken
        end = os.fstat(self._fd).st_size
        try:
            _write_all(self._fd, data, self._files)
            if self._durable:
                self._files.fsync(self._fd)
        except OSError as error:
            self._broken = fault(error, "a row could not be stored", self._path)
            self._cut_back(end)
            raise self._broken from error

    def _cut_back(self, end: int) -> None:
        """To the last good row; if the disk refuses that too, the next start sets the rest
        aside.
        """
        with contextlib.suppress(OSError):
            self._files.ftruncate(self._fd, end)
            self._files.fsync(self._fd)

    def close(self) -> None:
        """Give the file back."""
        with contextlib.suppress(OSError):  # everything that counts was fsynced
            self._files.close(self._fd)


def _write_all(fd: int, data: bytes, files: Files) -> None:
    view = memoryview(data)
    while view:
        taken = files.write(fd, view)
        if taken <= 0:
            raise OSError(errno.EIO, "nothing was written")
        view = view[taken:]


def sync_folder(folder: Path, files: Files = OS) -> None:
    """A new name in *folder* survives a crash from here on."""
    fd = files.open(folder, os.O_RDONLY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def new_file(path: Path, data: bytes, files: Files = OS, *, durable: bool = True) -> None:
    """*path* with *data*, 0600 and fsynced; it is not there after a :class:`DiskFault`.

    Only for names that nobody else uses (a temporary one): what lies there is overwritten.
    """
    try:
        fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, data, files)
            if durable:
                files.fsync(fd)
        finally:
            files.close(fd)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise fault(error, "a file of ours cannot be written", path) from error


def write_whole(path: Path, data: bytes, files: Files = OS, *, durable: bool = True) -> None:
    """Replace *path* in one step: it holds *data* or, after a crash or fault, what it held before.

    Not *durable*: a fault leaves what was before for certain; a power cut may leave either.
    """
    fresh = path.with_name(f"{path.name}.new")
    new_file(fresh, data, files, durable=durable)
    try:
        files.replace(fresh, path)
        if durable:
            sync_folder(path.parent, files)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise fault(error, "a file of ours cannot be replaced", path) from error


def good_rows(data: bytes, reads: Callable[[bytes], T], name: str) -> tuple[list[T], int]:
    """What *reads* makes of the whole lines of *data* (it raises ``ValueError`` for a damaged one),
    and where they end: what follows is a damaged tail. :class:`JournalDamaged` if a readable line
    lies behind one that is not.
    """
    rows: list[T] = []
    end = at = 0
    damaged: tuple[int, ValueError] | None = None
    for number, line in enumerate(data.split(b"\n"), start=1):
        whole = at + len(line) < len(data)
        if not (line or whole):
            break  # the file ends with a whole row
        at += len(line) + 1
        try:
            if not whole:
                raise ValueError("cut short")
            row = reads(line)
        except ValueError as error:
            damaged = damaged or (number, error)
            continue
        if damaged is not None:
            raise JournalDamaged(f"{name}, line {damaged[0]}: {damaged[1]}")
        rows.append(row)
        end = at
    return rows, end


def set_aside(path: Path, end: int, files: Files = OS) -> Path:
    """Keep what lies behind *end* in a file beside *path*, then cut it off; that file."""
    tail = path.read_bytes()[end:]
    side = _free_name(path)
    new_file(side, tail, files)
    try:
        fd = files.open(path, os.O_RDWR)
        try:
            files.ftruncate(fd, end)
            files.fsync(fd)
        finally:
            files.close(fd)
        sync_folder(path.parent, files)
    except OSError as error:
        raise fault(error, "a damaged end cannot be cut off", path) from error
    return side


def _free_name(path: Path) -> Path:
    names: Iterable[Path] = (path.with_name(f"{path.name}.damaged-{n}") for n in range(1, 10_000))
    return next(name for name in names if not name.exists())


def private_folder(path: Path) -> Path:
    """*path*, made if it is missing, readable by its owner only."""
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o700)
    return path
