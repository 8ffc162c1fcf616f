"""A terminal that somebody sits at: a pseudo-terminal of this host, a program at its other end.

pty(7), ioctl_tty(2).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import anyio.to_thread

READ: Final = 64 * 1024
MOST_CELLS: Final = 1000
"""Rows, and columns: nobody's screen has more."""
KIND: Final = "xterm-256color"


def size(rows: int, columns: int) -> tuple[int, int]:
    """What a screen may have, whoever says how large his is."""
    return max(1, min(rows, MOST_CELLS)), max(1, min(columns, MOST_CELLS))


class LocalTerminal:
    """*line* runs as a session of its own, at a terminal of *rows* and *columns*: its standard
    input, which it takes as its own (``TIOCSCTTY``). *env*: its whole environment.
    """

    def __init__(
        self, line: Sequence[str], rows: int, columns: int, env: Mapping[str, str] | None = None
    ) -> None:
        self._here, there = pty.openpty()
        try:
            self._sized(rows, columns)
            os.set_blocking(self._here, False)
            self._program = subprocess.Popen(
                line, stdin=there, stdout=there, stderr=there, start_new_session=True, cwd="/",
                env=env,
            )  # fmt: skip
        except BaseException:
            os.close(self._here)
            raise
        finally:
            os.close(there)

    async def read(self) -> bytes:
        """What it shows; empty once it has ended."""
        while True:
            try:
                return os.read(self._here, READ)
            except BlockingIOError:
                await anyio.wait_readable(self._here)
            except OSError as error:
                if error.errno == errno.EIO:  # Linux: nobody has the other end open any more
                    return b""
                raise

    async def write(self, data: bytes) -> None:
        """What is typed there."""
        while data:
            try:
                data = data[os.write(self._here, data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._here)
            except OSError:
                return  # it has ended: who reads is told

    async def resize(self, rows: int, columns: int) -> None:
        """Its screen has another size."""
        self._sized(rows, columns)

    def _sized(self, rows: int, columns: int) -> None:
        packed = struct.pack("HHHH", *size(rows, columns), 0, 0)
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, packed)

    async def end(self) -> None:
        """Hang up: the program, and what it runs in the foreground, ends."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        os.close(self._here)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._program.wait)
