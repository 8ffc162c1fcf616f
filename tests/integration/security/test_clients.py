"""Clients that are slow, greedy or too many, over real sockets: each is let go of, and others are
not.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.frames import Frame
from websockets.server import ServerProtocol

from marketplace.api.http import limits
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Client, Numbering, Role, subscribe_message
from marketplace.domain.site import origin_of
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.hub import sockets
from marketplace.hub.pace import Pace
from marketplace.process import server
from tests.fakes import seed, until
from tests.integration.support.market import fast, market, sign_in

PATIENCE = 60  # seconds that a test waits for what takes one or two


@asynccontextmanager
async def place(tmp_path, served: dict[str, Any] | None = None, **settings: Any):
    """(url, host and port, the process) of a market without providers."""
    db = f"sqlite:///{tmp_path}/m.db"
    async with market(db, tmp_path, fast(**settings), served or {}) as (url, run):
        host, _, port = url.removeprefix("http://").partition(":")
        with anyio.fail_after(PATIENCE):
            yield url, (host, int(port)), run


async def until_closed(stream) -> bytes:
    """What still came before the market closed the connection."""
    came = b""
    while True:
        try:
            came += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return came


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he"],
    ids=["nothing", "half a head", "half a second head"],
)  # fmt: skip
def test_a_head_that_never_comes_ends_the_connection(
    said: bytes, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)

    async def run() -> None:
        async with place(tmp_path) as (url, where, _):
            async with await anyio.connect_tcp(*where) as slow:
                if said:
                    await slow.send(said)
                came = await until_closed(slow)
            assert came.count(b"200 OK") == said.count(b"\r\n\r\n")
            async with httpx.AsyncClient(base_url=url) as other:
                assert (await other.get("/healthz")).status_code == 200

    anyio.run(run)


def test_a_body_that_drips_is_refused_with_a_code(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 1.5)

    async def run() -> None:
        async with place(tmp_path) as (_, where, _run):
            async with (
                await anyio.connect_tcp(*where) as slow,
                anyio.create_task_group() as tasks,
            ):
                head = b"POST /v1/auth/challenge HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n"
                await slow.send(head + b"Content-Type: application/json\r\n\r\n")

                async def drip() -> None:  # a byte now and then would renew a deadline by message
                    try:
                        while True:
                            await slow.send(b" ")
                            await anyio.sleep(0.2)
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        pass

                tasks.start_soon(drip)
                came = b""
                while b"TOO_LARGE" not in came:
                    came += await slow.receive()
                assert b" 413 " in came.split(b"\r\n")[0]
                tasks.cancel_scope.cancel()

    anyio.run(run)


def test_bodies_without_a_length_are_counted(tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path) as (url, _, _run):
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:

                async def endless():
                    for _ in range(40):
                        yield b"x" * 65_536

                answer = await client.post("/v1/auth/challenge", content=endless())
                assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
                huge = {"X-Big": "x" * 2_000_000}
                try:
                    refused = (await client.get("/healthz", headers=huge)).status_code == 400
                except httpx.TransportError:
                    refused = True
                assert refused

    anyio.run(run)


def test_one_address_cannot_hold_all_sockets(tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path, open_per_address=5) as (url, _, _run):
            address = url.replace("http", "ws", 1) + "/v1/payer"
            held = [await connect(address) for _ in range(5)]
            with pytest.raises(websockets.InvalidStatus) as refused:
                await connect(address)
            assert refused.value.response.status_code == 429
            assert b"RATE_LIMITED" in (refused.value.response.body or b"")
            async with httpx.AsyncClient(base_url=url) as client:
                answer = await client.get("/healthz")
                assert (answer.status_code, answer.json()["code"]) == (429, "RATE_LIMITED")
                for socket in held:
                    await socket.close()

                async def free() -> bool:
                    return (await client.get("/healthz")).status_code == 200

                await until(free)

    anyio.run(run)


def hello(url: str, role: Role = "payer", magic: int = DEVNET_MAGIC) -> Client:
    numbering, at = Numbering(os.urandom(16)), origin_of(url)
    return Client(role, Signer(os.urandom(32)), magic, "test/1", numbering, at)


async def rejected(socket) -> str:
    """The code with which the market lets go, once the socket is closed."""
    code = ""
    try:
        while True:
            message = codec.from_bytes(await socket.recv())
            code = message.code if isinstance(message, wire.Rejected) else code
    except websockets.ConnectionClosed:
        return code


def test_sockets_prove_themselves_or_go(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HELLO_SECONDS", 1.0)

    async def run() -> None:
        async with place(tmp_path) as (url, _, inside):
            address = url.replace("http", "ws", 1) + "/v1/payer"
            async with connect(address) as silent:
                assert await rejected(silent) == "HELLO_REFUSED"
            async with connect(address) as half:  # says who it is and never proves it
                await half.send(hello(url).connected())
                assert await rejected(half) == "HELLO_REFUSED"
            monkeypatch.setattr(sockets, "HELLO_SECONDS", 30.0)  # of those that do not wait
            async with connect(address) as forged:
                await forged.send(hello(url).connected())
                await forged.recv()
                await forged.send(codec.to_bytes(wire.Proof(os.urandom(64))))
                assert await rejected(forged) == "HELLO_REFUSED"
            for wrong in (hello(url, "adapter"), hello(url, magic=764824073)):
                async with connect(address) as socket:
                    await socket.send(wrong.connected())
                    assert await rejected(socket) == "HELLO_REFUSED"
            assert not inside.parts.payers.hub.sessions  # of keys that were only named
            for junk in (b"", b"\xff" * 40, os.urandom(500)):
                async with connect(address) as socket:
                    await socket.send(junk)
                    assert await rejected(socket) in ("WIRE_REFUSED", "MALFORMED")
            async with connect(address) as text:
                await text.send("not binary")
                assert await rejected(text) == ""
            async with connect(address) as big:
                await big.send(b"\x00" * ((1 << 20) + 1))
                assert await rejected(big) == ""
                assert big.close_code == 1009

    anyio.run(run)


def test_a_channel_is_spoken_for_by_its_session_key_alone(tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path) as (url, _, _run):
            client, session = hello(url), seed("session")
            async with connect(url.replace("http", "ws", 1) + "/v1/payer") as socket:
                await socket.send(client.connected())
                while client.phase.name != "OPEN":
                    frames, _ = client.receive(await socket.recv(decode=False))
                    for frame in frames:
                        await socket.send(frame)
                at, vk = client.market, session.verify_key
                stale = session.sign(subscribe_message(os.urandom(32), at, vk))
                other = seed("thief").sign(subscribe_message(client.nonce, at, vk))
                for signature in (stale, other):
                    subscribe = wire.Subscribe(session.verify_key, signature)
                    await socket.send(client.send(subscribe))
                    assert await _refusal(client, socket) == "UNAUTHENTICATED"
                stop = wire.StopAsked("lease_0", "CANCELLED")
                await socket.send(client.send(stop))
                assert await _refusal(client, socket) == "NOT_FOUND"

    anyio.run(run)


async def _refusal(client: Client, socket) -> str:
    while True:
        _, message = client.receive(await socket.recv(decode=False))
        if isinstance(message, wire.Rejected):
            return message.code


def test_a_socket_that_never_reads_is_let_go_of(tmp_path) -> None:
    async def run() -> None:
        pings = {"ws_ping_interval": 0.5, "ws_ping_timeout": 1.0}
        async with place(tmp_path, pings) as (_, where, inside):
            async with await anyio.connect_tcp(*where) as raw:
                await raw.send(
                    b"GET /v1/payer HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
                )
                assert b"101" in await raw.receive()
                await until_closed(raw)  # no pong ever: the ping's deadline ends it
            await until(lambda: not inside.parts.payers.hub.live)

    anyio.run(run)


def test_made_up_keys_are_forgotten(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "KEPT", 3)

    async def run() -> None:
        async with place(tmp_path) as (url, _, inside):
            hub = inside.parts.payers.hub
            for _ in range(6):
                client = hello(url)
                async with connect(url.replace("http", "ws", 1) + "/v1/payer") as socket:
                    await socket.send(client.connected())
                    while client.phase.name != "OPEN":
                        frames, _ = client.receive(await socket.recv(decode=False))
                        for frame in frames:
                            await socket.send(frame)
                await until(lambda: not hub.live)
            assert len(hub.numberings) <= 3 and len(hub.sessions) <= 3

    anyio.run(run)


def test_rates_count_by_address_before_anybody_is_known(tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path, requests_per_minute=30, logins_per_minute=5) as (url, _, _run):
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                await sign_in(client, seed("consumer"))  # two of five
                asked = {"address": (b"\x60" + seed("consumer").key_hash).hex()}
                answers = [await client.post("/v1/auth/challenge", json=asked) for _ in range(8)]
                assert answers[-1].status_code == 429
                wrong = {"Authorization": "Bearer tally_k_" + "00" * 32}
                codes = [
                    (await client.get("/v1/jobs", headers=wrong)).status_code for _ in range(60)
                ]
                assert set(codes) == {401, 429} and codes[0] == 401

    anyio.run(run)


PING, TINY = b"\x89\x80" + bytes(4), b"\x82\x81" + bytes(5)


async def upgraded(where: tuple[str, int], path: str = "/v1/payer") -> anyio.abc.SocketStream:
    """A websocket of which nothing is known but its handshake."""
    stream = await anyio.connect_tcp(*where)
    head = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await stream.send(head.encode())
    assert b" 101 " in await stream.receive()
    return stream


@pytest.mark.parametrize("frame", [PING, TINY], ids=["pings", "tiny frames"])
def test_a_flood_of_small_frames_is_not_even_parsed(
    frame: bytes, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    real = ServerProtocol.recv_frame

    def counted(self: ServerProtocol, frame: Frame) -> None:
        parsed.append(frame.opcode)
        real(self, frame)

    monkeypatch.setattr(ServerProtocol, "recv_frame", counted)

    async def run() -> None:
        async with place(tmp_path) as (_, where, _):
            async with await upgraded(where) as stream:
                with suppress(OSError, anyio.BrokenResourceError):
                    await stream.send(frame * 40_000)
                    await until_closed(stream)
            assert 0 < len(parsed) <= 2 * server.SLICE // len(frame)

    anyio.run(run)


def test_whoever_is_well_is_never_cut_off_for_its_pings(tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path) as (_, where, _):
            async with await upgraded(where) as stream:
                for _ in range(server.CONTROLS_AT_ONCE):
                    await stream.send(PING)
                answered = b""
                while len(answered) < 2 * server.CONTROLS_AT_ONCE:
                    answered += await stream.receive()

    anyio.run(run)


def test_whoever_is_read_slowly_is_not_taken_for_gone(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pongs come behind what it has sent: a stranger's megabytes are read for many seconds."""
    monkeypatch.setattr(Pace, "spend", lambda *_: 0.1)
    pings = {"ws_ping_interval": 0.2, "ws_ping_timeout": 2.0}

    async def run() -> None:
        async with place(tmp_path, pings) as (url, _, inside):
            client, frames = hello(url), 40
            async with connect(url.replace("http", "ws", 1) + "/v1/payer") as socket:
                await socket.send(client.connected())
                while client.phase.name != "OPEN":
                    answers, _ = client.receive(await socket.recv(decode=False))
                    for answer in answers:
                        await socket.send(answer)
                (live,) = inside.parts.payers.hub.live.values()
                numbering = live.server.numbering
                assert numbering is not None
                for turn in range(frames):
                    await socket.send(
                        client.send(wire.BlobWanted(f"lease_{turn}", "00" * 32, 0, 1))
                    )
                # twice as long as a pong may take
                await until(lambda: numbering.received == frames)
                assert inside.parts.payers.hub.live, "and it is there still"

    anyio.run(run)


def test_silent_connections_of_one_address_leave_others_their_places(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 40)
    monkeypatch.setattr(server.Lobby.__init__, "__defaults__", (40,))

    async def run() -> None:
        async with place(tmp_path) as (url, where, _), AsyncExitStack() as stack:
            silent = [
                await stack.enter_async_context(
                    await anyio.connect_tcp(*where, local_host="127.0.0.2")
                )
                for _ in range(60)
            ]
            ended = 0
            for stream in silent[40:]:
                ended += await until_closed(stream) == b""
            assert ended == 20
            async with httpx.AsyncClient(base_url=url) as other:
                assert (await other.get("/healthz")).status_code == 200
            await silent[0].aclose()
            async with await anyio.connect_tcp(*where, local_host="127.0.0.2") as again:
                await again.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b"200 OK" in await until_closed(again)

    anyio.run(run)


def test_a_whole_64_of_ipv6_is_one_address_everywhere(tmp_path) -> None:
    """Rates, handshakes, what is open at once and the pace of strangers: any rented machine has
    2^64.
    """

    def of(address: str) -> dict[str, str]:
        return {"X-Forwarded-For": address}

    async def run() -> None:
        believed = {"forwarded_allow_ips": "127.0.0.1"}
        limits_ = {"logins_per_minute": 3, "hellos_per_minute": 6, "open_per_address": 5}
        async with place(tmp_path, believed, **limits_) as (url, _, inside):
            asked = {"address": (b"\x60" + seed("consumer").key_hash).hex()}
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:

                async def challenge(address: str) -> int:
                    told = of(address)
                    answer = await client.post("/v1/auth/challenge", json=asked, headers=told)
                    return answer.status_code

                said = [await challenge(f"2001:db8::{n:x}") for n in range(5)]
                assert said == [200, 200, 200, 429, 429]
                assert await challenge("2001:db8:0:1::1") == 200
                said = [await challenge(f"::ffff:203.0.113.{n}") for n in range(5)]
                assert said == [200] * 5 and await challenge("203.0.113.1") == 200

                at = url.replace("http", "ws", 1) + "/v1/payer"
                held = [await connect(at, additional_headers=of(f"2001:db8:7::{n}")) for n in range(5)]  # fmt: skip
                crowded = await client.get("/healthz", headers=of("2001:db8:7::99"))
                assert crowded.status_code == 429
                assert (
                    await client.get("/healthz", headers=of("2001:db8:8::1"))
                ).status_code == 200
                me = hello(url)
                await held[0].send(me.connected())
                while me.phase.name != "OPEN":
                    for frame in me.receive(await held[0].recv(decode=False))[0]:
                        await held[0].send(frame)
                await until(lambda: inside.parts.payers.hub.live)
                (live,) = inside.parts.payers.hub.live.values()
                assert live.address == "2001:db8:7::", "its frames are paced as its whole /64's"
                for socket in held:
                    await socket.close()
                await until(lambda: not inside.parts.payers.hub.live)
                async with connect(at, additional_headers=of("2001:db8:7::aa")):
                    pass
                with pytest.raises(websockets.InvalidStatus):  # the seventh handshake
                    await connect(at, additional_headers=of("2001:db8:7::bb"))

    anyio.run(run)


@pytest.mark.parametrize("odd", ["X-Long: " + "a" * 9_000, "\r\n".join(["X-Many: 1"] * 200)])
def test_a_handshake_that_only_http_takes_ends_and_hinders_no_shutdown(odd: str, tmp_path) -> None:
    async def run() -> None:
        async with place(tmp_path) as (_, where, _):
            head = (
                "GET /v1/payer HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{odd}\r\n\r\n"
            )
            async with await anyio.connect_tcp(*where) as stream:
                await stream.send(head.encode())
                with anyio.fail_after(30):
                    await until_closed(stream)

    anyio.run(run)
