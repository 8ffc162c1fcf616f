"""One adapter for one state folder: a second one is told who has it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from marketplace.domain.errors import Refusal


class AdapterRuns(Refusal):
    """Another adapter serves this state folder."""

    code = "ADAPTER_RUNS"
    remedy = (
        "use the one that runs (`tally adapter status`), stop it, or name another --state folder;"
        " restore nothing"
    )


@contextmanager
def only_one(folder: Path) -> Generator[None]:
    """Hold *folder* while the block runs; the kernel gives it back after a crash.
    :class:`AdapterRuns` with the process id of the one that has it.
    """
    fd = os.open(folder / "adapter.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise AdapterRuns(f"another adapter runs on {folder} (pid {pid})") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
