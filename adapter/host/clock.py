"""The host's clocks, as one argument that tests and the simulator can replace."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Four ways to ask what time it is; only *boot_ns* is ever billed by."""

    def boot_ns(self) -> int:
        """CLOCK_BOOTTIME: counts through suspend, immune to NTP."""
        ...

    def mono_ns(self) -> int:
        """CLOCK_MONOTONIC: stands still while the host sleeps."""
        ...

    def wall_ms(self) -> int:
        """The wall clock; a label only."""
        ...

    def boot_id(self) -> str:
        """Changes with every boot of the host."""
        ...


class HostClock:
    """The kernel's clocks."""

    def __init__(self, boot_id: Path = Path("/proc/sys/kernel/random/boot_id")) -> None:
        self._boot_id = boot_id.read_text().strip()

    def boot_ns(self) -> int:
        """CLOCK_BOOTTIME in nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def mono_ns(self) -> int:
        """CLOCK_MONOTONIC in nanoseconds."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def boot_id(self) -> str:
        """The kernel's boot id."""
        return self._boot_id
