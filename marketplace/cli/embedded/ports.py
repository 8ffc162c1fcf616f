"""The ports of an embedded market's parts: each keeps the one that it had."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import cast


def port_of(home: Path, name: str) -> int:
    """The port that part *name* had, or 0 if it had none or somebody took it."""
    had = _ports(home).get(name, 0)
    return had if is_free(had) else 0


def keep_port(home: Path, name: str, port: int) -> None:
    """From now on that of *name*."""
    (home / "ports.json").write_text(json.dumps(_ports(home) | {name: port}))


def block_of(home: Path, name: str, count: int) -> int:
    """The first of *count* ports in a row, all free: those that *name* had, or others from now on.
    Below those that systems hand out by themselves; anywhere among them, since another market on
    this machine looks for some too, and neither listens yet.
    """
    had = _ports(home).get(name, 0)
    tries = [had] if had else []
    tries += random.sample(range(20_000, 32_000, count), 200)
    for first in tries:
        if all(is_free(port) for port in range(first, first + count)):
            keep_port(home, name, first)
            return first
    return 0


def _ports(home: Path) -> dict[str, int]:
    path = home / "ports.json"
    return cast("dict[str, int]", json.loads(path.read_text())) if path.exists() else {}


def is_free(port: int) -> bool:
    """Whether a part may listen on *port* of loopback; 0 is always free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
