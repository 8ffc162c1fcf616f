"""A port of a workload as a plain local TCP port: bytes as they are, for the job's owner alone."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from marketplace.client.net.http import Http
from marketplace.client.sdk import forward
from marketplace.client.sdk.forward import forwarding
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Port
from marketplace.gateway import byte_stream
from tests.fakes import FakeAdapter, seed, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_ports import Bridge
from tests.integration.market.test_spine import quoted, sign, state
from tests.integration.support.market import sign_in

PORTS = (Port(8888), Port(9999, auth="public"))


@asynccontextmanager
async def echoing() -> AsyncGenerator[int]:
    """A server that says back what it hears, and after its client's last word hangs up."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def echo(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            async for data in stream:
                if data == b"hang up":
                    return
                await stream.send(data)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        yield int(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def running(
    folder: Path, port: int
) -> AsyncGenerator[tuple[httpx.AsyncClient, FakeAdapter, str, str]]:
    """A market and a job that runs, whose provider carries streams to *port*: (client, provider,
    job, lease).
    """
    async with at_market(folder, adapter("one")) as (client, _, tasks, one):
        view, session = await post(client, spec(kind="service", ports=PORTS))
        view = await quoted(client, view["id"])
        lease = await sign(client, view, session, os.urandom(32).hex())
        await until(lambda: one.leases[lease].signed)
        one.handler = Bridge(one, tasks, port)
        await one.progress(lease, "STARTED")
        await state(client, view["id"], "RUNNING")
        yield client, one, view["id"], lease


def address(client: httpx.AsyncClient, job: str, port: int = 8888) -> str:
    base = str(client.base_url).rstrip("/").replace("http", "ws", 1)
    return f"{base}/v1/jobs/{job}/ports/{port}/stream"


def http_of(client: httpx.AsyncClient) -> Http:
    return Http(str(client.base_url), client.headers["Authorization"].removeprefix("Bearer "))


async def all_of(stream: anyio.abc.SocketStream, size: int) -> bytes:
    heard = b""
    while len(heard) < size:
        heard += await stream.receive()
    return heard


def test_bytes_go_both_ways_as_they_are_over_many_connections(tmp_path: Path) -> None:
    said = os.urandom(1 << 20)

    async def one(local: int) -> None:
        async with await anyio.connect_tcp("127.0.0.1", local) as stream:

            async def write() -> None:
                await stream.send(said)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                assert await all_of(stream, len(said)) == said

    async def run() -> None:
        told: list[str] = []
        async with echoing() as port, running(tmp_path, port) as (client, _, job, _lease):
            http = http_of(client)
            async with forwarding(http, job, 8888, 0, told.append) as local:
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):
                        tasks.start_soon(one, local)
                with pytest.raises(OSError):  # it is taken, and says so
                    async with forwarding(http, job, 8888, local, told.append):
                        pass
            with pytest.raises(OSError):
                await anyio.connect_tcp("127.0.0.1", local)  # nothing listens any more
            await http.aclose()
        assert told == []

    anyio.run(run)


def test_either_end_may_hang_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "LINGER_S", 0.5)

    async def run() -> None:
        told: list[str] = []
        async with echoing() as port, running(tmp_path, port) as (client, one, job, _lease):
            http = http_of(client)
            bridge = one.handler
            assert isinstance(bridge, Bridge)
            async with forwarding(http, job, 8888, 0, told.append) as local:
                near = await anyio.connect_tcp("127.0.0.1", local)
                await near.send(b"hang up")
                with pytest.raises(anyio.EndOfStream):
                    await near.receive()
                await near.aclose()
                half = await anyio.connect_tcp("127.0.0.1", local)
                await half.send(b"last")
                await half.send_eof()  # it still hears the answer, as from `nc`
                assert await all_of(half, 4) == b"last"
                with pytest.raises(anyio.EndOfStream):
                    await half.receive()
                await half.aclose()
                await until(lambda: not bridge.open)
            await http.aclose()
        assert told == []

    anyio.run(run)


def test_why_it_broke_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        told: list[str] = []
        async with echoing() as port, running(tmp_path, port) as (client, one, job, lease):

            async def refuse(message: wire.Message) -> None:
                if isinstance(message, wire.StreamOpened):
                    why = "nothing listens\x1b[2J there " + "é" * 200
                    await one.send(wire.StreamClosed(lease, message.stream_id, why))

            http = http_of(client)
            one.handler = refuse
            async with forwarding(http, job, 8888, 0, told.append) as local:
                near = await anyio.connect_tcp("127.0.0.1", local)
                with pytest.raises(anyio.EndOfStream):
                    await near.receive()
                await near.aclose()
                await until(lambda: told)
                assert told[0].startswith("nothing listens [2J there é")
                await one.progress(lease, "ENDING")
                await client.post(f"/v1/jobs/{job}/stop")
                await until(lambda: _over(client, job))
                later = await anyio.connect_tcp("127.0.0.1", local)
                with pytest.raises(anyio.EndOfStream):
                    await later.receive()
                await later.aclose()
                await until(lambda: len(told) == 2)
                assert "CONFLICT" in told[1] and "not RUNNING" in told[1]
            await http.aclose()

    anyio.run(run)


async def _over(client: httpx.AsyncClient, job: str) -> bool:
    return (await client.get(f"/v1/jobs/{job}")).json()["state"] != "RUNNING"


def test_nobody_else_gets_in(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with echoing() as port, running(tmp_path, port) as (client, one, job, _lease):
            mine = client.headers["Authorization"]
            token = mine.removeprefix("Bearer ")
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                await sign_in(other, seed("stranger"))
                theirs = other.headers["Authorization"]
            key = {"name": "x", "verbs": ["read"], "expires_at_ms": 4 * 10**12}
            reading = (await client.post("/v1/keys", json=key)).json()["secret"]
            at = address(client, job)
            refused: list[tuple[str, dict[str, str], int, str]] = [
                (at, {}, 401, "UNAUTHENTICATED"),
                (f"{at}?token={token}", {}, 401, "UNAUTHENTICATED"),
                (
                    at,
                    {"Cookie": f"tally_session={token}; tally_port={token}"},
                    401,
                    "UNAUTHENTICATED",
                ),
                (at, {"Authorization": f"Basic {token}"}, 401, "UNAUTHENTICATED"),
                (at, {"Authorization": theirs}, 404, "NOT_FOUND"),
                (address(client, job, 9999), {"Authorization": theirs}, 404, "NOT_FOUND"),
                (at, {"Authorization": f"Bearer {reading}"}, 403, "FORBIDDEN"),
                (address(client, job, 22), {"Authorization": mine}, 404, "NOT_FOUND"),
                (address(client, "job_none"), {"Authorization": mine}, 404, "NOT_FOUND"),
            ]
            for where, headers, status, code in refused:
                assert await _refusal(where, headers) == (status, code), (where, headers)
            assert not any(isinstance(m, wire.StreamOpened) for m in one.asked)
            async with connect(at, additional_headers={"Authorization": mine}) as socket:
                await socket.send("text")
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1003

    anyio.run(run)
    assert "ASGI" not in capfd.readouterr().err  # a stranger writes no errors into the log


def test_a_key_that_is_revoked_opens_nothing_and_keeps_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_stream, "AGAIN_S", 0.05)

    async def run() -> None:
        async with echoing() as port, running(tmp_path, port) as (client, _, job, _lease):
            asked = {"name": "x", "verbs": ["jobs"], "expires_at_ms": 4 * 10**12}
            key = (await client.post("/v1/keys", json=asked)).json()
            headers = {"Authorization": f"Bearer {key['secret']}"}
            async with connect(address(client, job), additional_headers=headers) as socket:
                await socket.send(b"mine")
                assert await socket.recv() == b"mine"
                await anyio.sleep(0.2)  # it was asked for again meanwhile
                await socket.send(b"still")
                assert await socket.recv() == b"still"
                assert (await client.delete(f"/v1/keys/{key['id']}")).status_code < 300
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
            assert await _refusal(address(client, job), headers) == (401, "UNAUTHENTICATED")

    anyio.run(run)


async def _refusal(where: str, headers: dict[str, str]) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(where, additional_headers=headers):
            pass
    answer = refused.value.response
    return answer.status_code, str(json.loads(answer.body or b"{}")["code"])
