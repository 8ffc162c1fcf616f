"""A program of ours beside this process: begun with a secret that no command line shows, and begun
anew when it ends by itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import anyio.abc
import structlog

from marketplace.domain.errors import Refusal

READY_S: Final = 20.0
AGAIN_S: Final = 1.0

T = TypeVar("T")
Begin = Callable[[], Awaitable[anyio.abc.Process]]
Attend = Callable[[anyio.abc.Process], Awaitable[object]]
"""Until the program ends."""

log = structlog.get_logger("market")


async def begin(
    line: Sequence[str], secret: bytes, ready: Callable[[bytes], T], refused: Refusal
) -> tuple[anyio.abc.Process, T]:
    """A Python program, and what *ready* reads of its first words (ValueError or KeyError: it is
    not); *refused* where it does not begin within :data:`READY_S`.
    """
    made = await anyio.open_process(
        [sys.executable, "-m", *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
    )
    assert made.stdin is not None and made.stdout is not None
    try:
        with anyio.fail_after(READY_S):
            await made.stdin.send(secret.hex().encode() + b"\n")
            return made, ready(await made.stdout.receive())
    except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError, ValueError, KeyError):
        await _end(made)
        raise refused from None


@asynccontextmanager
async def keeping(
    what: str, first: anyio.abc.Process, again: Begin, attend: Attend
) -> AsyncGenerator[None]:
    """*first* while the block runs, or another that *again* began; it is attended to by *attend*.
    *what*: its name in the log.
    """

    async def keep(one: anyio.abc.Process) -> None:
        try:
            while True:
                await attend(one)
                await one.aclose()
                log.error(f"{what} ended", code=one.returncode)
                await anyio.sleep(AGAIN_S)
                try:
                    one = await again()
                except Refusal as refused:
                    log.error(what, error=refused.line())
        finally:
            with anyio.CancelScope(shield=True):
                await _end(one)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, first)
        yield
        tasks.cancel_scope.cancel()


async def _end(one: anyio.abc.Process) -> None:
    if one.returncode is None:
        one.kill()
    await one.aclose()
