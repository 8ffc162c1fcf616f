"""``tally job shell``: this terminal becomes one inside a running workload."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio

from marketplace.client.sdk.job import Job
from marketplace.client.sdk.terminal import Terminal, TerminalLost

_READ: Final = 64 * 1024
_END_OF_INPUT: Final = b"\x04"  # what Ctrl-D types


async def shell(job: Job, command: Sequence[str]) -> None:
    """Until its program ends. Where this is no terminal, what comes in is typed there.
    :class:`TerminalLost`, and what the market refuses.
    """
    rows, columns = _window()
    async with job.terminal(command, rows, columns) as far:
        lost: TerminalLost | None = None
        with _raw():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_typed, far)
                tasks.start_soon(_resized, far)
                try:
                    while data := await far.read():
                        show(data)
                except TerminalLost as error:
                    lost = error  # as it is, and not in a group of errors
                tasks.cancel_scope.cancel()
        if lost is not None:
            raise lost


def _window() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 24, 80
    return max(1, size.lines), max(1, size.columns)


@contextmanager
def _raw() -> Generator[None]:
    """Every key goes there, Ctrl-C too; as it was, afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def show(data: bytes) -> None:
    """On this screen, as it is."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _typed(far: Terminal) -> None:
    keys = sys.stdin.fileno()
    while True:
        try:
            await anyio.wait_readable(keys)
        except (OSError, ValueError):  # a file: it can always be read
            pass
        data = os.read(keys, _READ)
        if not data:
            await far.write(_END_OF_INPUT)
            return
        await far.write(data)


async def _resized(far: Terminal) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _ in changes:
            await far.resize(*_window())
