"""A terminal of this host, as somebody who sits at it sees it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable

import anyio

from adapter.runtime.terminal import MOST_CELLS, LocalTerminal, size

Body = Callable[[LocalTerminal], Awaitable[None]]


async def until_shown(terminal: LocalTerminal, what: bytes) -> bytes:
    shown = b""
    with anyio.fail_after(30):
        while what not in shown:
            data = await terminal.read()
            assert data, shown
            shown += data
    return shown


def sat_at(line: tuple[str, ...], body: Body) -> None:
    async def run() -> None:
        terminal = LocalTerminal(line, 30, 90)
        try:
            await body(terminal)
        finally:
            await terminal.end()

    anyio.run(run)


def test_what_is_typed_is_run_and_shown() -> None:
    async def body(terminal: LocalTerminal) -> None:
        await terminal.write(b"stty size; echo $((6 * 7))\n")
        assert b"30 90" in await until_shown(terminal, b"\n42")
        await terminal.resize(50, 132)
        await terminal.write(b"stty size\n")
        await until_shown(terminal, b"50 132")
        await terminal.write(b"exit\n")
        with anyio.fail_after(30):
            while await terminal.read():
                pass

    sat_at(("sh",), body)


def test_whoever_hangs_up_ends_what_runs() -> None:
    tells = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"

    async def body(terminal: LocalTerminal) -> None:
        pid = int((await until_shown(terminal, b"\n")).split()[0])
        os.kill(pid, 0)
        await terminal.end()
        began = time.monotonic()
        while time.monotonic() - began < 30:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            await anyio.sleep(0.05)
        raise AssertionError(f"{pid} runs on")

    async def run() -> None:
        await body(LocalTerminal((sys.executable, "-c", tells), 24, 80))

    anyio.run(run)


def test_much_that_is_typed_waits_until_it_is_read() -> None:
    """More than a terminal holds, for a program that is slow to read."""
    reads = (
        "import os, sys, time, tty; tty.setraw(0); print('ready', flush=True); time.sleep(0.5)\n"
        "n = 0\n"
        "while n < 300_000: n += len(os.read(0, 4096))\n"
        "print('all', n, flush=True)"
    )

    async def body(terminal: LocalTerminal) -> None:
        await until_shown(terminal, b"ready")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(terminal.write, b"x" * 300_000)
            await until_shown(terminal, b"all 300000")

    sat_at((sys.executable, "-c", reads), body)


def test_no_screen_is_larger_than_any_screen() -> None:
    assert size(0, -5) == (1, 1)
    assert size(10**9, 80) == (MOST_CELLS, 80)
