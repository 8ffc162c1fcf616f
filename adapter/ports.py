"""What the daemon needs of the world beside runtimes and the market: small enough to replace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from adapter.clock import Clock
from adapter.journal import Journal
from adapter.meter import Subject
from adapter.runtime.base import Runtime
from adapter.state import Channel
from marketplace.domain.hardware import HostHardware
from marketplace.domain.metering import Reading


class Meters(Protocol):
    """Takes readings; blocks, so it is called in a thread (``adapter.meter.Metering``)."""

    def poll(self, subjects: Iterable[Subject]) -> dict[str, list[Reading]]:
        """One reading for each device of each subject, by lease."""
        ...

    def relist(self, uuid: str) -> None:
        """Ask for the device's processes at the next poll."""
        ...

    def forget(self, subject: Subject) -> None:
        """Drop what was remembered for a lease that is over."""
        ...


class HostInventory(Protocol):
    """What the host has now; blocks (``adapter.inventory.Inventory``)."""

    def take(self) -> HostHardware:
        """The inventory."""
        ...


class Cleaner(Protocol):
    """Makes devices fit for the next tenant; blocks for seconds."""

    def cleanse(self, devices: tuple[str, ...]) -> None:
        """Scrub each, or quarantine it; never raises for a device that failed."""
        ...


class Chain(Protocol):
    """The adapter's own eye on the chain (``adapter.treasury.Treasury``)."""

    def watch(self, session_vk: bytes) -> None:
        """Look at this channel now, and again and again."""
        ...

    def settle(self, session_vk: bytes) -> None:
        """Finish this channel; repeat until the chain shows it."""
        ...

    async def run(self) -> None:
        """Watch until cancelled."""
        ...


class Book(Protocol):
    """What the treasury reads of the daemon's state."""

    def channel(self, session_vk: bytes) -> Channel | None:
        """A channel as the adapter knows it."""
        ...


@dataclass(frozen=True)
class Parts:
    """Everything that the daemon is made of; only ``main`` and tests put it together."""

    journal: Journal
    clock: Clock
    meters: Meters
    inventory: HostInventory
    cleaner: Cleaner
    runtimes: Mapping[str, Runtime]
