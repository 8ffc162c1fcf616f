"""The daemon's absences: a workload that fell with its daemon ended by the provider's fault."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from adapter.core.workload import Times
from adapter.runtime.docker.door import address

NEAR_MS: Final = 15_000
"""A death so close to the daemon's absence counts as one with it: we look once a second, and the
daemon dates what it finds dead to its own return."""


class Outages:
    """What is known of one daemon's absences. *host*: where it is, as in the configuration."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._last: tuple[int, int | None] | None = None  # wall ms: from, until (None = it lasts)

    def note(self, answers: bool) -> None:
        """Remember the daemon's last absence: what fell in it fell with the daemon."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            since, until = self._last or (now, now)
            lasts = self._last is not None and until is None
            if answers and lasts:
                self._last = (since, now)
            elif not answers and not lasts:
                self._last = (now, None)

    def felled(self, times: Times) -> bool:
        """Whether a container that was killed fell together with its daemon."""
        finished = times.finished_ms or 0
        if times.exit_code not in (137, 143, 255):
            return False
        begun = self._daemon_begun_ms()
        # The second: the daemon was restarted between two of our looks.
        return self._covers(finished) or (
            times.started_ms < begun and abs(finished - begun) <= 60_000
        )

    def _covers(self, finished_ms: int) -> bool:
        """Whether something ended while the daemon was away, or as good as then."""
        if self._last is None:
            return False
        since, until = self._last
        return since - NEAR_MS <= finished_ms and (until is None or finished_ms <= until + NEAR_MS)

    def _daemon_begun_ms(self) -> int:
        """When the daemon began to listen: its socket is made anew at every start. 0 = unknown."""
        scheme, _, path = address(self._host).partition("://")
        try:
            return os.stat(path).st_ctime_ns // 1_000_000 if scheme == "unix" else 0
        except OSError:
            return 0
