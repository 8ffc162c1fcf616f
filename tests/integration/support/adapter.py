"""A market, a host and a chain that fit into one process, to run a whole adapter against.

The market speaks the real conversation over a real socket; the host keeps its workloads through any
number of adapters, as Docker would; the chain shows every channel that was opened on it.

Over 400 lines: the one stand-in for all of an adapter's surroundings.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from adapter.core.events import Event, Settled, Sighted
from adapter.core.state import Limits, Own
from adapter.core.workload import (
    ExecResult,
    Handle,
    LogChunk,
    Outputs,
    Progress,
    Status,
    Terminal,
    Times,
    WorkloadGone,
)
from adapter.daemon.daemon import Daemon
from adapter.daemon.link import socket_link
from adapter.daemon.ports import Mesh, Parts
from adapter.host.cgroup import Usage
from adapter.host.clock import Clock, HostClock
from adapter.host.keys import Keys
from adapter.journal.journal import Journal
from adapter.metering.meter import Metering
from adapter.runtime.terminal import LocalTerminal
from marketplace.domain.isolation import Isolation
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt, check_next
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.conversation import Numbering, Phase, Server
from marketplace.domain.site import origins
from marketplace.domain.supply.hardware import Cpu, HostHardware
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState
from tests.unit.support.adapter import ADAPTER, SESSION, core_job, offer, terms_for

DEADLINE_S = 60
END = Signer(b"\x21" * 32)
FEE = Signer(b"\x23" * 32)


def keys() -> Keys:
    """The adapter's keys."""
    return Keys(ADAPTER, END, FEE)


# ---- the host --------------------------------------------------------------------------------------


@dataclass
class Workload:
    """What the host keeps of one."""

    handle: Handle
    spec: WorkloadSpec
    state: WorkloadState = WorkloadState.RUNNING
    finished_ms: int | None = None
    exit_code: int | None = None
    reason: ExitReason | None = None
    log: bytes = b""


@dataclass
class World:
    """A host: outlives every adapter that runs on it."""

    clock: Clock = field(default_factory=HostClock)
    workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    starts: list[str] = field(default_factory=list[str])
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def end(self, lease: str, code: int, reason: ExitReason) -> None:
        """The workload exits by itself."""
        work = self.workloads[lease]
        if work.state is not WorkloadState.EXITED:
            work.state, work.exit_code, work.reason = WorkloadState.EXITED, code, reason
            work.finished_ms = self.clock.wall_ms()

    def usage(self, group: str) -> Usage | None:
        """The cgroup's counters: a workload that runs uses one core."""
        work = self.workloads.get(group)
        if work is None or work.state is WorkloadState.EXITED:
            return None
        return Usage(cpu_ns=self.clock.mono_ns(), memory_mib=10)


class HostRuntime:
    """``Runtime`` over a :class:`World`."""

    name = "process"

    def __init__(self, world: World) -> None:
        self.world = world

    def _get(self, handle: Handle) -> Workload:
        try:
            return self.world.workloads[handle.lease]
        except KeyError:
            raise WorkloadGone(f"no workload {handle.lease}") from None

    async def prepare(
        self, image: str, progress: Callable[[Progress], None], lease: str = ""
    ) -> str:
        progress(Progress(1, 1))
        return image

    async def start(self, spec: WorkloadSpec) -> Handle:
        known = self.world.workloads.get(spec.lease)
        if known is not None:
            return known.handle
        self.world.starts.append(spec.lease)
        id_ = f"w{next(self.world.numbers)}"
        handle = Handle(self.name, spec.lease, id_, self.world.clock.wall_ms(), cgroup=spec.lease)
        self.world.workloads[spec.lease] = Workload(handle, spec)
        return handle

    async def adopt(self) -> list[Handle]:
        return [work.handle for work in self.world.workloads.values()]

    async def status(self, handle: Handle) -> Status:
        work = self._get(handle)
        times = Times(work.handle.started_ms, work.finished_ms, work.exit_code)
        return Status(work.state, times, work.reason)

    async def pause(self, handle: Handle) -> None:
        work = self._get(handle)
        if work.state is WorkloadState.RUNNING:
            work.state = WorkloadState.PAUSED

    async def resume(self, handle: Handle) -> None:
        work = self._get(handle)
        if work.state is WorkloadState.PAUSED:
            work.state = WorkloadState.RUNNING

    async def stop(self, handle: Handle, grace_ms: int) -> Status:
        self._get(handle)
        self.world.end(handle.lease, 143, ExitReason.STOPPED)
        return await self.status(handle)

    async def logs(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        data = self._get(handle).log[offset : offset + limit]
        return LogChunk(offset, data, offset + len(data))

    async def exec(
        self, handle: Handle, command: tuple[str, ...], timeout_ms: int, limit: int
    ) -> ExecResult:
        return ExecResult(0, " ".join(command).encode())

    async def terminal(
        self, handle: Handle, command: tuple[str, ...], rows: int, columns: int
    ) -> Terminal:
        return LocalTerminal(command, rows, columns)

    async def outputs(self, handle: Handle, paths: tuple[str, ...], limit_mib: int) -> Outputs:
        return Outputs(Path("/nonexistent"), "sha256:" + "0" * 64, 0, 0)

    async def pids(self, handle: Handle) -> frozenset[int]:
        return frozenset()

    async def remove(self, handle: Handle) -> None:
        self.world.workloads.pop(handle.lease, None)


class HostGroups:
    """The cgroups of a :class:`World`, as far as the meter reads them."""

    def __init__(self, world: World) -> None:
        self.world = world

    def usage(self, group: str) -> Usage | None:
        return self.world.usage(group)


@dataclass
class HostInventory:
    """Eight cores."""

    def take(self) -> HostHardware:
        return HostHardware("h1", Cpu("cpu", 8, 8000), 32_768, 100_000)


class NoCleaner:
    """No devices to clean."""

    def cleanse(self, devices: tuple[str, ...]) -> None:
        """Nothing."""


# ---- the chain -------------------------------------------------------------------------------------


@dataclass
class Ledger:
    """Channels that are open, and the finishes that were asked for."""

    capacity: int = 10_000_000_000
    settled: list[bytes] = field(default_factory=list[bytes])
    stage: ChannelStage = ChannelStage.OPEN


class LedgerEye:
    """``ports.Chain`` over a :class:`Ledger`."""

    def __init__(self, ledger: Ledger, handle: Callable[[Event], Awaitable[None]]) -> None:
        self.ledger = ledger
        self.handle = handle
        self.wanted: set[bytes] = set()
        self.finishing: set[bytes] = set()
        self.stir = anyio.Event()

    def watch(self, session_vk: bytes) -> None:
        self.wanted.add(session_vk)
        self.stir.set()

    def examine(self, session_vk: bytes, tx: bytes) -> None:
        raise AssertionError("nothing was handed over")

    def settle(self, session_vk: bytes) -> None:
        self.finishing.add(session_vk)
        self.stir.set()

    def heard(self, message: wire.EndsProposed | wire.EndDeclined) -> None:
        raise AssertionError("nothing was offered")

    async def look(self) -> None:
        """One pass."""
        for vk in sorted(self.wanted - self.finishing):
            most = self.ledger.capacity
            await self.handle(Sighted(vk, self.ledger.stage, 0, most, most))
        for vk in sorted(self.finishing):
            if vk not in self.ledger.settled:  # a ledger takes a Finish once
                self.ledger.settled.append(vk)
            self.wanted.discard(vk)
            await self.handle(Settled(vk, "ee" * 32))
        self.finishing.clear()

    async def run(self) -> None:
        while True:
            self.stir = anyio.Event()
            await self.look()
            with anyio.move_on_after(0.5):
                await self.stir.wait()


# ---- the market ------------------------------------------------------------------------------------


@dataclass
class FakeMarket:
    """One provider socket, and a payer that answers as *pays* says."""

    pays: bool = True
    session: bytes = b"m" * 16
    heard: list[wire.Message] = field(default_factory=list[wire.Message])
    numberings: dict[tuple[bytes, bytes], Numbering] = field(
        default_factory=dict[tuple[bytes, bytes], Numbering]
    )
    port: int = 0
    server: Server | None = None
    socket: ServerConnection | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)
    vouchers: dict[bytes, Signer] = field(default_factory=lambda: {SESSION.verify_key: SESSION})

    async def serve(self, connection: ServerConnection) -> None:
        """One connection."""
        server = Server(
            42, b"n" * 32, self.session, self.numberings, origins(f"http://127.0.0.1:{self.port}")
        )
        try:
            async for frame in connection:
                assert isinstance(frame, bytes)
                frames, message = server.receive(frame, 0)
                for out in frames:
                    await connection.send(out)
                if server.phase is Phase.OPEN:
                    self.server, self.socket = server, connection
                    self.stir()
                if message is not None:
                    await connection.send(server.handled())
                    self.heard.append(message)
                    await self.answer(message)
                    self.stir()
        except ConnectionClosed:
            pass
        finally:
            if self.socket is connection:
                self.server = self.socket = None
                self.stir()

    def stir(self) -> None:
        """Wake whoever waits for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    async def answer(self, message: wire.Message) -> None:
        """The payer's part."""
        if isinstance(message, wire.ReceiptSent) and self.pays:
            receipt = message.receipt.receipt
            session = self.vouchers[receipt.session_vk]
            await self.send(
                wire.VoucherSent(message.lease, Voucher.sign(session, receipt.channel_owed))
            )

    async def send(self, message: wire.Message) -> None:
        """To the adapter."""
        assert self.server is not None and self.socket is not None
        await self.socket.send(self.server.send(message))

    async def wait(self, until: Callable[[], object], what: str = "") -> None:
        """Until *until* holds, within the deadline."""
        try:
            with anyio.fail_after(DEADLINE_S):
                while not until():
                    changed = self.changed
                    with anyio.move_on_after(0.2):
                        await changed.wait()
        except TimeoutError:
            seen = [self.describe(m) for m in self.heard[-20:]]
            raise AssertionError(
                f"waited in vain for {what or until}; heard last: {seen}"
            ) from None

    @staticmethod
    def describe(message: wire.Message) -> str:
        """For a failure's text."""
        stage = getattr(message, "stage", "")
        return f"{type(message).__name__} {stage} {getattr(message, 'detail', '')}"

    def of(self, kind: type[wire.Message]) -> list[wire.Message]:
        """Everything heard of one kind."""
        return [m for m in self.heard if isinstance(m, kind)]

    def stages(self, lease: str) -> list[str]:
        """The progress of a lease."""
        return [
            m.stage for m in self.heard if isinstance(m, wire.LeaseProgress) and m.lease == lease
        ]

    def receipts(self, lease: str | None = None) -> list[Receipt]:
        """Receipts in order, repetitions left out; a fork fails."""
        seen: dict[tuple[bytes, int], bytes] = {}
        found: list[Receipt] = []
        for m in self.heard:
            if isinstance(m, wire.ReceiptSent):
                receipt = m.receipt.verify(ADAPTER.verify_key)
                known = seen.setdefault((receipt.session_vk, receipt.seq), m.receipt.body)
                assert known == m.receipt.body, "the receipt chain forked"
                if receipt not in found and lease in (None, receipt.lease):
                    found.append(receipt)
        return found

    def verify(self, rates: dict[str, int]) -> None:
        """Every receipt follows from the one before."""
        last: dict[bytes, Receipt] = {}
        own: dict[str, Receipt] = {}
        for receipt in self.receipts():
            check_next(
                receipt, last.get(receipt.session_vk), own.get(receipt.lease), rates[receipt.lease]
            )
            last[receipt.session_vk] = own[receipt.lease] = receipt

    async def lease(
        self, supply: Offer, job: JobSpec | None = None, lease: str = "lease_1",
        session: Signer = SESSION, secrets: dict[str, bytes] | None = None, tx: str = "ab" * 32,
        **changes: object,
    ) -> None:  # fmt: skip
        """Propose, wait for the answer, sign."""
        job = job or core_job()
        wall = HostClock().wall_ms()
        terms = terms_for(supply, job, lease, session, expires_at_ms=wall + 60_000, **changes)
        await self.send(wire.LeaseProposed(lease, job, terms.encode()))
        answers = (wire.LeaseAccepted, wire.LeaseDeclined)
        await self.wait(
            lambda: any(isinstance(m, answers) and m.lease == lease for m in self.heard),
            "an answer to the proposal",
        )
        accepted = [m for m in self.heard if isinstance(m, wire.LeaseAccepted) and m.lease == lease]
        assert accepted, [m for m in self.heard if isinstance(m, wire.LeaseDeclined)]
        half = accepted[-1].terms
        both = SignedTerms(half.body, half.adapter_signature, session.sign(half.body))
        await self.send(wire.LeaseSigned(lease, both, tx, secrets or {}))

    async def end(self, session: Signer = SESSION) -> None:
        """The consumer ends the channel."""
        owed = max((r.channel_owed for r in self.receipts()), default=0)
        await self.send(wire.EndSent(End.sign(session, owed)))


@asynccontextmanager
async def market_socket(market: FakeMarket) -> AsyncGenerator[str]:
    """The market at a free port (or its own, when it comes back); its URL."""
    async with serve(market.serve, "127.0.0.1", market.port) as server:
        market.port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{market.port}"


# ---- the adapter -----------------------------------------------------------------------------------


def host_offer(**changes: object) -> Offer:
    """The world's offer: cores at 10 lovelace a second."""
    base = offer(host=HostInventory().take(), gpu_rates={}, isolation=tuple(Isolation)[:2])
    return replace(base, **changes)  # pyright: ignore[reportArgumentType]


_sessions = itertools.count(1)


def make_daemon(
    world: World,
    folder: Path,
    url: str,
    limits: Limits | None = None,
    journal: Journal | None = None,
    runtime: HostRuntime | None = None,
    make_offer: Callable[[], Offer] = host_offer,
    mesh: Mesh | None = None,
) -> Daemon:
    """An adapter on *world* with its journal in *folder*."""
    runtime = runtime or HostRuntime(world)
    parts = Parts(
        journal=journal or Journal(folder / "journal.db"),
        clock=world.clock,
        meters=Metering(world.clock, None, HostGroups(world)),  # pyright: ignore[reportArgumentType]
        inventory=HostInventory(),
        cleaner=NoCleaner(),
        runtimes={"process": runtime, "docker": runtime},
        mesh=mesh,
    )
    own = Own(host_offer(), ADAPTER, limits or Limits())
    session = next(_sessions).to_bytes(16, "big")
    return Daemon(parts, own, keys(), socket_link(url, own, session), (), make_offer)


@asynccontextmanager
async def running(daemon: Daemon, ledger: Ledger) -> AsyncGenerator[Daemon]:
    """The adapter while it lives; on leaving it is cut off as by a kill."""
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run, LedgerEye(ledger, daemon.handle))
        yield daemon
        group.cancel_scope.cancel()
    daemon.close()
