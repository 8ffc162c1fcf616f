"""What a bench ran on, and how its figures are told."""

from __future__ import annotations

import os
import platform
from typing import Any


def machine() -> dict[str, Any]:
    """What it was measured on, and how busy that was."""
    return {
        "cpus": os.cpu_count(),
        "arch": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def percentile(values: list[int], percent: int) -> int:
    """By rank: the smallest value that *percent* of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
