"""What is signed for one market is worth nothing at another: sign-in, hello and subscription.

The adversary runs a market of his own that a victim uses, and passes on what he gets from an honest
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from adapter.daemon.link import socket_link
from marketplace.client.net.link import Link
from marketplace.client.net.signin import sign_message
from marketplace.client.sdk.read_only import Reader
from marketplace.client.wallet.purse import Purse
from marketplace.domain.errors import Refusal
from marketplace.domain.protocol import codec, wire
from marketplace.domain.supply.offer import DEVNET_MAGIC
from tests.fakes import seed, until
from tests.integration.support.market import address_of, market


class Passer(BaseHTTPRequestHandler):
    """A dishonest market's HTTP face: every request goes to the honest one, as it came."""

    honest = ""

    def do_GET(self) -> None:
        self._pass(httpx.get(self.honest + self.path, trust_env=False))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).replace(
            b"localhost", b"127.0.0.1"
        )
        own = cast("tuple[str, int]", self.server.server_address)
        here, there = (str(own[1]), self.honest.rpartition(":")[2])
        said = body.replace(here.encode(), there.encode())
        json = {"Content-Type": "application/json"}
        self._pass(httpx.post(self.honest + self.path, content=said, headers=json, trust_env=False))

    def _pass(self, answer: httpx.Response) -> None:
        self.send_response(answer.status_code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def dishonest(honest: str) -> Iterator[str]:
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Passer,), {"honest": honest}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@asynccontextmanager
async def sockets(answer: Any):
    """The dishonest market's sockets; its address."""
    async with serve(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


def at(url: str, path: str) -> str:
    return url.replace("http", "ws", 1) + path


class Heard:
    """Who listens to a link, and what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def connected(self) -> None:
        self.said.append("up")

    async def opened(self) -> None:
        self.said.append("up")

    async def disconnected(self) -> None:
        self.said.append("down")

    async def heard(self, message: wire.Message) -> None:
        self.said.append(type(message).__name__)

    handle = heard

    async def acknowledged(self, numbers: list[int]) -> None:
        """Nothing is journaled."""


def test_the_sdk_signs_in_nowhere_but_where_it_is(tmp_path: Path) -> None:
    purse = Purse.create(tmp_path / "purse", passphrase="a long one for a test")
    signed: list[bytes] = []
    sign = purse.sign_in

    def counted(message: bytes, *, mainnet: bool):
        signed.append(message)
        return sign(message, mainnet=mainnet)

    object.__setattr__(purse, "sign_in", counted)

    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
            with dishonest(url) as evil:
                with pytest.raises(Refusal) as refused:
                    async with Reader(evil, wallet=purse):
                        raise AssertionError("the honest market took the victim's signature")
                assert (refused.value.code, signed) == ("SIGN_IN_ELSEWHERE", [])
            async with Reader(url, wallet=purse) as reader:
                me: Any = await reader.http.get("/v1/me")
                assert me["account"] == purse.signer.key_hash.hex()
            here = url.replace("127.0.0.1", "localhost")
            async with Reader(here, wallet=purse):  # another name of the same place
                assert b"URI: " + here.encode() in signed[-1] and len(signed) == 2

    anyio.run(run)


def test_a_market_takes_no_sign_in_that_names_another(tmp_path: Path) -> None:
    """A wallet that signs whatever its page shows: the dishonest page showed its own name."""
    victim = seed("victim")
    raw, address = address_of(victim)

    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, _):
            async with httpx.AsyncClient(base_url=url) as thief:
                asked = (await thief.post("/v1/auth/challenge", json={"address": address})).json()
                host = url.partition("://")[2]
                assert asked["text"].startswith(f"{host} wants you to sign in")
                assert f"\n{victim.key_hash.hex()}\n" in asked["text"]
                for name, code in (("evil.example", "SIGN_IN_ELSEWHERE"), (host, None)):
                    text = asked["text"].replace(host, name)
                    signed = sign_message(victim, raw, text.encode())
                    body = {"address": address, "signature": signed.signature, "key": signed.key}
                    answer = await thief.post("/v1/auth/verify", json=body)
                    assert answer.json().get("code") == code, answer.text
                    assert ("token" in answer.json()) == (name == host)
                elsewhere = {"address": address, "market": "https://evil.example"}
                answer = await thief.post("/v1/auth/challenge", json=elsewhere)
                assert answer.json()["code"] == "SIGN_IN_ELSEWHERE"

    anyio.run(run)


@pytest.mark.parametrize("role", ["provider", "payer"])
def test_a_hello_is_for_the_market_that_was_dialled(tmp_path: Path, role: str) -> None:
    key = seed("adapter")

    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, inside):
            hub = inside.parts.hub.hub if role == "provider" else inside.parts.payers.hub
            answers: list[str] = []

            async def between(near: ServerConnection) -> None:
                async with connect(at(url, f"/v1/{role}")) as far:
                    try:
                        async for frame in near:
                            await far.send(frame)
                            reply = await far.recv()
                            answers.append(type(codec.from_bytes(bytes(reply))).__name__)  # type: ignore[arg-type]
                            await near.send(reply)
                    except ConnectionClosed:
                        return

            def link(to: str) -> Any:
                if role == "payer":
                    return Link(to, DEVNET_MAGIC, Heard())

                own: Any = SimpleNamespace(signer=key, offer=SimpleNamespace(magic=DEVNET_MAGIC))
                return socket_link(to, own, b"s" * 16)(Heard())

            async def nothing(_: Refusal) -> None:
                return None

            async def goes(to: str) -> None:
                made = link(to)
                await (made.run(nothing) if role == "payer" else made.run())

            async with sockets(between) as evil, anyio.create_task_group() as tasks:
                tasks.start_soon(goes, evil)
                await until(lambda: answers)
                with anyio.move_on_after(1):
                    await until(lambda: hub.live)
                assert not hub.live and set(answers) == {"Rejected"}, answers
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:  # and where it was dialled it is heard
                tasks.start_soon(goes, url)
                await until(lambda: hub.live)
                tasks.cancel_scope.cancel()

    anyio.run(run)


def test_a_subscription_is_for_the_market_that_was_dialled(tmp_path: Path) -> None:
    """The dishonest market speaks to the honest one as itself, and gives its nonce to the
    victim.
    """
    session = seed("session")

    async def run() -> None:
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path) as (url, inside):
            hub = inside.parts.payers
            heard: list[str] = []

            async def theft(near: ServerConnection) -> None:
                own = Link(url, DEVNET_MAGIC, Heard())._client  # type: ignore[attr-defined]
                async with connect(at(url, "/v1/payer")) as far:
                    await far.send(own.connected())
                    frames, _ = own.receive(await far.recv(decode=False))
                    await far.send(frames[0])
                    own.receive(bytes(await far.recv()))  # type: ignore[arg-type]
                    await near.recv()  # the victim's hello
                    await near.send(codec.to_bytes(wire.Challenge(own.nonce)))
                    await near.recv()  # its proof, for us
                    await near.send(codec.to_bytes(wire.Welcome(0, b"e" * 16, 0)))
                    data = codec.from_bytes(bytes(await near.recv()))  # type: ignore[arg-type]
                    assert isinstance(data, wire.Data)
                    await far.send(own.send(codec.from_bytes(data.payload)))
                    while "Subscribed" not in heard and "Rejected" not in heard:
                        _, message = own.receive(bytes(await far.recv()))  # type: ignore[arg-type]
                        heard.extend([type(message).__name__] if message else [])

            async def refused(_: Refusal) -> None:
                return None

            async with sockets(theft) as evil, anyio.create_task_group() as tasks:
                victim = Link(evil, DEVNET_MAGIC, Heard())
                await victim.watch(session)
                tasks.start_soon(victim.run, refused)
                await until(lambda: heard)
                assert "Subscribed" not in heard and not hub.by_channel, heard
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                honest = Link(url, DEVNET_MAGIC, Heard())
                await honest.watch(session)
                tasks.start_soon(honest.run, refused)
                await until(lambda: session.verify_key in hub.by_channel)
                tasks.cancel_scope.cancel()

    anyio.run(run)


def test_a_markets_names(tmp_path: Path) -> None:
    from marketplace.process.addresses import names_of
    from marketplace.process.main import Config

    def names(**more: Any) -> tuple[str, ...]:
        return names_of(Config("", "", **more), 8000)

    loopback = {"http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"}
    assert set(names()) == loopback
    assert names(host="10.1.2.3") == ("http://10.1.2.3:8000",)
    assert loopback < set(names(host="0.0.0.0"))
    # What is behind a proxy has the proxy's name, and the others that its operator says.
    public = names(public_url="https://Market.Example:443/", also_urls=("http://market:8000",))
    assert public == ("https://market.example", "http://market:8000")
    with pytest.raises(Refusal):
        names(public_url="market.example")
