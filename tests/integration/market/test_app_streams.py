"""What flows through a port's own origin: events as they happen, parts of files, large uploads, and
one connection for many requests.
"""

from __future__ import annotations

import hashlib
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from adapter.daemon.transfers import MOST_STREAMS
from marketplace.hub.streams import MOST_REQUESTS
from tests.integration.market.test_app_origins import World, world
from tests.integration.market.test_ports import bearer

SIZE: Final = 16 << 20
PART: Final = b"01234567" * 8192


class Files:
    """A workload's server: events that wait for each other, a file with ranges, an upload's hash."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.now = self.most = 0  # requests at once
        self.full = anyio.Event()  # as many as one lease may have are here together
        self.read = anyio.Event()  # the first event is at the client
        self.left = anyio.Event()  # somebody hung up in the middle of an endless answer

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        """One connection, one request."""
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            self.heads.append(head.decode().lower())
            await getattr(self, head.decode().split(" ")[1].strip("/"))(stream, head, body)

    async def events(self, stream: anyio.abc.SocketStream, _: bytes, __: bytes) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await self.read.wait()
        await stream.send(b"data: 2\n\n")

    async def file(self, stream: anyio.abc.SocketStream, head: bytes, _: bytes) -> None:
        if b"range: bytes=8-15" in head.lower():
            said = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 8-15/65536\r\n"
            await stream.send(
                said + b"Content-Length: 8\r\nAccept-Ranges: bytes\r\n\r\n" + PART[8:16]
            )
            return
        whole = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 65536\r\n\r\n'
        await stream.send(whole + (b"" if head.startswith(b"HEAD") else PART))

    async def upload(self, stream: anyio.abc.SocketStream, _: bytes, body: bytes) -> None:
        size, seen = len(body), hashlib.sha256(body)
        while size < SIZE:
            part = await stream.receive()
            seen.update(part)
            size += len(part)
        said = seen.hexdigest().encode()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + said)

    async def slow(self, stream: anyio.abc.SocketStream, _: bytes, __: bytes) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == MOST_REQUESTS:
            self.full.set()
        with anyio.fail_after(60):
            await self.full.wait()
        await anyio.sleep(0.05)  # whoever came beyond them would be here by now
        self.now -= 1
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def endless(self, stream: anyio.abc.SocketStream, _: bytes, __: bytes) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                await stream.send(PART)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.left.set()


def test_events_parts_and_uploads_flow_and_a_hang_up_is_heard(tmp_path: Path) -> None:
    async def run() -> None:
        files = Files()
        async with world(tmp_path, files) as w, w.browser() as browser:
            browser.headers["Authorization"] = f"Bearer {bearer(w.client)}"
            async with browser.stream("GET", "/events") as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "data: 1"  # before there is a second
                files.read.set()
                assert [line async for line in lines if line] == ["data: 2"]

            part = await browser.get("/file", headers={"Range": "bytes=8-15"})
            assert (part.status_code, part.content) == (206, PART[8:16])
            assert part.headers["content-range"] == "bytes 8-15/65536"
            head = await browser.head("/file")
            assert (head.headers["content-length"], head.content) == ("65536", b"")
            await _many_on_one_connection(w)

            async def slowly():
                for at in range(0, SIZE, len(PART)):
                    yield PART[: min(len(PART), SIZE - at)]

            whole = hashlib.sha256(PART * (SIZE // len(PART))).hexdigest()
            for content in (slowly(), PART * (SIZE // len(PART))):  # chunked, and of a told length
                length = {} if isinstance(content, bytes) else {"Content-Length": str(SIZE)}
                sent = await browser.put("/upload", content=content, headers=length)
                assert sent.text == whole

            async with browser.stream("GET", "/endless") as answer:
                assert await anext(answer.aiter_raw())
            with anyio.fail_after(60):
                await files.left.wait()

    anyio.run(run)


async def _many_on_one_connection(w: World) -> None:
    """As browsers do: it is kept open between requests."""

    def ask() -> None:
        base = w.client.base_url
        connection = HTTPConnection(base.host, base.port or 80, timeout=60)
        headers = {"Host": w.host(), "Authorization": f"Bearer {bearer(w.client)}"}
        socket = None
        for _ in range(5):
            connection.request("GET", "/file", headers=headers)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, PART)
            assert socket in (None, connection.sock) and connection.sock is not None
            socket = connection.sock
        connection.close()

    await anyio.to_thread.run_sync(ask)


def test_what_comes_at_once_is_answered_in_turn_and_not_refused(tmp_path: Path) -> None:
    """An adapter opens no more than 64 streams of a lease: the market holds what is beyond it."""

    async def run() -> None:
        files, seen = Files(), list[int]()
        async with world(tmp_path, files) as w, w.browser(7777) as browser:

            async def ask() -> None:
                seen.append((await browser.get("/slow")).status_code)

            async with anyio.create_task_group() as tasks:
                for _ in range(3 * MOST_REQUESTS):
                    tasks.start_soon(ask)
            assert seen == 3 * MOST_REQUESTS * [200]
            assert files.most == MOST_REQUESTS < MOST_STREAMS
            assert (
                not w.market.parts.hub.streams.slots
            )  # nothing is kept of a lease that nobody asks

    anyio.run(run)
