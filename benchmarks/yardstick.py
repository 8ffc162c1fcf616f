"""The machine itself, measured in a second or two beside every figure: what a figure is to be
divided by.

One idle two-core machine made 9,900 placements a second and another 3,900. A goal in figures a
second says which machine it was; a goal in figures to a yardstick holds on both. Four things bound
what we do: plain Python, arrays, signatures, and writes that are to last. Each is the best of
three, since other work only ever makes it slower.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from marketplace.domain.keys import Signer, verifies

STEPS: Final = 300_000
CELLS: Final = 200_000
PASSES: Final = 100
CHECKS: Final = 1_500
WRITES: Final = 60
BLOCK: Final = 4_096
"""Bytes a write that is to last has."""


def measure() -> dict[str, int]:
    """Per second: steps of a Python loop, passes over an array of 200,000 doubles, Ed25519 checks,
    4 KiB fsyncs.

    The fsyncs are of the folder for temporary files: TMPDIR moves them to the disk that is meant.
    """
    signer, message = Signer(b"\1" * 32), b"yardstick" * 20
    signature = signer.sign(message)

    def checks() -> None:
        for _ in range(CHECKS):
            if not verifies(signer.verify_key, message, signature):
                raise AssertionError("a good signature was refused")

    return {
        "python_steps_per_s": _best(STEPS, _loop),
        "numpy_passes_per_s": _best(PASSES, _arrays),
        "ed25519_checks_per_s": _best(CHECKS, checks),
        "fsyncs_per_s": _best(WRITES, _writes),
    }


def said(yardstick: dict[str, int]) -> str:
    """The line beside a bench's figures."""
    python, arrays, checks, fsyncs = yardstick.values()
    return (
        f"yardstick: {python / 1e6:.1f} M Python steps/s, {arrays:,} numpy passes/s,"
        f" {checks:,} Ed25519 checks/s, {fsyncs:,} fsyncs/s"
    )


def per_million_steps(per_s: float, yardstick: dict[str, int]) -> float:
    """A figure a second as one per million steps of the Python loop, which moves little from
    machine to machine.
    """
    return round(1e6 * per_s / yardstick["python_steps_per_s"], 1)


def _best(count: int, work: Callable[[], None]) -> int:
    """How many a second *count* of them make at best."""
    took: list[int] = []
    for _ in range(3):
        start = time.perf_counter_ns()
        work()
        took.append(time.perf_counter_ns() - start)
    return round(count * 1e9 / min(took))


def _loop() -> None:
    """Integers, a dictionary and a call a step: what an event loop's own code is made of."""
    held: dict[int, int] = {}
    total = 0
    for step in range(STEPS):
        total += held.get(step & 255, 1)
        held[step & 255] = total & 1023


def _arrays() -> None:
    cells = np.linspace(0.0, 1.0, CELLS)
    for _ in range(PASSES):
        other = cells * 1.5
        other += cells
        other.argmin()


def _writes() -> None:
    with tempfile.TemporaryFile() as file:
        for _ in range(WRITES):
            file.write(b"\0" * BLOCK)
            file.flush()
            os.fsync(file.fileno())
