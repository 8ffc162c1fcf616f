"""A service's port through the market: HTTP, websockets, tokens, and nothing leaking inside."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.abc
import httpx
import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.frames import Close

from adapter.daemon.transfers import Incoming, Transfers
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import flow, wire
from marketplace.domain.work.parts import Port
from tests.fakes import FakeAdapter, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import quoted, sign, state


class Wire:
    """The fake adapter's line, as the real one's transfers see theirs."""

    up = True

    def __init__(self, fake: FakeAdapter, tasks: Any) -> None:
        self.fake = fake
        self._send, self._messages = anyio.create_memory_object_stream[wire.Message](math.inf)
        tasks.start_soon(self._write)

    @property
    def crowded(self) -> bool:
        return self.fake.socket.client.numbering.waiting_bytes >= flow.LINE_MOST

    def send(self, message: wire.Message, number: int | None = None) -> None:
        # A line that has ended takes what is said, as the real one does: the next welcome would
        # carry it.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._send.send_nowait(message)

    def can(self, capability: str) -> bool:
        return capability in self.fake.socket.client.numbering.agreed

    async def room(self) -> None:
        await until(lambda: not self.crowded)

    async def _write(self) -> None:
        with self._send, self._messages:
            async for message in self._messages:
                await self.fake.send(message)


class Bridge:
    """Ports of the fake adapter's workload: the real one's streams, to a server of this test."""

    def __init__(self, fake: FakeAdapter, tasks: Any, port: int) -> None:
        self.tasks, self.open, self.ports = tasks, set[str](), Everywhere(port)
        lease = SimpleNamespace(handle=SimpleNamespace(ports=self.ports), runs=True)
        self.transfers = Transfers(
            Wire(fake, tasks), (), cast(Any, None), lambda _: cast(Any, lease), lambda: ()
        )

    async def __call__(self, message: wire.Message) -> None:
        match message:
            case wire.StreamOpened():
                incoming = self.transfers.open(message)
                if incoming is not None:
                    self.open.add(message.stream_id)
                    self.tasks.start_soon(self._carry, message, incoming)
            case wire.StreamData():
                self.transfers.stream_data(message)
            case wire.StreamTaken():
                self.transfers.stream_taken(message)
            case wire.StreamClosed():
                self.transfers.stream_closed(message)
            case _:
                pass

    async def _carry(self, message: wire.StreamOpened, incoming: Incoming) -> None:
        await self.transfers.carry(message, incoming)
        self.open.remove(message.stream_id)


class Everywhere:
    """Every port of the workload is this one of the test's."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, _port: int) -> tuple[str, int]:
        return "127.0.0.1", self.port


async def page(stream: anyio.abc.SocketStream, seen: list[bytes]) -> None:
    """A little web server: tells what it was asked, in two chunks."""
    async with stream:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        seen.append(data)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n")  # fmt: skip
        await stream.send(b"2\r\nlo\r\n0\r\n\r\n")


def test_a_port_is_reached_over_http(tmp_path) -> None:
    async def run() -> None:
        seen: list[bytes] = []
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, at_market(tmp_path, adapter("one")) as (client, _, tasks, one):
            tasks.start_soon(listener.serve, lambda stream: page(stream, seen))
            job = await serving(client, one, tasks, port)
            path = f"/p/{job}/8888/a b/c?x=1&token={bearer(client)}"
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as browser:
                answer = await browser.get(path, headers={"Cookie": "theirs=1"})
                assert (answer.status_code, answer.text) == (200, "hello"), answer.text
                assert "sandbox" in answer.headers["Content-Security-Policy"]
                head = seen[0].decode().lower()
                assert head.startswith("get /a%20b/c?x=1 http/1.1")
                assert "token" not in head and "authorization" not in head
                assert "cookie: theirs=1" in head and "x-forwarded-prefix: /p/" in head
                assert (await browser.get(f"/p/{job}/8888/again")).status_code == 200  # by cookie
                assert "tally_port" not in seen[1].decode().lower()
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as nobody:
                assert (await nobody.get(f"/p/{job}/8888/")).status_code == 401
                assert (await nobody.get(f"/p/{job}/22/")).status_code == 404
            assert (await client.get(f"/p/{job}/8888/", headers={})).status_code == 200
            for verbs, status in ((["read"], 403), (["jobs"], 200)):
                asked = {"name": "k", "verbs": verbs, "expires_at_ms": 4_000_000_000_000}
                key = (await client.post("/v1/keys", json=asked)).json()["secret"]
                async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as program:
                    answer = await program.get(f"/p/{job}/8888/?token={key}")
                    assert answer.status_code == status, answer.text

    anyio.run(run)


def test_a_ports_cookie_opens_that_port_alone(tmp_path) -> None:
    async def run() -> None:
        seen: list[bytes] = []
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, at_market(tmp_path, adapter("one")) as (client, _, tasks, one):
            tasks.start_soon(listener.serve, lambda stream: page(stream, seen))
            job = await serving(client, one, tasks, port)
            session, asked = bearer(client), {"expires_at_ms": 4_000_000_000_000}
            made = {"name": "k", "verbs": ["jobs"], **asked}
            key = (await client.post("/v1/keys", json=made)).json()
            cookies: dict[str, str] = {}
            cookie = ""
            for token in (session, key["secret"]):
                async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as browser:
                    for _ in range(2):  # the same one each time
                        answer = await browser.get(f"/p/{job}/8888/?token={token}")
                        assert answer.status_code == 200
                        cookies[token] = cookie = answer.cookies["tally_port"]
                    assert (await browser.get(f"/p/{job}/8888/again")).status_code == 200
                assert cookie != token
                # Nothing else of the market's takes it, in any place; no other port of the job
                # does.
                async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as thief:
                    for headers in (
                        {"Authorization": f"Bearer {cookie}"},
                        {"Cookie": f"tally_port={cookie}; tally_session={cookie}"},
                    ):
                        answer = await thief.get("/v1/me", headers=headers)
                        assert answer.status_code == 401, answer.text
                    answer = await thief.get(f"/v1/jobs/{job}/events?token={cookie}")
                    assert answer.status_code == 401
                    thief.headers["Cookie"] = f"tally_port={cookie}"
                    assert (await thief.get(f"/p/{job}/9999/")).status_code == 401
                    assert (await thief.get(f"/p/{job}/8888/")).status_code == 200
                    thief.headers["Cookie"] = f"tally_port={token}"  # nor is the session itself one
                    assert (await thief.get(f"/p/{job}/8888/")).status_code == 401
            # It lasts no longer than what it was made from.
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as later:
                later.headers["Cookie"] = f"tally_port={cookies[key['secret']]}"
                await client.delete(f"/v1/keys/{key['id']}")
                assert (await later.get(f"/p/{job}/8888/")).status_code == 401
                later.headers["Cookie"] = f"tally_port={cookies[session]}"
                assert (await later.get(f"/p/{job}/8888/")).status_code == 200
                await client.post("/v1/auth/logout")
                assert (await later.get(f"/p/{job}/8888/")).status_code == 401

    anyio.run(run)


def test_a_token_is_taken_from_an_address_only_where_a_browser_has_no_other_place(tmp_path) -> None:
    async def run() -> None:
        seen: list[bytes] = []
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, at_market(tmp_path, adapter("one")) as (client, _, tasks, one):
            tasks.start_soon(listener.serve, lambda stream: page(stream, seen))
            job = await serving(client, one, tasks, port)
            token = bearer(client)
            paths = (await client.get("/openapi.json")).json()["paths"]
            values = {"job_id": job, "session_vk": "0" * 64, "lease_id": "lease_0"}
            taken: set[str] = set()
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as browser:
                for path, ways in paths.items():
                    place = path
                    for name in values:
                        place = place.replace(f"{{{name}}}", values[name])
                    place = re.sub(r"{\w+}", "x", place)
                    for way in ways:
                        async with browser.stream(way, f"{place}?token={token}") as answer:
                            status = answer.status_code
                            unknown = status == 422 and b"QUERY_UNKNOWN" in await answer.aread()
                        # Refused by name, or for want of a token: either way nobody signed in.
                        if ways[way].get("security") and status != 401 and not unknown:
                            taken.add(f"{way} {path}")
                assert taken == {"get /v1/jobs/{job_id}/events"}, taken
                url = f"/v1/jobs/{job}/logs?follow=true&token={token}"
                async with browser.stream("GET", url) as followed:
                    assert followed.status_code == 200
                posted = await browser.post(f"/p/{job}/8888/?token={token}")
                assert posted.status_code == 401 and not seen

    anyio.run(run)


def test_a_page_learns_no_token_and_sets_nothing_of_the_markets(tmp_path) -> None:
    async def run() -> None:
        async def hostile(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += await stream.receive()
                seen.append(data)
                await stream.send(
                    b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nClear-Site-Data: "*"\r\n'
                    b"Strict-Transport-Security: max-age=9\r\nSet-Cookie: tally_session=x; Path=/\r\n"
                    b"Set-Cookie: =tally_session=x; Path=/\r\nSet-Cookie:  = tally_port=x\r\n"
                    b"Set-Cookie: nameless\r\nSet-Cookie: ; Path=/\r\n"
                    b'WWW-Authenticate: Basic realm="your Tally password"\r\n'
                    b"Set-Cookie: theirs=1; Domain=example.org; Path=/; HttpOnly\r\n\r\nok"
                )

        seen: list[bytes] = []
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, at_market(tmp_path, adapter("one")) as (client, market, tasks, one):
            tasks.start_soon(listener.serve, hostile)
            market.market.apps = None  # else a person is sent on to the port's own origin
            job = await serving(client, one, tasks, port)
            token, prefix = bearer(client), f"/p/{job}/8888"
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as browser:
                browser.headers["Accept"] = "text/html,*/*"
                answer = await browser.get(f"{prefix}/a%20b?x=1&%74oken={token}")
                assert (answer.status_code, answer.headers["location"]) == (
                    303,
                    f"{prefix}/a%20b?x=1",
                )
                assert not seen  # nothing was asked of the workload yet
                browser.cookies.set("tally_session", token, path="/")  # the console's own
                browser.headers["Referer"] = f"{client.base_url}{prefix}/?token={token}"
                answer = await browser.get(answer.headers["location"])
                assert (answer.status_code, answer.text) == (200, "ok")
                assert token not in seen[0].decode() and token not in str(answer.headers)
                cookies = answer.headers.get_list("set-cookie")
                assert cookies == [f"theirs=1; HttpOnly; Path={prefix}/"]
                spoken = {"clear-site-data", "strict-transport-security", "www-authenticate"}
                assert not spoken & set(answer.headers)

    anyio.run(run)


def test_a_port_is_reached_by_websocket(tmp_path) -> None:
    async def run() -> None:
        async def echo(socket) -> None:
            await socket.send(socket.request.path)
            async for message in socket:
                await socket.send(message)

        async with (
            serve(echo, "127.0.0.1", 0) as server,
            at_market(tmp_path, adapter("one")) as (client, _, tasks, one),
        ):
            port = next(iter(server.sockets)).getsockname()[1]
            job = await serving(client, one, tasks, port)
            base = str(client.base_url).rstrip("/").replace("http", "ws", 1)
            path = "/a%20b%3Fc%23d/%C3%A9/ws"  # what a path's parts may hold is no query's yet
            async with connect(f"{base}/p/{job}/8888{path}?q=1&token={bearer(client)}") as socket:
                assert await socket.recv() == f"{path}?q=1"
                for message in ("text", b"bytes", "x" * 200_000):
                    await socket.send(message)
                    assert await socket.recv() == message
            with pytest.raises(websockets.InvalidStatus):
                async with connect(f"{base}/p/{job}/8888/ws"):
                    pass

    anyio.run(run)


def test_who_closes_a_websocket_is_heard_at_the_other_end(tmp_path) -> None:
    async def run() -> None:
        closes: list[tuple[int | None, str | None]] = []

        async def workload(socket) -> None:
            with suppress(websockets.ConnectionClosed):
                while await socket.recv() == "go":
                    await socket.close(4321, "had enough")
            closes.append((socket.close_code, socket.close_reason))

        async with (
            serve(workload, "127.0.0.1", 0) as server,
            at_market(tmp_path, adapter("one")) as (client, _, tasks, one),
        ):
            port = next(iter(server.sockets)).getsockname()[1]
            job = await serving(client, one, tasks, port)
            base = str(client.base_url).rstrip("/").replace("http", "ws", 1)
            at = f"{base}/p/{job}/8888/ws?token={bearer(client)}"
            async with connect(at) as socket:
                await socket.send("go")
                with pytest.raises(websockets.ConnectionClosedError) as closed:
                    await socket.recv()
                assert closed.value.rcvd == Close(4321, "had enough")
            async with connect(at) as socket:
                await socket.close(3210, "seen it")
            await until(lambda: (3210, "seen it") in closes)
            # A visitor who vanishes says nothing; the workload hears of an ordinary end.
            socket = await connect(at)
            socket.transport.abort()
            await until(lambda: len(closes) == 3)
            assert closes[2][0] == 1000

    anyio.run(run)


def bearer(client: httpx.AsyncClient) -> str:
    """What *client* is signed in with."""
    return client.headers["Authorization"].removeprefix("Bearer ")


async def serving(
    client, one: FakeAdapter, tasks, port: int, ports: tuple[Port, ...] = (Port(8888), Port(9999))
) -> str:
    """A running job whose every port is *port* of this machine."""
    view, session = await post(client, spec(kind="service", ports=ports))
    assert isinstance(session, Signer)
    view = await quoted(client, view["id"])
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: one.leases[lease].signed)
    one.handler = Bridge(one, tasks, port)
    await one.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    return view["id"]
