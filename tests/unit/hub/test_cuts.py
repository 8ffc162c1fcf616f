"""A connection that breaks while one of its messages is being handled loses none, and one whose
client says what this market does not know yet goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import cbor2

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Client, Numbering
from marketplace.hub.sockets import Closed, Connection, Hub
from marketplace.market.state.counted_channels import Paying
from tests.fakes import FakeIds, until

ADAPTER = Signer(b"a" * 32)
AT = "https://market.example"


def note(i: int) -> wire.Message:
    return wire.LeaseDeclined(f"lease_{i}", "CODE", "text")


@dataclass(eq=False)
class Line:
    """A socket in memory; ``cut`` is the peer's going away, which only a writer notices."""

    client: Client
    to_hub: Any = None
    from_hub: Any = None
    broken: bool = False
    closed: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.send_hub, self.to_hub = anyio.create_memory_object_stream[bytes](100)

    async def receive(self) -> bytes:
        try:
            return await self.to_hub.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise Closed from None

    async def send(self, frame: bytes) -> None:
        if self.broken:
            raise Closed
        answers, _ = self.client.receive(frame)
        for answer in answers:
            await self.send_hub.send(answer)

    def proven(self) -> None:
        pass

    async def close(self) -> None:
        self.send_hub.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.send_hub.close()
        self.to_hub.close()

    def say(self, message: wire.Message) -> None:
        self.send_hub.send_nowait(self.client.send(message))


class Rig:
    """A hub whose handler waits for leave before each message."""

    def __init__(self) -> None:
        self.leave = anyio.Event()
        self.begun: list[str] = []
        self.done: list[str] = []
        ids = FakeIds()
        market: Any = SimpleNamespace(
            settings=SimpleNamespace(magic=42), ids=ids, now=0, names=(AT,), paying=Paying()
        )
        self.hub = Hub(market, "adapter", self.handle)

    async def handle(self, _: Connection, message: wire.Message) -> None:
        assert isinstance(message, wire.LeaseDeclined)
        self.begun.append(message.lease)
        await self.leave.wait()
        self.done.append(message.lease)


def test_what_was_being_handled_when_the_line_broke_is_done() -> None:
    async def story() -> None:
        rig = Rig()
        client = Client("adapter", ADAPTER, 42, "test", Numbering(b"s" * 16), AT)
        with Line(client) as first, Line(client) as second:
            await told(rig, client, first, second)
        assert rig.done == ["lease_1", "lease_2"]

    async def told(rig: Rig, client: Client, first: Line, second: Line) -> None:
        async with anyio.create_task_group() as tasks:
            first.send_hub.send_nowait(client.connected())
            tasks.start_soon(rig.hub.serve, first)
            await until(lambda: ADAPTER.verify_key in rig.hub.live)
            first.say(note(1))
            await until(lambda: rig.begun)
            first.broken = True
            rig.hub.tell(ADAPTER.verify_key, note(9))  # the writer finds the line broken
            await anyio.lowlevel.checkpoint()
            second.send_hub.send_nowait(client.connected())
            tasks.start_soon(rig.hub.serve, second)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            rig.leave.set()
            await until(lambda: client.phase.name == "OPEN")
            second.say(note(2))
            await until(lambda: "lease_2" in rig.done)
            tasks.cancel_scope.cancel()

    anyio.run(story)


def test_a_message_of_an_unknown_kind_is_acknowledged_and_the_next_is_handled() -> None:
    async def story() -> None:
        rig = Rig()
        rig.leave.set()
        client = Client("adapter", ADAPTER, 42, "test", Numbering(b"s" * 16), AT)
        with Line(client) as line:
            async with anyio.create_task_group() as tasks:
                line.send_hub.send_nowait(client.connected())
                tasks.start_soon(rig.hub.serve, line)
                await until(lambda: client.phase.name == "OPEN")
                for seq, payload in (
                    (1, cbor2.dumps([codec.VERSION, "Later", {"x": 1}])),
                    (2, codec.to_bytes(note(2))),
                ):
                    client.numbering.sent = seq
                    client.numbering.unacked.append((seq, payload))
                    line.send_hub.send_nowait(codec.to_bytes(wire.Data(seq, payload)))
                await until(lambda: not client.numbering.unacked)
                tasks.cancel_scope.cancel()
        assert rig.done == ["lease_2"]

    anyio.run(story)
