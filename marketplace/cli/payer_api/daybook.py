"""What the payer's API agreed to on one day, on disk: its cap holds over restarts, and a request
that is repeated under its key posts nothing twice.

A job counts with its whole budget until the day (UTC) is over, whatever it used: what a program may
cost its owner is then known beforehand, by one number.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from marketplace import disk
from marketplace.domain.errors import Conflict, Refusal
from marketplace.domain.units import show_ada

BOOK: Final = "payer-api.json"
_LOCK: Final = "payer-api.lock"
DAYS: Final = 2
"""That a key is known for: whoever repeats over midnight is answered the same."""


class DaySpent(Refusal):
    """The budgets of the day's jobs would exceed the API's cap."""

    code = "DAY_SPENT"
    remedy = "wait for the next day (UTC), or start `tally payer run` with a greater --day-cap"


class KeyReused(Conflict):
    """Its key stands for another request."""

    code = "IDEMPOTENCY_KEY_REUSED"
    remedy = "use a new Idempotency-Key for a new job"


class ApiTaken(Refusal):
    """Another process has the API of this home: two would spend the day's cap twice."""

    code = "PAYER_API_TAKEN"
    remedy = "use the one that runs, or end it first"


@dataclass(frozen=True)
class Entry:
    """*asked*: what was posted, hashed; *job*: its id, empty until the market has taken it."""

    day: str
    budget: int
    asked: str
    job: str = ""


class DayBook:
    """*most*: lovelace a day. One process has it, until it ends or closes it; :class:`ApiTaken`
    for others.
    """

    def __init__(self, home: Path, most: int) -> None:
        self.most = most
        self._path = home / BOOK
        self._lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise ApiTaken(f"the payer's API of {home} is served already") from error
        try:
            self._entries = _read(self._path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Another process may have it."""
        os.close(self._lock)

    def known(self, key: str, asked: str) -> str:
        """The job that *key* stands for, or nothing; :class:`KeyReused`."""
        entry = self._entries.get(key)
        if entry is None:
            return ""
        if entry.asked != asked:
            raise KeyReused("this key was sent with another job")
        return entry.job

    def count(self, key: str, asked: str, budget: int) -> None:
        """Before it is posted. :class:`DaySpent`; :class:`~marketplace.disk.DiskFault`."""
        today = datetime.now(UTC).date().isoformat()
        if key not in self._entries:
            spent = sum(one.budget for one in self._entries.values() if one.day == today)
            if spent + budget > self.most:
                left = show_ada(max(0, self.most - spent))
                raise DaySpent(
                    f"the job may cost {show_ada(budget)}, and {left} of today's"
                    f" {show_ada(self.most)} are left",
                    left=max(0, self.most - spent),
                )
        self._keep(key, Entry(today, budget, asked))

    def took(self, key: str, job: str) -> None:
        """The market has it as *job*."""
        entry = self._entries[key]
        self._keep(key, Entry(entry.day, entry.budget, entry.asked, job))

    def forget(self, key: str) -> None:
        """The market did not take it."""
        self._entries.pop(key, None)
        self._write()

    def _keep(self, key: str, entry: Entry) -> None:
        self._entries[key] = entry
        days = sorted({one.day for one in self._entries.values()})[-DAYS:]
        self._entries = {k: one for k, one in self._entries.items() if one.day in days}
        self._write()

    def _write(self) -> None:
        rows = {k: [e.day, e.budget, e.asked, e.job] for k, e in self._entries.items()}
        disk.write_whole(self._path, json.dumps({"version": 1, "jobs": rows}).encode())


def _read(path: Path) -> dict[str, Entry]:
    try:
        value = cast("dict[str, Any]", json.loads(path.read_bytes()))
        return {str(k): Entry(str(d), int(b), str(a), str(j))
                for k, (d, b, a, j) in value["jobs"].items()}  # fmt: skip
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise disk.fault(error, "the API's book cannot be read", path) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise disk.JournalDamaged(f"{path} cannot be read: {error}") from error
