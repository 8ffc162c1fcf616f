"""Today's adapter and payer at a market of the version before capabilities, over real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from adapter.daemon.link import Link as AdapterLink
from marketplace.client.net.link import Link as PayerLink
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Client, Numbering, Server
from marketplace.domain.site import origin_of
from tests.fakes import until

DECLINED = wire.LeaseDeclined("lease_1", "A_CODE", "a message", "a remedy")
PLAIN = wire.LeaseDeclined("lease_1", "A_CODE", "a message")


class OlderMarket:
    """Refuses frames that hold an optional field, as every market did before there were any."""

    def __init__(self) -> None:
        self.heard: list[wire.Message] = []
        self.refused = 0
        self.url = ""

    async def serve(self, connection: ServerConnection) -> None:
        server = Server(42, b"n" * 32, b"m" * 16, {}, (origin_of(self.url),))
        try:
            async for frame in connection:
                assert isinstance(frame, bytes)
                frames, message = server.receive(self.exact(frame), 0)
                if message is not None:
                    self.exact(codec.to_bytes(message))
                    self.heard.append(message)
                    frames.append(server.handled())
                for out in frames:
                    await connection.send(self.exact(out))
        except Refusal as no:
            self.refused += 1
            answer = wire.Rejected(no.code, no.message, no.remedy)
            await connection.send(codec.to_bytes(answer))
        except ConnectionClosed:
            pass

    def exact(self, frame: bytes) -> bytes:
        message = codec.from_bytes(frame)
        if codec.to_bytes(message, optional=False) != frame:
            raise Malformed(f"{type(message).__name__} has other fields")
        return frame


class Heard:
    """Listener of an adapter's link, handler of a payer's."""

    async def connected(self) -> None: ...
    async def disconnected(self) -> None: ...
    async def heard(self, message: wire.Message) -> None: ...
    async def acknowledged(self, numbers: list[int]) -> None: ...
    async def handle(self, message: wire.Message) -> None: ...
    async def opened(self) -> None: ...


def at_older(story: Callable[[OlderMarket], Awaitable[None]]) -> None:
    async def main() -> None:
        market = OlderMarket()
        async with serve(market.serve, "127.0.0.1", 0) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            market.url = f"http://127.0.0.1:{port}"
            with anyio.fail_after(60):
                await story(market)
        assert market.heard == [PLAIN] and market.refused == 1

    anyio.run(main)


def test_an_adapter_is_heard_by_an_older_market() -> None:
    async def story(market: OlderMarket) -> None:
        client = Client(
            "adapter", Signer(b"a" * 32), 42, "test", Numbering(b"s" * 16), origin_of(market.url)
        )
        link = AdapterLink(market.url, client, Heard())
        link.send(DECLINED)  # before there is a connection: what is kept is whole
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            await until(lambda: not link.backlog)
            tasks.cancel_scope.cancel()

    at_older(story)


def test_a_payer_is_heard_by_an_older_market_and_told_of_no_refusal() -> None:
    told: list[Refusal] = []

    async def refused(refusal: Refusal) -> None:
        told.append(refusal)

    async def story(market: OlderMarket) -> None:
        link = PayerLink(market.url, 42, Heard())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run, refused)
            await link.open.wait()
            await link.send(DECLINED)
            await until(lambda: market.heard)
            tasks.cancel_scope.cancel()

    at_older(story)
    assert told == []
