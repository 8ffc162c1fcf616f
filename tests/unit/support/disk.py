"""A disk that fails at its n-th write: the operating system's calls, as a port."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = ("full", "failing", "short", "dying")


@dataclass
class BadDisk:
    """Counts what changes the disk, and fails at the *at*-th such call (0: never).

    *kind*: ``full`` and ``failing`` refuse that one call (ENOSPC, EIO); ``short`` takes half of the
    bytes, then is full; ``dying`` refuses that call and every later one, so nothing is cut back
    either.
    """

    at: int = 0
    kind: str = "full"
    calls: int = 0
    _short: bool = False

    def _hit(self, *, writing: bool = False) -> bool:
        self.calls += 1
        if self._short:
            self._short = False
            raise OSError(errno.ENOSPC, "No space left on device")
        over = self.calls > self.at > 0 and self.kind == "dying"
        if self.calls != self.at and not over:
            return False
        if self.kind == "short" and writing:
            self._short = True
            return True
        full = self.kind in ("full", "short")
        raise OSError(*((errno.ENOSPC, "No space left") if full else (errno.EIO, "I/O error")))

    def open(self, path: Any, flags: int, mode: int = 0o777, /) -> int:
        if flags & os.O_CREAT:
            self._hit()
        return os.open(path, flags, mode)

    def write(self, fd: int, data: Any, /) -> int:
        if self._hit(writing=True) and len(data) > 1:
            return os.write(fd, data[: len(data) // 2])
        return os.write(fd, data)

    def fsync(self, fd: int, /) -> None:
        self._hit()
        os.fsync(fd)

    def ftruncate(self, fd: int, length: int, /) -> None:
        if self.kind == "dying":
            self._hit()  # a full disk still gives space back
        os.ftruncate(fd, length)

    def close(self, fd: int, /) -> None:
        os.close(fd)

    def replace(self, source: Any, target: Any, /) -> None:
        self._hit()
        os.replace(source, target)


def bad_disks(calls: int) -> Iterator[BadDisk]:
    """Every kind of failure at every one of *calls*."""
    for at in range(1, calls + 1):
        for kind in KINDS:
            yield BadDisk(at, kind)
