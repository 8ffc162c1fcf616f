"""Kept logs: bounded, addressed by absolute byte offset, and there after the workload is gone.

Two files for each lease, the older and the newer half of the bound; ``.base`` holds the offset at
which the older begins.  A reader that asks for bytes which are gone is told where the log begins.
"""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from adapter.core.workload import LogChunk
from marketplace import disk
from marketplace.disk import Files


class LogStore:
    """The logs under *root*/logs.  Safe between threads, and between the adapter and a shim."""

    def __init__(self, root: Path, files: Files = disk.OS) -> None:
        self._root = root / "logs"
        self._files = files

    @contextmanager
    def _locked(self) -> Generator[None]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            file = (self._root / ".lock").open("w")
        except OSError as error:
            raise disk.fault(error, "a log cannot be locked", self._root) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _paths(self, lease: str) -> tuple[Path, Path, Path]:
        return (
            self._root / f"{lease}.old",
            self._root / f"{lease}.log",
            self._root / f"{lease}.base",
        )

    def append(self, lease: str, data: bytes, limit: int) -> None:
        """Add *data*; no more than *limit* bytes are kept, the newest.

        On a :class:`~marketplace.disk.DiskFault` *data* is not there, and what was before still is.
        """
        old, new, base = self._paths(lease)
        half = max(1, limit // 2)
        with self._locked():
            dropped = max(0, len(data) - half)
            if dropped:
                start = self._start(base) + _size(old) + _size(new) + dropped
                self._begin_at(base, start)
                old.unlink(missing_ok=True)
                new.write_bytes(b"")
                data = data[dropped:]
            if _size(new) + len(data) > half:
                self._begin_at(base, self._start(base) + _size(old))
                if new.exists():
                    new.replace(old)
            kept = disk.Rows(new, self._files, durable=False)
            try:
                kept.add(data)
            finally:
                kept.close()

    def read(self, lease: str, offset: int, limit: int) -> LogChunk:
        """At most *limit* bytes from *offset*, or from where the log begins now."""
        old, new, base = self._paths(lease)
        with self._locked():
            start = self._start(base)
            offset = max(offset, start)
            data = b""
            for path, at in ((old, start), (new, start + _size(old))):
                if path.exists() and len(data) < limit and offset + len(data) < at + _size(path):
                    with path.open("rb") as file:
                        file.seek(offset + len(data) - at)
                        data += file.read(limit - len(data))
        return LogChunk(offset, data, offset + len(data))

    def end(self, lease: str) -> int:
        """The offset after the newest byte."""
        old, new, base = self._paths(lease)
        with self._locked():
            return self._start(base) + _size(old) + _size(new)

    def _begin_at(self, base: Path, start: int) -> None:
        disk.write_whole(base, str(start).encode(), self._files, durable=False)

    def _start(self, base: Path) -> int:
        return int(base.read_text()) if base.exists() else 0

    def remove(self, lease: str) -> None:
        """Forget a lease's log."""
        with self._locked():
            for path in self._paths(lease):
                path.unlink(missing_ok=True)

    def leases(self) -> list[str]:
        """Every lease with a kept log, the oldest first."""
        if not self._root.is_dir():
            return []
        found = sorted(self._root.glob("*.log"), key=lambda path: path.stat().st_mtime)
        return [path.stem for path in found]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
