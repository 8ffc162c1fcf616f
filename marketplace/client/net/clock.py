"""The payer's own clock: monotonic, and comparable after a restart of process or machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marketplace.domain.canonical import want_int, want_list, want_text


@dataclass(frozen=True)
class Stamp:
    """An instant: *mono_ms* counts within the boot *boot*; *wall_ms* only bridges reboots."""

    boot: str
    mono_ms: int
    wall_ms: int

    @staticmethod
    def now() -> Stamp:
        """This instant."""
        return Stamp(_boot(), time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)

    def mono_at(self, now: Stamp) -> int:
        """This instant on the monotonic clock of *now*, which may be another boot's."""
        if self.boot and self.boot == now.boot:
            return self.mono_ms
        return now.mono_ms - max(0, now.wall_ms - self.wall_ms)

    def earlier(self, ms: int) -> Stamp:
        """The instant *ms* before this one, within its boot."""
        return Stamp(self.boot, max(0, self.mono_ms - ms), max(0, self.wall_ms - ms))

    def to_wire(self) -> list[object]:
        """For the journal."""
        return [self.boot, self.mono_ms, self.wall_ms]

    @staticmethod
    def from_wire(value: object) -> Stamp:
        """The reverse."""
        boot, mono, wall = want_list(value, 3, "stamp")
        return Stamp(
            want_text(boot, "boot", 64), want_int(mono, "mono_ms"), want_int(wall, "wall_ms")
        )


def own_ms() -> int:
    """The monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000


_cache: dict[str, Any] = {}


def _boot() -> str:
    """The kernel's boot id; empty where there is none, and then restarts count by the wall
    clock.
    """
    if "boot" not in _cache:
        try:
            _cache["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            _cache["boot"] = ""
    return _cache["boot"]
