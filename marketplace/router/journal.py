"""The router's books on disk, in two places: each row is durable in both before anything that rests
on it leaves.

The two files are the same, row for row; the second one lies with a watchtower. It needs no key:
every row that took a consumer's voucher also says what a claim needs (``watch``, see
:mod:`marketplace.chain.settlement.watchtower`). A row has a number (*g*) and the hash of the row
before (*p*), so that a copy that is older, or another, is told from the one that goes on:

* the second file is behind: a crash came between the two, or its disk is new. It is brought up.
* the first one is behind: an old backup was restored. The rest is taken from the second, and the
  router is told so (*restored*): something that it signed may be in neither.
* neither begins the other: :class:`BooksForked`, and nothing is signed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import structlog

from marketplace import disk
from marketplace.disk import DiskFault, Files, JournalDamaged
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import Conflict, Malformed
from marketplace.router import rows
from marketplace.router.state import State, recovering

COMPACT_BYTES: Final = 16 << 20
_BEGINNING: Final = "00" * 32
log = structlog.get_logger("router")


class RouterHeld(Conflict):
    """Another process writes these books."""

    code = "ROUTER_HELD"
    remedy = "one market process routes: stop the other one, or start this one without --route"


class BooksForked(JournalDamaged):
    """The two copies say different things of the same time: both were written to, apart."""

    code = "ROUTER_BOOKS_FORKED"
    remedy = (
        "nothing was signed: find out which copy signed last, and put the other one aside; what"
        " either of them holds can be claimed with `tally watch`"
    )


@dataclass(frozen=True)
class Opened:
    """What the books say. *restored*: rows were missing that the second place had."""

    state: State
    restored: bool


class Journal:
    """The two files, locked. Made by :meth:`hold`."""

    def __init__(self, paths: tuple[Path, Path], lock: int, files: Files) -> None:
        self._paths = paths
        self._lock = lock
        self._files = files
        self._rows: list[disk.Rows] = []
        self._fault: DiskFault | None = None
        self._number = 0
        self._previous = _BEGINNING

    @staticmethod
    def hold(
        path: Path, tower: Path, files: Files = disk.OS, compact_bytes: int = COMPACT_BYTES
    ) -> tuple[Journal, Opened]:
        """Lock, then read both and make them the same. :class:`RouterHeld`, :class:`BooksForked`,
        :class:`~marketplace.disk.DiskFault`.
        """
        try:
            for place in (path, tower):
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = files.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RouterHeld(f"another process writes {path}") from error
        except OSError as error:
            raise disk.fault(error, "a router's books cannot be locked", path) from error
        journal = Journal((path, tower), lock, files)
        try:
            return journal, journal._open(compact_bytes)
        except BaseException:
            journal.close()
            raise

    def write(self, patch: rows.Patch, watch: Sequence[Mapping[str, Any]] = ()) -> None:
        """One row, durable in both places when this returns. After a fault nothing is written any
        more: it may be in one place, and nothing that rests on it left.
        """
        if self._fault is not None:
            raise self._fault
        row = {"g": self._number + 1, "p": self._previous, **patch}
        if watch:
            row["watch"] = list(watch)
        line = _line(row)
        try:
            for place in self._rows:
                place.add(line)
        except DiskFault as fault:
            self._fault = fault
            raise
        self._number, self._previous = self._number + 1, _hash(line)

    def close(self) -> None:
        """Give files and lock back."""
        for place in self._rows:
            place.close()
        self._rows = []
        os.close(self._lock)

    def _open(self, compact_bytes: int) -> Opened:
        mine, other = (self._read(path) for path in self._paths)
        restored = len(mine) < len(other) if _same_start(mine, other) else _newer(mine, other)
        kept = other if restored else mine
        state = fold(kept, self._paths[0].name)
        whole = b"".join(kept)
        if len(whole) > compact_bytes:
            number, previous = _end(kept)
            kept = [_line({"g": number, "h": previous, **rows.patch(rows.EMPTY, state)})]
            whole = b"".join(kept)
        if restored:  # said in the same step: a crash does not forget it
            number, previous = _end(kept)
            sure, state = state, recovering(state)
            row = {"g": number + 1, "p": previous, **rows.patch(sure, state)}
            kept = [*kept, _line(row)]
            whole = b"".join(kept)
        # After a restore the second copy first: it is what says that the first is old.
        for path in reversed(self._paths) if restored else self._paths:
            if not path.exists() or path.read_bytes() != whole:
                disk.write_whole(path, whole, self._files)
        self._number, self._previous = _end(kept)
        self._rows = [disk.Rows(path, self._files) for path in self._paths]
        if restored:
            log.warning("router_books_restored", book=str(self._paths[0]), rows=len(kept))
        return Opened(state, restored)

    def _read(self, path: Path) -> list[bytes]:
        """The whole rows of a file; a damaged end, of which nothing left, is set aside."""
        data = path.read_bytes() if path.exists() else b""
        found, end = disk.good_rows(data, _checked, path.name)
        if end < len(data):
            side = disk.set_aside(path, end, self._files)
            log.warning("router_book_end_damaged", book=str(path), kept=side.name)
        return found


def fold(lines: Sequence[bytes], name: str) -> State:
    """The state that rows add up to; :class:`~marketplace.disk.JournalDamaged`."""
    state = rows.EMPTY
    for number, line in enumerate(lines, start=1):
        try:
            state = rows.apply(state, json.loads(line))
        except (KeyError, TypeError, ValueError, Malformed) as error:
            raise JournalDamaged(f"{name}, row {number}: {error}") from error
    return state


def peek(path: Path) -> State:
    """For showing only: the state as it is now, without the lock."""
    data = path.read_bytes() if path.exists() else b""
    return fold(disk.good_rows(data, _checked, path.name)[0], path.name)


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _hash(line: bytes) -> str:
    return blake2b_256(line).hex()


def _checked(line: bytes) -> bytes:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(cast("dict[str, Any]", row).get("g"), int):
        raise ValueError("no row of a router's books")
    return line + b"\n"


def _end(lines: Sequence[bytes]) -> tuple[int, str]:
    """The number of the last row and its hash; of a state that was made short, what it stands
    for.
    """
    if not lines:
        return 0, _BEGINNING
    row = json.loads(lines[-1])
    return int(row["g"]), str(row.get("h") or _hash(lines[-1]))


def _same_start(mine: Sequence[bytes], other: Sequence[bytes]) -> bool:
    return all(a == b for a, b in zip(mine, other, strict=False))


def _newer(mine: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Whether *other* goes on from where *mine* ends, or the reverse, though one was made short.

    :class:`BooksForked` if neither does.
    """
    if _goes_on(mine, other):
        return True
    if _goes_on(other, mine):
        return False
    raise BooksForked("the router's books and their second copy went on apart")


def _goes_on(old: Sequence[bytes], new: Sequence[bytes]) -> bool:
    """Whether a row of *new* follows upon the last of *old*, or *new* begins beyond it."""
    number, previous = _end(old)
    read: list[dict[str, Any]] = [json.loads(line) for line in new]
    if read and "h" in read[0] and read[0]["g"] >= number:
        # It was made short after that, or then: what lies between is in it.
        return read[0]["g"] > number or read[0]["h"] == previous
    return any((row["g"], row.get("p")) == (number + 1, previous) for row in read)
