"""Processes of our own beside the adapter: shims, and commands that enter a workload."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from adapter.core.workload import ExecResult

_SHIMS: list[subprocess.Popen[bytes]] = []


def launch_shim(folder: Path, plan: Mapping[str, object]) -> None:
    """A double fork by ``start_new_session``: the shim is nobody's child to reap in a hurry."""
    with (folder / "shim.log").open("wb") as log:
        shim = subprocess.Popen(
            [sys.executable, "-m", "adapter.runtime.shim", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=own_modules(),
        )
    assert shim.stdin is not None
    with shim.stdin:
        shim.stdin.write(json.dumps(plan).encode())
    _SHIMS.append(shim)


def reap() -> None:
    """Collect shims that ended, so that none stays a zombie of this process."""
    _SHIMS[:] = [shim for shim in _SHIMS if shim.poll() is None]


def run_bounded(line: list[str], timeout_s: float, limit: int) -> ExecResult:
    """Run a module of ours; it is killed when it passes its time, or *limit* bytes of output."""
    with subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        start_new_session=True,
        env=own_modules(),
    ) as child:
        return _bounded(child, timeout_s, limit)


def _bounded(child: subprocess.Popen[bytes], timeout_s: float, limit: int) -> ExecResult:
    """Read at most *limit* bytes within the time, then end the command."""
    assert child.stdout is not None
    deadline, kept = time.monotonic() + timeout_s, bytearray()
    os.set_blocking(child.stdout.fileno(), False)
    while time.monotonic() < deadline and len(kept) < limit:
        piece = child.stdout.read(limit - len(kept))
        if piece:
            kept += piece
        elif piece == b"" or child.poll() is not None:
            break
        else:
            time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = child.wait(max(0.0, min(1.0, deadline - time.monotonic())))
        return ExecResult(code if code >= 0 else 128 - code, bytes(kept))
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return ExecResult(137, bytes(kept))


def own_modules() -> dict[str, str]:
    """The environment of a process of ours that is started by its module's name."""
    root = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": search}
