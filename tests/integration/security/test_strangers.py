"""Strangers at a market's sockets: heard for little before they prove a key, few times a minute,
and whatever they send, others go on.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx
import pytest
import websockets
from websockets.asyncio.client import connect

from marketplace.domain import cbor
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Client, Role
from marketplace.process.main import Config, serve
from tests.fakes import until
from tests.integration.security.test_clients import hello, place, rejected
from tests.integration.support.market import fast
from tests.unit.support.bytes import bombs

ELSEWHERE = ("127.0.0.2", 0)  # another address of this machine


async def opened(socket: Any, client: Client) -> None:
    """Prove the key."""
    await socket.send(client.connected())
    while client.phase.name != "OPEN":
        frames, _ = client.receive(bytes(await socket.recv()))
        for frame in frames:
            await socket.send(frame)


@pytest.mark.parametrize("path", ["provider", "payer"])
def test_a_large_frame_is_taken_only_of_a_proven_key(tmp_path: Any, path: str) -> None:
    role: Role = "adapter" if path == "provider" else "payer"

    async def run() -> None:
        async with place(tmp_path) as (url, _, _run):
            address = f"{url.replace('http', 'ws', 1)}/v1/{path}"
            async with connect(address) as early:
                await early.send(bytes(cbor.HELLO.length + 1))
                assert await rejected(early) == ""
                assert early.close_code == 1009
            async with connect(address) as pieces:  # the same in two parts
                await pieces.send([bytes(cbor.HELLO.length), b"\x00"])
                assert await rejected(pieces) == ""
                assert pieces.close_code == 1009
            async with connect(address, max_size=None) as proven:
                client = hello(url, role)
                await opened(proven, client)
                big = wire.LogChunk("lease_0", 0, "stdout", bytes(900_000))
                await proven.send(client.send(big))
                message = None
                while not isinstance(message, wire.Rejected):
                    _, message = client.receive(await proven.recv(decode=False))
                assert message.code != "WIRE_REFUSED"

    anyio.run(run)


def test_a_bomb_ends_its_own_connection_with_a_code_and_no_other(tmp_path: Any) -> None:
    """Before the proof in 4 KiB, after it in a whole frame, as a frame and as a payload."""

    async def run() -> None:
        async with place(tmp_path) as (url, _, _run), AsyncExitStack() as stack:
            address = url.replace("http", "ws", 1) + "/v1/payer"
            other = await stack.enter_async_context(connect(address))
            friend = hello(url)
            await opened(other, friend)
            early = {k: v for k, v in bombs(3_000).items() if len(v) <= cbor.HELLO.length}
            for raw in early.values():
                async with connect(address) as socket:
                    await socket.send(raw)
                    assert await rejected(socket) == "MALFORMED"
            for raw in bombs(200_000).values():
                for frame in (raw, codec.to_bytes(wire.Data(1, raw))):
                    if len(frame) <= codec.MAX_FRAME:
                        async with connect(address) as socket:
                            await opened(socket, hello(url))
                            await socket.send(frame)
                            assert await rejected(socket) in ("MALFORMED", "WIRE_REFUSED")
            await other.send(friend.send(wire.StopAsked("lease_0", "CANCELLED")))
            message = None
            while not isinstance(message, wire.Rejected):
                _, message = friend.receive(await other.recv(decode=False))
            assert message.code == "NOT_FOUND"

    anyio.run(run)


def test_handshakes_are_few_per_address(tmp_path: Any) -> None:
    async def run() -> None:
        async with place(tmp_path, hellos_per_minute=4) as (url, _, _run):
            address = url.replace("http", "ws", 1) + "/v1/provider"
            for _ in range(4):
                async with connect(address):
                    pass
            with pytest.raises(websockets.InvalidStatus) as refused:
                await connect(address)
            response = refused.value.response
            assert response.status_code == 429
            assert b"RATE_LIMITED" in (response.body or b"")
            assert 1 <= int(response.headers["Retry-After"]) <= 15
            async with connect(address, local_addr=ELSEWHERE):  # others are not meant
                pass

    anyio.run(run)


@pytest.mark.parametrize("believed", [True, False])
def test_limits_count_the_client_behind_a_proxy_that_is_named(
    tmp_path: Any, believed: bool
) -> None:
    """The proxy is 127.0.0.2; a market believes 127.0.0.1 alone unless it is told."""
    told: dict[str, Any] = {"forwarded_allow_ips": ELSEWHERE[0]} if believed else {}

    async def run() -> None:
        where: list[str] = []
        config = Config(
            f"sqlite:///{tmp_path}/m.db", str(tmp_path), port=0, console=False,
            settings=fast(logins_per_minute=3), on_ready=lambda url, _: where.append(url), **told,
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, config)
            await until(lambda: where)
            proxy = httpx.AsyncHTTPTransport(local_address=ELSEWHERE[0])
            async with httpx.AsyncClient(base_url=where[0], transport=proxy, timeout=30) as client:

                async def ask(number: int) -> int:
                    said = {"X-Forwarded-For": f"10.0.0.{number}"}
                    body = {"address": "60" + "11" * 28}
                    return (
                        await client.post("/v1/auth/challenge", json=body, headers=said)
                    ).status_code

                codes = [await ask(number) for number in range(6)]
            assert (429 in codes) is not believed
            tasks.cancel_scope.cancel()

    anyio.run(run)
