"""``tally shell`` and ``tally job shell``, the real commands, at a real terminal: one of this test's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from adapter.runtime.terminal import LocalTerminal
from tests.e2e.support.embedded import PATIENCE_S, World, newest_job, story, tally, until_true

pytestmark = pytest.mark.timeout(PATIENCE_S + 120)


SIZE = "python3 -c 'import os; print(*os.get_terminal_size())'"


class Screen:
    """What somebody sees who typed a command of ours, and what he types on."""

    def __init__(self, terminal: LocalTerminal) -> None:
        self._terminal, self.seen = terminal, b""

    async def until(self, what: str) -> str:
        """The text that *what*, a pattern, is in; it is looked for in what was not seen before."""
        try:
            with anyio.fail_after(120):
                while (found := re.search(what.encode(), self.seen)) is None:
                    data = await self._terminal.read()
                    assert data, self.seen[-1500:]
                    self.seen += data
        except TimeoutError:
            raise AssertionError(f"{what!r} is not in {self.seen[-1500:]!r}") from None
        self.seen = self.seen[found.end() :]
        return found[0].decode()

    async def answers(self, line: str, what: str) -> None:
        """*line* is typed until it is answered: after a Ctrl-C the kernel empties the terminal both
        ways once it has sent the signal, so that a prompt may be lost.
        """
        with anyio.fail_after(60):
            while what.encode() not in self.seen:
                await self.type(f"{line}\n")
                with anyio.move_on_after(2):
                    while what.encode() not in self.seen:
                        self.seen += await self._terminal.read()

    async def over(self) -> bytes:
        """All that is left."""
        with anyio.fail_after(180):
            while data := await self._terminal.read():
                self.seen += data
        return self.seen

    async def type(self, keys: str) -> None:
        await self._terminal.write(keys.encode())

    async def resize(self, rows: int, columns: int) -> None:
        await self._terminal.resize(rows, columns)


@asynccontextmanager
async def sat(world: World, *asked: str) -> AsyncGenerator[Screen]:
    """At a terminal of 30 rows and 120 columns, where ``tally`` *asked* was typed."""
    line = (sys.executable, "-c", AT_HOME, sys.executable, "-m", "marketplace.cli.main", *asked)
    env = {**os.environ, **world.place.environment, "TERM": "xterm-256color"}
    terminal = LocalTerminal(line, 30, 120, env)
    try:
        yield Screen(terminal)
    finally:
        await terminal.end()


# As a shell starts it: the terminal is its own, and tells it of a window's new size.
AT_HOME = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.prove
def test_a_shell_is_sat_at_left_and_taken_up_again(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        env = world.place.environment
        async with sat(world, "shell", "--yes") as screen:
            await screen.type(f"{SIZE}; echo $((6 * 7)) > answer.txt\n")
            await screen.until(r"120 30\r")
            await screen.resize(50, 132)
            await screen.answers(SIZE, "132 50\r")  # it is told on its way, beside what is typed
            await screen.type("sh -c 'echo $((5 * 5)); exec sleep 600'\n")
            await screen.until("25\r\n")  # it has the foreground
            await screen.type("\x03")  # Ctrl-C is the workload's
            await screen.answers("echo $((6 * 8))", "48\r\n")
            first = (await newest_job(world))["id"]

            async with sat(world, "job", "shell", first, "--", "cat") as other:
                await other.type("beside\n")
                await other.until("beside\r\nbeside")
                await other.type("\x04")
                await other.over()

            await screen.type("exit\n")
            await screen.over()
        view = await world.market.job(first).wait()
        assert view["reason"] == "CANCELLED", view
        signed = await tally("job", "outputs", first, "--signed", env=env)
        assert signed.process.returncode == 0 and "/workspace" in str(signed), str(signed)

        async with sat(world, "shell", "--yes", "--from", first) as screen:
            await screen.type("cat answer.txt\n")
            await screen.until("42\r\n")
            await screen.type("exit\n")
            await screen.over()

    story(tmp_path, tell)


@pytest.mark.nightly
def test_a_shell_that_nobody_types_in_ends_by_itself(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with sat(world, "shell", "--yes", "--idle", "1m") as screen:
            await screen.type("echo $((63 * 7))\n")
            await screen.until("441\r\n")
            await screen.until("session: nobody has worked here for .*it ends in")
            await screen.over()

        async def over() -> bool:
            return (await newest_job(world))["state"] == "ENDED"

        await until_true(over, "its end")
        assert (await newest_job(world))["reason"] == "COMPLETED"

    story(tmp_path, tell)
