"""What rclone does by itself that would take a file away from the members who mount a store.

Each of its removals follows an answer: where the answer is another, the file stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

SPARED_S: Final = 10.0
LEASES: Final = 1_000
WRITES: Final = 64
"""Of the files that each of so many leases wrote, so many are remembered."""

Environ = dict[str, Any]
Answer = tuple[str, str, str]
"""Status line, code, and why."""


class Habits:
    """*is_file*: whether a file, and no folder, is at a path."""

    def __init__(self, is_file: Callable[[str], bool]) -> None:
        self._is_file = is_file
        self._lock = threading.Lock()
        self._failed: dict[str, float] = {}
        self._wrote: dict[str, dict[str, bool]] = {}  # by lease: whether it asked of it since

    def refuse(self, environ: Environ) -> Answer | None:
        """What to answer in place of what it asks for; None: what it asks for."""
        match environ["REQUEST_METHOD"]:
            case "DELETE":
                return self._spared(environ["PATH_INFO"])
            case "PROPFIND" if environ["tally.lease"]:
                return self._unseen(environ["tally.lease"], environ["PATH_INFO"])
            case "MOVE" if environ["tally.lease"] and self._is_file(_target(environ)):
                environ["HTTP_OVERWRITE"] = "T"  # it asks for F: it heard that nothing is there
                return None
            case _:
                return None

    def _spared(self, path: str) -> Answer | None:
        """It removes what it could not write (``backend/webdav``, ``Update``), thus the file of
        before with it, which is here still: that one removal is refused, and it minds that not.
        """
        with self._lock:
            at = self._failed.pop(path, None)
        if at is None or time.monotonic() - at > SPARED_S:
            return None
        return "409 Conflict", "STORE_KEPT", "its last write failed: what was there before stays"

    def _unseen(self, lease: str, path: str) -> Answer | None:
        """It asks for the file that it is about to rename over, and removes it first where it hears
        that it is there (``vfs/file.go``, ``operations.Move``): a host that is lost between the two
        would take both. Where it hears of none, our move replaces it in one step.

        A mount asks of a file by itself only then, and after it has written one: that is answered.
        """
        with self._lock:
            wrote = self._wrote.get(lease, {})
            if path in wrote:
                wrote[path] = True
                return None
        if not self._is_file(path):
            return None
        return "404 Not Found", "STORE_UNSEEN", "a mount sees it in the listing of its folder"

    def noting(self, environ: Environ) -> Callable[[str], None]:
        """To be told how it was answered, by its status line; as it is asked now."""
        method, path, lease = (
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ["tally.lease"],
        )
        to = unquote(environ["HTTP_DESTINATION"]) if method == "MOVE" else path

        def noted(status: str) -> None:
            good = status[:1] == "2"
            with self._lock:
                if method == "PUT" and not good:
                    now = time.monotonic()
                    kept = {one: at for one, at in self._failed.items() if now - at < SPARED_S}
                    self._failed = kept | {path: now}
                elif method in ("PUT", "MOVE") and good and lease:
                    self._note(lease, to)

        return noted

    def _note(self, lease: str, path: str) -> None:
        before = self._wrote.pop(lease, {})
        unasked = [one for one, asked in before.items() if not asked and one != path]
        self._wrote[lease] = dict.fromkeys([*unasked[1 - WRITES :], path], False)
        while len(self._wrote) > LEASES:
            del self._wrote[next(iter(self._wrote))]


def _target(environ: Environ) -> str:
    return unquote(environ["HTTP_DESTINATION"])
