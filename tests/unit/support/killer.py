"""Processes that write and are killed at random moments."""

from __future__ import annotations

import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

Writer = Callable[[Path, int], None]
"""Writes below a path for ever; what is durable it tells through the file descriptor."""


def kill_at_random(writer: Writer, path: Path, dice: random.Random) -> bytes:
    """One life of *writer* in a process of its own, ended with SIGKILL; all that it told."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            writer(path, write)
        except BaseException:  # noqa: BLE001  a forked child shows what went wrong and leaves
            traceback.print_exc()
        finally:
            os._exit(3)
    os.close(write)
    if dice.random() < 0.5:
        select.select([read], [], [], 30)  # let it get to a write, however slow the machine is
    time.sleep(dice.uniform(0.0, 0.02))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    told = b""
    while chunk := os.read(read, 65_536):
        told += chunk
    os.close(read)
    assert os.WIFSIGNALED(status), "the writer failed by itself"
    return told


def last_of(told: bytes) -> bytes:
    """The last whole record of eight bytes, or eight zeros."""
    end = len(told) // 8 * 8
    return told[end - 8 : end] if end else bytes(8)
