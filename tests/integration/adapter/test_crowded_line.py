"""The line to the market carries receipts: what a visitor or a workload sends over it waits."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, Final, cast

import anyio
import anyio.abc
import pytest

from adapter.core.workload import LogChunk
from adapter.daemon.link import BULK, Link
from adapter.daemon.transfers import LOG_PART, STREAM_MOST, Transfers
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, flow, wire
from marketplace.domain.protocol.conversation import Client, Numbering, Phase

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PART: Final = bytes(1 << 16)


class Talkative:
    """A workload that writes a log without end."""

    async def logs(self, _handle: object, offset: int, most: int) -> LogChunk:
        return LogChunk(offset, bytes(most), offset + most)


def line() -> tuple[Link, Numbering]:
    """To a market that has welcomed us and acknowledges nothing, as a slow line looks."""
    numbering = Numbering(b"s" * 16)
    client = Client("adapter", Signer(b"a" * 32), 42, "test", numbering, "http://market")
    client.phase = Phase.OPEN
    return Link("http://market", client, cast(Any, None)), numbering


async def test_pages_wait_while_a_receipt_would_come_late() -> None:
    given = 0

    async def endless(stream: anyio.abc.SocketStream) -> None:
        nonlocal given
        async with stream:
            while True:
                await stream.send(PART)
                given += len(PART)

    link, numbering = line()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, endless)
        place = ("127.0.0.1", listener.extra(anyio.abc.SocketAttribute.local_port))
        lease = cast(Any, SimpleNamespace(handle=SimpleNamespace(ports={80: place}), runs=True))
        transfers = Transfers(link, (), cast(Any, None), lambda _: lease, lambda: ())
        for name in ("one", "two", "three"):
            opened = wire.StreamOpened("lease", name, 80)
            incoming = transfers.open(opened)
            assert incoming is not None
            tasks.start_soon(transfers.carry, opened, incoming)
        before = -1
        while given != before:  # until it stands
            before = given
            await anyio.sleep(0.5)
        assert link.crowded and link.backlog < BULK
        assert numbering.waiting_bytes < flow.LINE_MOST + 4 * len(PART)
        tasks.cancel_scope.cancel()


async def test_logs_wait_as_well() -> None:
    link, numbering = line()
    lease = cast(Any, SimpleNamespace(id="lease", handle=object()))
    transfers = Transfers(link, (), cast(Any, lambda _: Talkative()), lambda _: lease, lambda: ())
    assert await transfers.pump(lease, 0) == (flow.LINE_MOST // LOG_PART * LOG_PART, False)
    assert numbering.waiting_bytes < flow.LINE_MOST + 2 * LOG_PART


@pytest.mark.parametrize(("agreed", "most"), [((codec.FLOW,), flow.WINDOW), ((), STREAM_MOST)])
def test_a_market_cannot_fill_the_memory_of_a_provider(agreed: tuple[str, ...], most: int) -> None:
    """It opens connections and sends; the workload reads nothing."""
    link, numbering = line()
    numbering.agreed = frozenset(agreed)
    transfers = Transfers(link, (), cast(Any, None), lambda _: None, lambda: ())
    incoming = transfers.open(wire.StreamOpened("lease", "one", 80))
    assert incoming is not None
    for _ in range(most // len(PART) + 50):
        transfers.stream_data(wire.StreamData("lease", "one", PART))
    held = 0
    with contextlib.suppress(anyio.EndOfStream, anyio.WouldBlock):
        while True:
            held += flow.cost(incoming.receive_nowait())
    assert most <= held < most + flow.cost(PART)
    incoming.close()
