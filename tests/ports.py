"""Ports that a test names before anybody listens there."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHANCE: Final = random.SystemRandom()  # two processes of one test run draw different ones


def free_port() -> int:
    """A port of loopback where nobody listens, below those that the kernel gives out by itself: no
    connection or listener beside this test gets it by chance before it is used, or between two uses.
    """
    first = int(_GIVEN.read_text().split()[0]) if _GIVEN.exists() else 32_768
    for _ in range(200):
        port = _CHANCE.randrange(10_000, first)
        with socket.socket() as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port of this machine is free")
