"""Connections to a workload: kept between requests where nothing can go wrong by it, as fast as the
slower end, and never in the way of what else its provider says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import pytest
from starlette.requests import Request
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from marketplace.gateway import http_stream
from marketplace.gateway.faces import OwnOrigin
from marketplace.gateway.tunnel import Tunnel
from marketplace.hub import streams
from marketplace.hub.pace import Pace
from tests.fakes import until
from tests.integration.market.test_app_origins import World, world
from tests.integration.market.test_ports import Bridge

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
LARGE: Final = 32 << 20
PART: Final = bytes(range(256)) * 256
SOCKETS: Final = 200


class Server:
    """Answers with the number of the connection, for as many requests as come over it; one at a
    time if *alone*.
    """

    def __init__(self, alone: bool = False) -> None:
        self.asked: list[tuple[int, str]] = []
        self.connections = self.over = 0
        self.after: Callable[[anyio.abc.SocketStream], Awaitable[None]] | None = None
        self._turn = anyio.Lock() if alone else None

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        if self._turn is None:
            await self._converse(stream)
        else:
            async with self._turn:
                await self._converse(stream)

    async def _converse(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        mine = self.connections
        async with stream:
            data = b""
            try:
                while True:
                    while b"\r\n\r\n" not in data:
                        data += await stream.receive()
                    head, _, data = data.partition(b"\r\n\r\n")
                    self.asked.append((mine, head.decode().lower()))
                    data = b""
                    said = b"" if head.startswith(b"HEAD") else f"{mine:02}".encode()
                    await stream.send(OK + said)
                    if b"connection: close" in head.lower():
                        return
                    if self.after is not None:
                        await self.after(stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            finally:
                self.over += 1


def story(tmp_path: Path, server: object, told: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with world(tmp_path, server) as w:
            w.market.parts.hub.hub.pace = Pace(1 << 30, 1 << 30)  # which holds for strangers
            with anyio.fail_after(60):
                await told(w)

    anyio.run(run)


def test_reads_go_over_one_connection_and_writes_over_their_own(tmp_path: Path) -> None:
    server = Server(alone=True)  # a second connection would wait for the first one's end

    async def told(w: World) -> None:
        async with w.browser(7777) as browser:
            for _ in range(3):
                assert (await browser.get("/")).text == "01"
            assert (await browser.head("/")).status_code == 200
            assert (await browser.get("/")).text == "01"  # an answer without a body kept its place
            assert (await browser.post("/", content=b"x=1")).text == "02"
            assert (await browser.get("/")).text == "03"
            # One of the workload's own names: some servers know a connection by who began it.
            assert (await browser.get("/", auth=("me", "secret"))).text == "04"
            assert (await browser.get("/")).text == "05"
        assert [n for n, head in server.asked if "connection: close" in head] == [2, 4]

    story(tmp_path, server, told)


def test_a_connection_that_was_kept_too_long_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "IDLE_S", 0.0)
    server = Server()

    async def told(w: World) -> None:
        async with w.browser(7777) as browser:
            assert (await browser.get("/")).text == "01"
            assert (await browser.get("/")).text == "02"
            await until(lambda: server.over == 2)  # nobody asks, and it is closed all the same

    story(tmp_path, server, told)


def test_what_hung_up_between_two_requests_is_asked_anew(tmp_path: Path) -> None:
    server = Server()

    async def told(w: World) -> None:
        left = anyio.Event()

        async def hang_up(stream: anyio.abc.SocketStream) -> None:
            """As a server does whose patience is over: with the next request, before any answer."""
            left.set()
            await stream.receive()
            await stream.aclose()

        server.after = hang_up
        async with w.browser(7777) as browser:
            assert (await browser.get("/")).text == "01"
            await left.wait()
            assert (await browser.get("/")).text == "02"

    story(tmp_path, server, told)


def test_an_answer_that_nobody_asked_for_is_given_to_nobody(tmp_path: Path) -> None:
    """A workload may not put words into the answer to its next visitor's question."""
    server = Server()

    async def told(w: World) -> None:
        said = anyio.Event()

        async def unasked(stream: anyio.abc.SocketStream) -> None:
            await stream.send(OK + b"no")
            said.set()

        server.after = unasked
        async with w.browser(7777) as browser:
            for _ in range(3):
                said = anyio.Event()
                assert (await browser.get("/")).text != "no"
                await said.wait()

    story(tmp_path, server, told)


class Slow:
    """A large answer, and an upload, at the pace of whoever reads."""

    def __init__(self) -> None:
        self.given = self.taken = 0
        self.read = anyio.Event()
        self.seen = hashlib.sha256()

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            if head.startswith(b"GET /large"):
                await stream.send(f"HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n".encode())
                while self.given < LARGE:
                    await stream.send(PART)
                    self.given += len(PART)
            elif head.startswith(b"PUT"):
                await self.read.wait()
                self.seen.update(body)
                self.taken = len(body)
                while self.taken < LARGE:
                    part = await stream.receive()
                    self.seen.update(part)
                    self.taken += len(part)
                await stream.send(OK + b"ok")
            else:
                await stream.send(OK + b"ok")


WHOLE: Final = hashlib.sha256(PART * (LARGE // len(PART))).hexdigest()


async def stands(of: Callable[[], int]) -> None:
    """Until *of* has not moved for a while."""
    before, still = -1, 0
    while still < 20:
        still = still + 1 if of() == before else 0
        before = of()
        await anyio.sleep(0.05)


def test_a_visitor_who_reads_slowly_gets_all_of_it_and_holds_up_nobody(tmp_path: Path) -> None:
    server = Slow()

    async def told(w: World) -> None:
        async with w.browser(7777) as browser, browser.stream("GET", "/large") as answer:
            parts, seen = answer.aiter_raw(), hashlib.sha256()
            seen.update(await anext(parts))
            await stands(lambda: server.given)
            assert server.given < LARGE  # it waits at the workload, not in the market
            async with w.browser(7777) as other:
                assert (await other.get("/")).text == "ok"
            async for part in parts:
                seen.update(part)
            assert seen.hexdigest() == WHOLE

    story(tmp_path, server, told)


def test_a_workload_that_reads_slowly_gets_all_of_it_and_holds_up_nobody(tmp_path: Path) -> None:
    server = Slow()

    async def told(w: World) -> None:
        sent = 0

        async def body():
            nonlocal sent
            while sent < LARGE:
                yield PART
                sent += len(PART)

        async def look() -> None:
            await stands(lambda: sent)
            assert 0 < sent < LARGE
            async with w.browser(7777) as other:
                assert (await other.get("/")).text == "ok"
            server.read.set()

        async with w.browser(7777) as browser, anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            length = {"Content-Length": str(LARGE)}
            answer = await browser.put("/upload", content=body(), headers=length)
            assert answer.text == "ok"
        assert server.seen.hexdigest() == WHOLE

    story(tmp_path, server, told)


def test_a_part_is_not_taken_for_the_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that ends with its connection, and whose provider goes away in the middle."""

    async def server(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
            await anyio.sleep_forever()

    async def told(w: World) -> None:
        async with w.browser(7777) as browser, browser.stream("GET", "/") as answer:
            parts = answer.aiter_raw()
            assert await anext(parts) == b"first"
            assert w.one.socket.live is not None
            w.one.socket.stopped = True
            await w.one.socket.live.close()
            with pytest.raises(Exception, match=r"(?i)incomplete|closed|peer"):
                await anext(parts)

    story(tmp_path, server, told)
    assert not [one for one in caplog.records if one.exc_info]  # a workload may do so at will


def test_two_hundred_websockets_at_once_and_a_page_beside_them(tmp_path: Path) -> None:
    async def told(w: World) -> None:
        async def echo(socket: ServerConnection) -> None:
            async for message in socket:
                await socket.send(message)

        bridge, at, spoken = w.one.handler, w.client.base_url, 0
        assert isinstance(bridge, Bridge)
        all_there = anyio.Event()

        async def talk(number: int) -> None:
            nonlocal spoken
            dialled = {"host": at.host, "port": at.port, "proxy": None}
            async with connect(f"ws://{w.host(7777)}/ws", open_timeout=60, **dialled) as socket:
                for turn in range(2):
                    said = f"{number}.{turn}"
                    await socket.send(said)
                    assert await socket.recv() == said
                    spoken += 1
                    if spoken == SOCKETS:
                        all_there.set()
                    await all_there.wait()

        async with serve(echo, "127.0.0.1", 0) as sockets, anyio.create_task_group() as tasks:
            page, bridge.ports.port = (
                bridge.ports.port,
                next(iter(sockets.sockets)).getsockname()[1],
            )
            for number in range(SOCKETS):
                tasks.start_soon(talk, number)
            await all_there.wait()
            bridge.ports.port = page
            async with w.browser(7777) as browser:
                assert (await browser.get("/")).text == "01"
        assert spoken == 2 * SOCKETS
        await until(lambda: len(bridge.open) <= 1)  # the page's, which waits for its next request

    story(tmp_path, Server(), told)


LONG: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nfirst"


@pytest.mark.parametrize("said", [OK + b"ok", LONG], ids=["at hand", "streamed"])
def test_who_leaves_before_the_first_byte_leaves_nothing_behind(
    tmp_path: Path, said: bytes
) -> None:
    """A visitor who reads nothing, asks for more behind it and goes: else he takes all the turns of
    a page that is open to everybody, one by one. What is here as a whole takes none while he reads.
    """

    async def server(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(said)
            await anyio.sleep_forever()

    async def told(w: World) -> None:
        hub, (lease,) = w.market.parts.hub, w.one.leases
        host = w.host(7777)
        scope = {
            "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"",
            "headers": [(b"host", host.encode())], "asgi": {"version": "3.0"},
        }  # fmt: skip

        async def leaves() -> dict[str, str]:
            return {"type": "http.disconnect"}

        async def waits(_: object) -> None:
            await anyio.sleep_forever()

        tunnel = Tunnel(hub, w.one.signer.verify_key.hex(), lease, 7777)
        face = OwnOrigin("http", host)
        response = await http_stream.answer(Request(scope), tunnel, "/", face)
        streamed = said == LONG
        assert bool(hub.streams.slots) is streamed
        with anyio.move_on_after(0.5):  # what is at hand waits until the server takes it
            await response(scope, leaves, waits)
        del response
        assert not hub.streams.slots
        assert bool(hub.streams.live) is not streamed  # one waits for the next request

    story(tmp_path, server, told)
