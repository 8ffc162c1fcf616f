"""Room for files that are on their way: promised before the first byte, so that many begun at once
never take more than there is.

A folder's free bytes alone say nothing while others write: what was promised and is not written yet
is taken off. The database lies on the same disk; :attr:`Room.keep_free` bytes are never given to a
file.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.market.base.errors import DiskFull, RateLimited

KEEP_FREE: Final = 1 << 30  # bytes of the disk that no file of a user takes
AT_ONCE: Final = 8  # uploads of one account, or of all accounts at one address, at a time
LOOK_EVERY: Final = 8 << 20  # bytes written by all together between two looks at the disk
AGAIN_MS: Final = 1_000


@dataclass(eq=False)
class Upload:
    """A file on its way: *size* bytes at most, of which *written* are on the disk."""

    names: frozenset[str]
    size: int
    written: int = 0


class Room:
    """One folder's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keep_free = KEEP_FREE
        self._underway: list[Upload] = []
        self._unseen = 0  # bytes that all of them wrote since the last look

    def promised(self, name: str) -> int:
        """Bytes promised to the uploads of account *name*."""
        return sum(one.size for one in self._underway if name in one.names)

    @contextmanager
    def keep(self, size: int, *names: str, few: bool) -> Generator[Upload]:
        """Room for *size* bytes of whoever has these *names* (account, address). :class:`DiskFull`;
        with *few* :class:`RateLimited` beyond :data:`AT_ONCE` of one name.
        """
        for name in names if few else ():
            if sum(name in one.names for one in self._underway) >= AT_ONCE:
                text = f"{AT_ONCE} files at a time are taken of one account or address"
                raise RateLimited(text, retry_after_ms=AGAIN_MS)
        self._look(size)
        mine = Upload(frozenset(names), size)
        self._underway.append(mine)
        try:
            yield mine
        finally:
            self._underway.remove(mine)

    def wrote(self, upload: Upload, size: int) -> None:
        """*size* bytes more are written; :class:`DiskFull` when something else took the disk
        meanwhile, another process of this market among it.
        """
        upload.written += size
        self._unseen += size
        if self._unseen >= LOOK_EVERY:
            self._unseen = 0
            self._look(0)

    def _look(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free
        coming = sum(max(0, one.size - one.written) for one in self._underway) if size else 0
        if free - coming < size + self.keep_free:
            raise DiskFull(f"{free - coming} bytes are free where the market keeps files")
