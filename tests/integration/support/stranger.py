"""A stranger, a process of its own at an address of its own: the worst that a market's limits
admit.

``python -m tests.integration.support.stranger URL SECONDS KIND…``: every *KIND* at once, as fast as
the market lets it. What it sends is made beforehand, so that its own work takes no turn of the
others.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, product
from string import ascii_letters
from typing import Final

import anyio
import anyio.abc
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt, SignedReceipt
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Client, Numbering, Role, subscribe_message
from marketplace.domain.site import origin_of
from marketplace.domain.supply.hardware import Gpu
from marketplace.domain.supply.offer import DEVNET_MAGIC
from tests.fakes import dialled, offer, spec

ADDRESS: Final = "127.0.0.2"
SOCKETS: Final = 10  # of each kind that talks
REQUESTS: Final = 80  # connections of each kind that asks
BODY: Final = 1 << 20
_GONE: Final = (WebSocketException, OSError, anyio.BrokenResourceError, anyio.EndOfStream)
Frames = Callable[[Client, Signer], Iterator[bytes]]


def _messages(*made: Callable[[Signer], wire.Message]) -> Frames:
    """Each of them again and again, numbered."""

    def frames(client: Client, signer: Signer) -> Iterator[bytes]:
        payloads = [codec.to_bytes(make(signer)) for make in made]
        for seq in count(1):
            yield codec.to_bytes(wire.Data(seq, payloads[seq % len(payloads)]))

    return frames


def _names(many: int) -> wire.Message:
    """Leases that nobody knows: the market says of each that it is cancelled."""
    names = ("".join(letters) for letters in product(ascii_letters[:30], repeat=3))
    return wire.LeasesHeld([next(names) for _ in range(many)])


def _offer(signer: Signer) -> wire.Message:
    """A host with as many devices as a frame's values allow."""
    mine = offer(signer)
    gpus = tuple(Gpu(f"GPU-{n}", "A100", 80_000, index=n, links=()) for n in range(400))
    return wire.OfferPosted(replace(mine, host=replace(mine.host, gpus=gpus)), False)


def _job(_: Signer) -> wire.Message:
    """A job of a thousand words."""
    return wire.LeaseProposed("lease_0", replace(spec(), command=("",) * 1_000), b"")


def _progress(_: Signer) -> wire.Message:
    return wire.LeaseProgress("lease_0", "PULLING", 0, {f"{n:x}": 0 for n in range(1_024)})


def _chunk(_: Signer) -> wire.Message:
    return wire.LogChunk("lease_0", 0, "stdout", b"")


def _large(_: Signer) -> wire.Message:
    return wire.LogChunk("lease_0", 0, "stdout", bytes(codec.MAX_FRAME - 200))


def _receipt(signer: Signer) -> wire.Message:
    receipt = Receipt(
        os.urandom(32), "lease_0", 1, 0, 1000, 1000, bytes(32), "gpu", 1, 1, 1, (), bytes(32),
        bytes(32), False,
    )  # fmt: skip
    return wire.ReceiptSent("lease_0", SignedReceipt.sign(receipt, signer))


def _acks(client: Client, _: Signer) -> Iterator[bytes]:
    while True:
        yield codec.to_bytes(wire.Ack(0))


def _repeated(client: Client, _: Signer) -> Iterator[bytes]:
    while True:
        yield codec.to_bytes(wire.Data(0, b""))


def _subscriptions(client: Client, _: Signer) -> Iterator[bytes]:
    for seq in count(1):
        session = Signer(os.urandom(32))
        proof = session.sign(subscribe_message(client.nonce, client.market, session.verify_key))
        message = wire.Subscribe(session.verify_key, proof)
        yield codec.to_bytes(wire.Data(seq, codec.to_bytes(message)))


def _vouchers(client: Client, _: Signer) -> Iterator[bytes]:
    """Of a channel that it subscribed to and that does not exist."""
    session = Signer(os.urandom(32))
    proof = session.sign(subscribe_message(client.nonce, client.market, session.verify_key))
    first = codec.to_bytes(wire.Subscribe(session.verify_key, proof))
    then = codec.to_bytes(wire.VoucherSent("lease_0", Voucher.sign(session, 1)))
    yield codec.to_bytes(wire.Data(1, first))
    for seq in count(2):
        yield codec.to_bytes(wire.Data(seq, then))


TALK: Final[dict[str, tuple[Role, Frames]]] = {
    "held": ("adapter", _messages(lambda _: _names(16_000), lambda _: _names(1_000))),
    "offer": ("adapter", _messages(_offer)),
    "job": ("adapter", _messages(_job)),
    "progress": ("adapter", _messages(_progress)),
    "chunk": ("adapter", _messages(_chunk)),
    "large": ("adapter", _messages(_large)),
    "receipt": ("adapter", _messages(_receipt)),
    "acks": ("payer", _acks),
    "repeated": ("payer", _repeated),
    "subscribe": ("payer", _subscriptions),
    "voucher": ("payer", _vouchers),
}
"""By kind: its role, and the frames it sends once its key is proven."""


def _post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _filled(unit: bytes) -> bytes:
    """A body of full size that is a list of *unit*."""
    return b"[" + b",".join([unit] * ((BODY - 2) // (len(unit) + 1))) + b"]"


_KEYS: Final = b"{" + b",".join(b'"%x":{}' % n for n in range(BODY // 12)) + b"}"
ASK: Final[dict[str, bytes]] = {
    "lists": _post("/v1/auth/challenge", _filled(b"[]")),
    "keys": _post("/v1/auth/challenge", _KEYS),
    "numbers": _post("/v1/auth/verify", _filled(b"1e9")),
    "deep": _post("/v1/jobs", b"[" * BODY),
    "floats": _post("/v1/jobs", b'{"spec":{"a":' + _filled(b"{}")[:-3] + b"]}}"),
    "challenge": _post("/v1/auth/challenge", b'{"address":"60' + b"11" * 28 + b'"}'),
    "offers": _get("/v1/offers?limit=200"),
    "metrics": _get("/metrics"),
    "ready": _get("/readyz"),
    "openapi": _get("/openapi.json"),
    "nowhere": _get("/nowhere"),
    "upgrade": (
        b"GET /v1/payer HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ),
}
"""By kind: the request that it repeats."""


class Stranger:
    """What it sent, by kind."""

    def __init__(self, url: str) -> None:
        self.url = url
        host, _, port = url.removeprefix("http://").partition(":")
        self.where = (host, int(port))
        self.sent = Counter[str]()

    async def talk(self, kind: str) -> None:
        """Prove a key, then say its frames; anew when the market has had enough."""
        role, frames = TALK[kind]
        path = {"adapter": "provider", "payer": "payer"}[role]
        while True:
            with suppress(*_GONE):
                async with dialled(
                    f"{self.url.replace('http', 'ws', 1)}/v1/{path}",
                    local_addr=(ADDRESS, 0), compression=None, max_size=None, open_timeout=60,
                ) as socket:  # fmt: skip
                    await self._say(kind, role, frames, socket)
            await anyio.sleep(0.1)

    async def _say(self, kind: str, role: Role, frames: Frames, socket: ClientConnection) -> None:
        signer = Signer(os.urandom(32))
        numbering = Numbering(os.urandom(16))
        at = origin_of(self.url)
        client = Client(role, signer, DEVNET_MAGIC, "stranger", numbering, at)
        await socket.send(client.connected())
        while client.phase.name != "OPEN":
            answers, _ = client.receive(bytes(await socket.recv(decode=False)))
            for answer in answers:
                await socket.send(answer)
        self.sent["proven"] += 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, socket, tasks.cancel_scope)
            for frame in frames(client, signer):
                await socket.send(frame)
                self.sent[kind] += 1
            tasks.cancel_scope.cancel()

    async def ask(self, kind: str) -> None:
        """The request again and again, without waiting for answers."""
        while True:
            with suppress(*_GONE):
                async with await anyio.connect_tcp(*self.where, local_host=ADDRESS) as stream:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_drain, stream, tasks.cancel_scope)
                        with suppress(*_GONE):
                            while True:
                                await stream.send(ASK[kind])
                                self.sent[kind] += 1
            await anyio.sleep(0.01)


async def _read(socket: ClientConnection, scope: anyio.CancelScope) -> None:
    with suppress(*_GONE):
        async for _ in socket:
            pass
    scope.cancel()


async def _drain(stream: anyio.abc.SocketStream, scope: anyio.CancelScope) -> None:
    with suppress(*_GONE):
        while True:
            await stream.receive(1 << 20)
    scope.cancel()


async def _attack(url: str, seconds: float, kinds: list[str]) -> None:
    stranger = Stranger(url)
    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            work: Callable[[str], Awaitable[None]] = stranger.ask if kind in ASK else stranger.talk
            for _ in range(REQUESTS if kind in ASK else SOCKETS):
                tasks.start_soon(work, kind)
        await anyio.sleep(seconds)
        print(json.dumps(stranger.sent), flush=True)
        os._exit(0)  # a stranger says no goodbye


if __name__ == "__main__":
    os.nice(19)  # a stranger works on a machine of its own
    anyio.run(_attack, sys.argv[1], float(sys.argv[2]), sys.argv[3:])
