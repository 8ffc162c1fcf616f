"""What rclone does by itself that would take a file away from the members who mount a store.

Each of its removals follows an answer: where the answer is another, the file stays.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

SPARED_S: Final = 10.0
LEASES: Final = 1_000
WRITES: Final = 64
"""Of the files that each of so many leases wrote, so many are remembered."""

FAILED: Final = 10_000

Environ = dict[str, Any]
Answer = tuple[str, str, str]
"""Status line, code, and why."""


class Noting:
    """Tells *note* once whether a request was done."""

    def __init__(self, note: Callable[[bool], None]) -> None:
        self._note: Callable[[bool], None] | None = note

    def answered(self, status: str) -> None:
        """By its status line."""
        note, self._note = self._note, None
        if note is not None:
            note(status[:1] == "2")

    def over(self) -> None:
        """Nothing more comes: what was not answered was not done."""
        self.answered("500")


class Habits:
    """*is_file*: whether a file, and no folder, is at a path."""

    def __init__(self, is_file: Callable[[str], bool]) -> None:
        self._is_file = is_file
        self._lock = threading.Lock()
        self._writing: Counter[str] = Counter()  # how many write to a path now
        self._failed: dict[str, tuple[float, int]] = {}  # when last, and how many could not
        self._wrote: dict[str, Counter[str]] = {}  # by lease: what it has not asked of since

    def refuse(self, environ: Environ) -> Answer | None:
        """What to answer in place of what it asks for; None: what it asks for."""
        path, lease = environ["PATH_INFO"], environ["tally.lease"]
        match environ["REQUEST_METHOD"]:
            case "DELETE":
                return self._spared(path)
            case "PROPFIND" if lease:
                return self._unseen(lease, path)
            case "MOVE" if lease and self._is_file(path) and self._is_file(_target(environ)):
                environ["HTTP_OVERWRITE"] = "T"  # it asks for F: it heard that nothing is there
                return None
            case _:
                return None

    def _spared(self, path: str) -> Answer | None:
        """It removes what it could not write (``backend/webdav``, ``Update``), thus the file of
        before with it, which is here still: that one removal is refused, and it minds that not.
        Its removal may come sooner than the end of a write that was cut off.
        """
        with self._lock:
            at, count = self._failed.pop(path, (0.0, 0))
            if not self._writing[path]:
                if not count or time.monotonic() - at > SPARED_S:
                    return None
                count -= 1
            if count:
                self._failed[path] = at, count
        return "409 Conflict", "STORE_KEPT", "its last write failed: what was there before stays"

    def _unseen(self, lease: str, path: str) -> Answer | None:
        """It asks for the file that it is about to rename over, and removes it first where it hears
        that it is there (``vfs/file.go``, ``operations.Move``): a host that is lost between the two
        would take both. Where it hears of none, our move replaces it in one step.

        A mount asks of a file by itself only then, and once after each that it wrote: that is
        answered.
        """
        with self._lock:
            wrote = self._wrote.get(lease, Counter[str]())
            if wrote.get(path):
                return None
        if not self._is_file(path):
            return None
        return "404 Not Found", "STORE_UNSEEN", "a mount sees it in the listing of its folder"

    def refused(self, environ: Environ) -> None:
        """What it asked for in its own store was not done."""
        if environ["REQUEST_METHOD"] == "PUT":
            with self._lock:
                self._note_failed(environ["PATH_INFO"])

    def noting(self, environ: Environ) -> Noting:
        """What becomes of a request; as it is asked now."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method == "PUT":
            with self._lock:
                self._writing[path] += 1
        wrote = _target(environ) if method == "MOVE" else path
        return Noting(partial(self._note, method, path, environ["tally.lease"], wrote))

    def _note(self, method: str, path: str, lease: str, wrote: str, good: bool) -> None:
        with self._lock:
            if method == "PUT":
                self._writing[path] -= 1
                if not self._writing[path]:
                    del self._writing[path]
                if not good:
                    self._note_failed(path)
            if method in ("PUT", "MOVE") and good and lease:
                self._note_written(lease, wrote)
            elif method == "PROPFIND" and good and lease:
                self._note_asked(lease, path)

    def _note_failed(self, path: str) -> None:
        now = time.monotonic()
        kept = {one: said for one, said in self._failed.items() if now - said[0] < SPARED_S}
        kept[path] = now, kept.pop(path, (now, 0))[1] + 1
        if len(kept) > FAILED:
            del kept[next(iter(kept))]
        self._failed = kept

    def _note_written(self, lease: str, path: str) -> None:
        wrote = self._wrote.pop(lease, Counter[str]())
        self._wrote[lease] = wrote  # the newest last
        wrote[path] += 1
        if len(wrote) > WRITES:
            del wrote[next(iter(wrote))]
        if len(self._wrote) > LEASES:
            del self._wrote[next(iter(self._wrote))]

    def _note_asked(self, lease: str, path: str) -> None:
        wrote = self._wrote.get(lease)
        if wrote is not None and wrote[path] > 1:
            wrote[path] -= 1
        elif wrote is not None:
            wrote.pop(path, None)


def _target(environ: Environ) -> str:
    return unquote(environ["HTTP_DESTINATION"])
