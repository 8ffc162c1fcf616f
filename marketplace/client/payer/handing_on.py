"""How the processes of one purse share a channel: whoever has its lock signs for all its leases.

One that has something to agree to asks for the lock, by a lock on a second file beside it; whoever
holds the channel and is not just agreeing itself hands it on. The kernel gives both back when a
process dies: those whose leases are on the channel then take it up again. Nothing else passes
between them, for all that is signed lies in the book.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from marketplace import disk
from marketplace.domain.errors import Fault

LOOK_S: Final = 0.1
POSTING_WAIT_S: Final = 60.0


class HandedOn(Fault):
    """This process does not sign for the channel any more."""

    code = "CHANNEL_HANDED_ON"
    remedy = "another command of this purse signs for it now; it is taken up again after that one"


def asked_for(folder: Path, session_vk: bytes) -> bool:
    """Whether another process waits for the channel's lock now."""
    try:
        guard = os.open(_line(folder, session_vk), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not locked(guard, fcntl.LOCK_SH, folder)
    finally:
        os.close(guard)


@asynccontextmanager
async def in_line(folder: Path, session_vk: bytes, wait_s: float) -> AsyncGenerator[bool]:
    """First in line for the channel's lock: whoever holds it hands it on. False after *wait_s*
    seconds in which others were.
    """
    async with _waited(_line(folder, session_vk), wait_s) as first:
        yield first


@asynccontextmanager
async def posting(
    folder: Path, waits: Callable[[], Awaitable[None]], wait_s: float = POSTING_WAIT_S
) -> AsyncGenerator[bool]:
    """One command of a purse posts and agrees at a time, so that the next one finds the channel
    that the first has opened; *waits* is called once if it is not its turn. No safety hangs on it:
    after *wait_s* seconds it goes on without.
    """
    async with _waited(folder / "posting.lock", wait_s, waits) as mine:
        yield mine


def _line(folder: Path, session_vk: bytes) -> Path:
    return folder / f"{session_vk.hex()}.next"


@asynccontextmanager
async def _waited(
    path: Path, wait_s: float, waits: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[bool]:
    try:
        await anyio.Path(path.parent).mkdir(parents=True, exist_ok=True, mode=0o700)
        guard = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk.fault(error, "a channel cannot be waited for", path) from error
    try:
        mine = locked(guard, fcntl.LOCK_EX, path)
        if not mine and waits is not None:
            await waits()
        until = anyio.current_time() + wait_s
        while not mine and anyio.current_time() < until:
            await anyio.sleep(LOOK_S * (0.5 + random.random()))
            mine = locked(guard, fcntl.LOCK_EX, path)
        yield mine
    finally:
        os.close(guard)


def locked(guard: int, how: int, path: Path) -> bool:
    """Take *how* of the lock on the open file *guard*, *path*; False if another process has it."""
    try:
        fcntl.flock(guard, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise disk.fault(error, "a channel cannot be waited for", path) from error
    return True
