"""One process a chain: the lock on its folder."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


class StateHeld(ValueError):
    """Another process has the chain's folder."""


def sole_owner(folder: Path) -> IO[str]:
    """Two processes on one chain would fork it: the folder belongs to whoever holds this lock."""
    guard = (folder / "lock").open("w")
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        guard.close()
        raise StateHeld(f"another devnet runs on {folder}") from problem
    return guard
