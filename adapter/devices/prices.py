"""What a device costs now: the owner's price by model, else a sane default, times the schedule."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from adapter.devices.inventory import CORE_RATE_MICRO, default_rate_micro
from marketplace.domain.supply.hardware import Gpu
from marketplace.domain.units import WHOLE

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Slot:
    """From hour *start* to hour *end* (local time; over midnight if end <= start) on *days* (empty:
    every day) prices are *factor* per-mille of the list."""

    start: int
    end: int
    factor: int
    days: tuple[str, ...] = ()

    def holds(self, hour: int, day: str) -> bool:
        """Whether it is in force; after midnight a slot belongs to the day on which it began."""
        inside = self.start <= hour < self.end
        if self.end <= self.start:
            inside = hour >= self.start or hour < self.end
            if hour < self.end:
                day = DAYS[DAYS.index(day) - 1]
        return inside and (not self.days or day in self.days)


@dataclass(frozen=True, slots=True)
class Prices:
    """*models*: micro-lovelace per GPU-second by model, or by a part of its name; *core_rate*: per
    core-second, None = the default, 0 = cores are not rented alone; *disk_rate*: per GB-second of
    volumes, at all hours, 0 = none are rented."""

    models: Mapping[str, int] = field(default_factory=dict[str, int])
    core_rate: int | None = None
    schedule: tuple[Slot, ...] = ()
    disk_rate: int = 0

    def factor(self, wall_ms: int) -> int:
        """Per-mille of the list price at *wall_ms*; the first slot that holds."""
        local = time.localtime(wall_ms // 1000)
        day = DAYS[local.tm_wday]
        return next((s.factor for s in self.schedule if s.holds(local.tm_hour, day)), WHOLE)

    def gpu_rates(self, gpus: Iterable[Gpu], wall_ms: int) -> dict[str, int]:
        """Micro-lovelace per GPU-second for every model of the host."""
        factor = self.factor(wall_ms)
        rates: dict[str, int] = {}
        for gpu in gpus:
            rates[gpu.model] = max(1, self._listed(gpu) * factor // WHOLE)
        return rates

    def unmatched(self, gpus: Iterable[Gpu]) -> list[str]:
        """Names of *models* that no device of the host has: misspelt, or of a device that is
        away.
        """
        models = [gpu.model.lower() for gpu in gpus]
        return [name for name in self.models if not any(name.lower() in m for m in models)]

    def core(self, wall_ms: int) -> int:
        """Micro-lovelace per core-second; 0 = not offered."""
        listed = CORE_RATE_MICRO if self.core_rate is None else self.core_rate
        return listed * self.factor(wall_ms) // WHOLE

    def _listed(self, gpu: Gpu) -> int:
        exact = self.models.get(gpu.model)
        if exact is not None:
            return exact
        parts = [rate for name, rate in self.models.items() if name.lower() in gpu.model.lower()]
        return parts[0] if parts else default_rate_micro(gpu)
