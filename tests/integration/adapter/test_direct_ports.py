"""The host's own ports that lead to workloads, over real sockets: who comes in, when, and where to."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from adapter.core.state import Direct, Limits
from adapter.core.workload import Handle
from adapter.daemon import direct_ports
from adapter.daemon.daemon import Daemon
from marketplace.domain.isolation import Isolation
from marketplace.domain.protocol import wire
from marketplace.domain.work.direct_port import STAGE, DirectPorts
from marketplace.domain.work.parts import Placement, Port
from marketplace.domain.work.workload import ExitReason, WorkloadSpec
from tests.fakes import until
from tests.integration.support.adapter import (
    FakeMarket,
    HostRuntime,
    Ledger,
    World,
    host_offer,
    make_daemon,
    market_socket,
    running,
)
from tests.unit.support.adapter import ADAPTER, core_job

pytestmark = pytest.mark.anyio
HERE, COUNT = "127.0.0.1", 4
JOB = replace(
    core_job(),
    image="sha256:" + "a" * 64,
    placement=Placement(isolation=Isolation.CONTAINER),
    ports=(Port(3001, direct=True),),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def free_block() -> int:
    """The first of some ports in a row that nobody has."""
    for first in range(21_000, 32_000, COUNT):
        held = [socket.socket() for _ in range(COUNT)]
        try:
            for at, one in enumerate(held):
                one.bind((HERE, first + at))
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
        return first
    raise AssertionError("no ports are free")


class Listening(HostRuntime):
    """Its workloads listen at *place*."""

    place: tuple[str, int] = (HERE, 1)

    async def start(self, spec: WorkloadSpec) -> Handle:
        handle = await super().start(spec)
        handle.ports.update(dict.fromkeys(spec.ports, self.place))
        return handle


@dataclass
class Stage:
    """A host, its market and its chain; *first* is the first of its direct ports."""

    folder: Path
    first: int = field(default_factory=free_block)
    world: World = field(default_factory=World)
    ledger: Ledger = field(default_factory=Ledger)
    market: FakeMarket = field(default_factory=FakeMarket)

    @asynccontextmanager
    async def adapter(self, url: str) -> AsyncGenerator[Daemon]:
        where = Direct(HERE, self.first, COUNT, HERE)
        runtime = Listening(self.world)
        made = make_daemon(self.world, self.folder, url, Limits(direct=where), runtime=runtime)
        async with running(made, self.ledger) as daemon:
            yield daemon

    def told(self) -> list[DirectPorts]:
        """What the consumer was told of where."""
        heard = [m for m in self.market.heard if isinstance(m, wire.LeaseProgress)]
        found = [m for m in heard if m.stage == STAGE]
        return [DirectPorts.from_story(m.lease, m.detail) for m in found]

    async def lease(self) -> None:
        await self.market.lease(host_offer(), JOB)
        await self.market.wait(lambda: "STARTED" in self.market.stages("lease_1"), "the start")

    async def reached(self) -> bool:
        """Whether a stranger who connects is answered."""
        try:
            return await said(self.first, b"hello") == b"HELLO"
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False

    async def shut(self) -> bool:
        return not await self.reached()


async def said(port: int, text: bytes) -> bytes:
    """Everything that comes back for *text* and the end of it."""
    async with await anyio.connect_tcp(HERE, port) as stream:
        await stream.send(text)
        await stream.send_eof()
        return b"".join([part async for part in stream])


@asynccontextmanager
async def workload() -> AsyncGenerator[list[anyio.abc.SocketStream]]:
    """A program that answers in capitals once it has heard all; who is with it now."""
    there: list[anyio.abc.SocketStream] = []

    async def answer(stream: anyio.abc.SocketStream) -> None:
        there.append(stream)
        try:
            async with stream:
                heard = b"".join([part async for part in stream])
                await stream.send(heard.upper())
        except anyio.BrokenResourceError:
            pass
        finally:
            there.remove(stream)

    listener = await anyio.create_tcp_listener(local_host=HERE)
    Listening.place = (HERE, listener.extra(anyio.abc.SocketAttribute.local_port))
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield there
        group.cancel_scope.cancel()


async def test_who_connects_reaches_the_workload_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    """Also while the market is away, and after the adapter was killed: at the same port."""
    at = Stage(tmp_path)
    async with workload():
        async with market_socket(at.market) as url:
            async with at.adapter(url):
                await at.market.wait(lambda: at.market.of(wire.LeasesHeld))
                assert not await at.reached()
                await at.lease()
                await until(at.reached)
                whole = bytes(range(97, 123)) * 200_000
                assert await said(at.first, whole) == whole.upper()
            assert not await at.reached()  # it was killed
            async with at.adapter(url):
                await until(at.reached)
                await at.market.wait(lambda: len(at.market.receipts()) >= 3, "receipts")
                assert at.world.starts == ["lease_1"]
                at.world.end("lease_1", 0, ExitReason.COMPLETED)
                await until(at.shut)
        (told,) = at.told()
        told.verify(ADAPTER.verify_key)
        assert told.places == {3001: f"{HERE}:{at.first}"}


async def test_a_port_that_another_program_holds_is_the_owners_to_free(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    with socket.socket() as other:
        other.bind((HERE, at.first))
        other.listen()
        async with workload(), market_socket(at.market) as url, at.adapter(url) as daemon:
            await at.market.wait(lambda: at.market.of(wire.LeasesHeld))
            await at.lease()
            await until(lambda: "DIRECT_PORT_BUSY" in [code for _, code, _ in daemon.alarms])
            assert at.told() == []
            other.close()
            await until(at.reached)
            await at.market.wait(at.told, "where")


async def test_strangers_who_break_off_or_come_in_crowds_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_ports, "MOST_CONNECTIONS", 3)
    at = Stage(tmp_path)
    async with workload() as there, market_socket(at.market) as url, at.adapter(url) as daemon:
        await at.market.wait(lambda: at.market.of(wire.LeasesHeld))
        await at.lease()
        await until(at.reached)
        held: list[socket.socket] = []
        for _ in range(3):
            one = socket.create_connection((HERE, at.first))
            one.send(b"half")
            held.append(one)
        await until(lambda: len(there) == 3)
        assert not await at.reached()  # one too many is shut out, and nobody else
        for one in held:  # a reset, not an end
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        await until(lambda: not there)
        await until(at.reached)
        monkeypatch.setattr(Listening, "place", (HERE, 1))
        lease = daemon.lease("lease_1")
        assert lease is not None and lease.handle is not None
        lease.handle.ports[3001] = (HERE, 1)  # nobody listens there
        await until(at.shut)
        assert len(at.market.receipts()) > 0 and lease.runs


async def test_a_host_out_of_files_opens_its_port_again_and_meters_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What strangers do to the port is an alarm, and no end of the adapter."""
    at, failed = Stage(tmp_path), anyio.Event()
    async with workload(), market_socket(at.market) as url, at.adapter(url) as daemon:
        await at.market.wait(lambda: at.market.of(wire.LeasesHeld))
        await at.lease()
        await until(at.reached)
        loop, accept = asyncio.get_running_loop(), asyncio.get_running_loop().sock_accept

        async def none_left(sock: socket.socket) -> Any:
            if sock.getsockname()[1] == at.first and not failed.is_set():
                failed.set()
                raise OSError(errno.EMFILE, "too many open files")
            return await accept(sock)

        monkeypatch.setattr(loop, "sock_accept", none_left)
        await at.reached()  # what waits in accept already is served; the next one fails
        await failed.wait()
        await until(lambda: "DIRECT_PORT_FAILED" in [code for _, code, _ in daemon.alarms])
        await until(at.reached)
        seen = len(at.market.receipts())
        await at.market.wait(lambda: len(at.market.receipts()) > seen + 1, "receipts")


async def test_all_ports_together_leave_files_for_the_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_ports, "KEPT_FILES", 100)
    made = direct_ports.DirectPorts(cast(Any, None), files=104)
    at = Stage(tmp_path)
    async with workload() as there, market_socket(at.market) as url, at.adapter(url) as daemon:
        monkeypatch.setattr(made, "_host", daemon)
        monkeypatch.setattr(daemon, "_direct", made)
        await at.market.wait(lambda: at.market.of(wire.LeasesHeld))
        await at.lease()
        await until(at.reached)
        held = [socket.create_connection((HERE, at.first)) for _ in range(2)]
        await until(lambda: len(there) == 2)
        assert not await at.reached()
        for one in held:
            one.close()
        await until(at.reached)
