"""What the daemon needs of the world beside runtimes and the market: small enough to replace."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.core.workload import Runtime
from adapter.host.clock import Clock
from adapter.journal.journal import Journal
from adapter.mesh.host import Placed
from adapter.metering.meter import Subject
from marketplace.domain.metering.reading import Reading
from marketplace.domain.protocol import wire
from marketplace.domain.supply.hardware import HostHardware
from marketplace.domain.work.mesh import Heard, MeshPeer
from marketplace.domain.work.mesh_net import Seat
from marketplace.domain.work.mesh_relay import RelayPass
from marketplace.rclone import Source


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
    """The adapter's own eye on the chain (``adapter.money.channel_agent.ChannelAgent``)."""

    def watch(self, session_vk: bytes) -> None:
        """Look at this channel now, and again and again."""
        ...

    def examine(self, session_vk: bytes, tx: bytes) -> None:
        """Judge the open transaction that was handed over for this channel, and send it."""
        ...

    def settle(self, session_vk: bytes) -> None:
        """Finish this channel; repeat until the chain shows it."""
        ...

    def heard(self, message: wire.EndsProposed | wire.EndDeclined) -> None:
        """What the market says to an end that was offered to it."""
        ...

    async def run(self) -> None:
        """Watch until cancelled."""
        ...


class Market(Protocol):
    """The way to the market (``adapter.link.Link``)."""

    url: str

    @property
    def up(self) -> bool:
        """True while the market hears us."""
        ...

    @property
    def backlog(self) -> int:
        """Messages that the market has not acknowledged."""
        ...

    def send(self, message: wire.Message, number: int | None = None) -> None:
        """Now, or after the next welcome; *number* is handed back when it is acknowledged."""
        ...

    def can(self, capability: str) -> bool:
        """Whether the market that last welcomed us has it."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether pages, logs and files are to wait."""
        ...

    async def room(self) -> None:
        """Wait until the line is not crowded."""
        ...

    async def run(self) -> None:
        """Connect, talk, reconnect until cancelled."""
        ...


class Mesh(Protocol):
    """Networks of clusters' members (``adapter.mesh.host.MeshHost``); every method blocks, and may
    be repeated.
    """

    def held(self) -> list[str]:
        """The leases that have anything here, also from an earlier run."""
        ...

    def up(self, lease: str, seat: Seat, pid: int = 0) -> Placed:
        """The lease's mesh, whole; *pid*: a process of its workload, 0 for none."""
        ...

    def meet(self, lease: str, peers: Sequence[MeshPeer]) -> tuple[int, ...]:
        """Make its peers exactly these; the members that are left out."""
        ...

    def placed(self, lease: str) -> Placed:
        """Where it is reached by now."""
        ...

    def given(self, lease: str, ticket: RelayPass) -> None:
        """It may use the market's relay."""
        ...

    def hear(self, lease: str, wait_s: float) -> tuple[Heard, ...]:
        """Who of them is heard."""
        ...

    def dial(self, lease: str, port: int) -> socket.socket:
        """A connection to a port of its workload, from inside."""
        ...

    def down(self, lease: str) -> None:
        """Nothing is left of it."""
        ...


class Stores(Protocol):
    """Stores of clusters, mounted (``adapter.runtime.stores.mounts.StoreMounts``); every method
    blocks, and may be repeated.
    """

    def held(self) -> list[str]:
        """The leases that have anything here, also from an earlier run."""
        ...

    def stands(self, lease: str) -> bool:
        """Whether it is mounted, and by a program that lives."""
        ...

    def up(self, lease: str, source: Source, owner: tuple[int, int]) -> None:
        """Mounted, for the user *owner* alone."""
        ...

    def down(self, lease: str) -> None:
        """Nothing is left of it here; at the store everything stays."""
        ...

    def note_loss(self, lease: str) -> None:
        """The lease's workload ends for want of its store."""
        ...


@dataclass(frozen=True)
class Parts:
    """Everything that the daemon is made of; only ``main`` and tests put it together. *mesh*: how
    its workloads join a cluster's own network, *stores*: how they are shown a cluster's store;
    None: not at all.
    """

    journal: Journal
    clock: Clock
    meters: Meters
    inventory: HostInventory
    cleaner: Cleaner
    runtimes: Mapping[str, Runtime]
    mesh: Mesh | None = None
    stores: Stores | None = None
