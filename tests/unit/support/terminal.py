"""A command in a real terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def lines_of(command: Sequence[str], columns: int, env: Mapping[str, str]) -> list[str]:
    """The lines that a terminal of so many columns gets, without their styles; the command has to
    end well.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in env.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**clean, "TERM": "xterm"}
    ) as child:
        os.close(theirs)
        got = b""
        try:
            while chunk := os.read(ours, 4096):
                got += chunk
        except OSError:
            pass  # how Linux says that the other end is closed
        assert child.wait(timeout=120) == 0, got
    os.close(ours)
    return STYLE.sub("", got.decode()).splitlines()
