"""What both runtimes do alike: blocking calls in threads, and the reason of an end on disk."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio
import structlog
from anyio import to_thread

from adapter.core.workload import RuntimeFault, RuntimeTimeout
from marketplace import disk
from marketplace.disk import DiskFault
from marketplace.domain.work.workload import ExitReason

_log = structlog.get_logger("adapter")
T = TypeVar("T")
_THREADS: Final = anyio.CapacityLimiter(math.inf)
"""Threads apart from those of journal and meters: however many pulls or commands hang, a receipt is
written and an unpaid workload is frozen.  Their number is bounded by the leases, each of which has
one driver and one look at a time, and by the bound on commands.
"""


async def in_thread(what: str, action: Callable[[], T], deadline_s: float) -> T:
    """*action*, or :class:`RuntimeTimeout` after the deadline; the thread is then left to itself.

    A disk that has no room for a workload's files and logs is a :class:`RuntimeFault`: only the
    journal ends the process.
    """
    try:
        with anyio.fail_after(deadline_s):
            return await to_thread.run_sync(action, abandon_on_cancel=True, limiter=_THREADS)
    except TimeoutError as error:
        raise RuntimeTimeout(f"{what}: no answer within the deadline") from error
    except DiskFault as fault:
        raise RuntimeFault(f"{what}: {fault.code}: {fault.message}") from fault
    except OSError as error:
        raise RuntimeFault(
            f"{what}: {disk.fault(error, 'a file', error.filename or '')}"
        ) from error


def note_reason(path: Path, reason: ExitReason) -> None:
    """Keep why a workload is being ended, in one step: the first reason stands, a kill leaves
    none.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if noted_reason(path) is not None:
        return
    try:
        disk.write_whole(path, reason.value.encode())
    except DiskFault as fault:  # a full disk keeps no workload from being ended
        _log.error("reason not kept", code=fault.code, cause=fault.message)


def noted_reason(path: Path) -> ExitReason | None:
    """What was noted; None for nothing, or for what a kill or a full disk left of it."""
    try:
        return ExitReason(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
