"""Small fakes beside the ports: a clock that is told the time, an adapter and a payer over real
sockets that do what a function says. Nothing here knows the inside of the market.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import websockets
from websockets.asyncio.client import ClientConnection, connect

from marketplace.domain.keys import Signer
from marketplace.domain.money import renewal
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import GENESIS, Receipt, SignedReceipt
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.conversation import Client, Numbering, Phase, subscribe_message
from marketplace.domain.site import origin_of
from marketplace.domain.supply import grant
from marketplace.domain.supply.hardware import Cpu, Gpu, HostHardware
from marketplace.domain.supply.offer import DEVNET_MAGIC, Offer, offer_id
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Price, Range, Resources


@dataclass
class FakeClock:
    """``Clock`` of the service: stands still until it is told."""

    ms: int = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class FakeIds:
    """``Ids`` of the service: counts."""

    count: int = 0

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count:026d}"

    def secret(self, size: int) -> bytes:
        return os.urandom(size)


def seed(name: str) -> Signer:
    """A key from a name, the same every time."""
    from marketplace.domain.canonical import blake2b_256

    return Signer(blake2b_256(name.encode()))


def gpu(index: int, model: str = "NVIDIA T4", vram_mib: int = 16_384) -> Gpu:
    return Gpu(uuid=f"GPU-{index:04d}", model=model, vram_mib=vram_mib, index=index)


def offer(signer: Signer, gpus: tuple[Gpu, ...] = (), **more: Any) -> Offer:
    """What a small honest host offers: 8 cores at 5 lovelace, T4s at 100."""
    vk = signer.verify_key.hex()
    fields: dict[str, Any] = {
        "id": offer_id(vk),
        "provider": vk,
        "magic": DEVNET_MAGIC,
        "adapter_vkh": signer.key_hash,
        "payout": b"\x07" * 28,
        "payout_address": "addr_test1vqqqqqqqq",
        "host": HostHardware(
            host=f"host-{vk[:8]}",
            cpu=Cpu("AMD EPYC", 8, 8000),
            memory_mib=32_768,
            disk_mib=100_000,
            gpus=gpus,
            region="EU",
        ),
        "gpu_rates": {g.model: 100_000_000 for g in gpus},
        "core_rate": 5_000_000,
    }
    return Offer(**{**fields, **more})


def spec(**more: Any) -> JobSpec:
    """A small job for one core."""
    fields: dict[str, Any] = {
        "name": "hello",
        "image": "sha256:" + "ab" * 32,
        "command": ("echo", "hello"),
        "resources": (Resources(cpu=Range(1000), memory=Range(256)),),
        "price": Price(budget=5_000_000),
        "policy": Policy(max_duration_ms=60_000),
    }
    return JobSpec(**{**fields, **more})


@dataclass
class Running:
    """A lease at the fake adapter."""

    terms: Terms
    job: JobSpec
    signed: SignedTerms | None = None
    unit_ms: int = 0
    wall_ms: int = 0
    last: Receipt | None = None
    finished: bool = False


@asynccontextmanager
async def dialled(url: str, **how: Any) -> AsyncGenerator[ClientConnection]:
    """A websocket that is closed with the block, also with one that is cancelled: the library's own
    gives up its goodbye then, and leaves the socket open.
    """
    live = await connect(url, **how)
    try:
        yield live
    finally:
        with anyio.CancelScope(shield=True):
            await live.close()


@dataclass
class Socket:
    """A client's conversation over a websocket, reconnecting until it is told to stop."""

    url: str
    client: Client
    on_message: Callable[[wire.Message], Awaitable[None]]
    on_welcome: Callable[[], Awaitable[None]]
    live: ClientConnection | None = None
    rejected: list[wire.Rejected] = field(default_factory=list)
    stopped: bool = False

    async def send(self, message: wire.Message) -> None:
        frame = self.client.send(message)
        if self.live is not None and self.client.phase is Phase.OPEN:
            await self._write(frame)

    async def _write(self, frame: bytes) -> None:
        try:
            if self.live is not None:
                await self.live.send(frame)
        except websockets.ConnectionClosed:
            self.live = None

    async def run(self) -> None:
        while not self.stopped:
            try:
                async with dialled(self.url, max_size=1 << 21, open_timeout=20) as live:
                    self.live = live
                    await live.send(self.client.connected())
                    await self._converse(live)
            except (OSError, websockets.WebSocketException, TimeoutError):
                pass
            self.live = None
            self.client.phase = Phase.GREETING
            await anyio.sleep(0.1)

    async def _converse(self, live: ClientConnection) -> None:
        async for frame in live:
            assert isinstance(frame, bytes)
            opened = self.client.phase is Phase.OPEN
            frames, message = self.client.receive(frame)
            for out in frames:
                await self._write(out)
            if self.client.phase is Phase.OPEN and not opened:
                await self.on_welcome()
            if isinstance(message, wire.Rejected):
                self.rejected.append(message)
            if message is not None:
                await self.on_message(message)
                await self._write(self.client.handled())


@dataclass
class FakeAdapter:
    """Signs every proposal (unless *answer* says otherwise) and ticks when it is told to."""

    market: str
    signer: Signer
    offer: Offer
    answer: Callable[[Running], str] = lambda _: ""
    leases: dict[str, Running] = field(default_factory=dict)
    vouchers: dict[bytes, Voucher] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    keeps: list[Keep] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    asked: list[wire.Message] = field(default_factory=list)
    chains: dict[bytes, Receipt] = field(default_factory=dict)
    draining: bool = False
    forget: bool = False
    renews: str = ""  # or the code with which it declines
    welcomes: int = 0
    handler: Callable[[wire.Message], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        numbering = Numbering(os.urandom(16))
        at = origin_of(self.market)
        client = Client("adapter", self.signer, DEVNET_MAGIC, "fake/1", numbering, at)
        url = self.market.replace("http", "ws", 1) + "/v1/provider"
        self.socket = Socket(url, client, self._message, self._welcome)

    async def _welcome(self) -> None:
        self.welcomes += 1
        await self.send(wire.OfferPosted(self.offer, self.draining))
        held = [x for x, run in self.leases.items() if not run.finished]
        await self.send(wire.LeasesHeld([] if self.forget else held))

    async def send(self, message: wire.Message) -> None:
        await self.socket.send(message)

    async def _message(self, message: wire.Message) -> None:
        self.asked.append(message)
        match message:
            case wire.LeaseProposed(lease, job, body):
                if lease in self.leases:
                    await self._renew(lease, body)
                    return
                terms = Terms.decode(body)
                grant.find(job, self.offer.host, terms)
                assert terms.work == job.hash
                run = Running(terms, job)
                no = self.answer(run)
                if no == "silent":
                    return
                if no:
                    await self.send(wire.LeaseDeclined(lease, no, "the fake says no"))
                    return
                self.leases[lease] = run
                signed = SignedTerms(body, self.signer.sign(body))
                await self.send(wire.LeaseAccepted(lease, signed))
            case wire.LeaseSigned(lease, signed):
                either(signed).verify()
                self.leases[lease].signed, self.leases[lease].terms = signed, either(signed).terms
            case wire.VoucherSent(_, voucher):
                voucher.verify()
                best = self.vouchers.get(voucher.session_vk)
                if best is None or best.cumulative < voucher.cumulative:
                    self.vouchers[voucher.session_vk] = voucher
            case wire.EndSent(end):
                self.ends.append(end)
            case wire.KeepSent(keep):
                self.keeps.append(keep)
            case wire.StopAsked(lease):
                self.stops.append(lease)
            case wire.LeaseCancelled(lease):
                self.cancelled.append(lease)
            case _:
                if self.handler is not None:
                    await self.handler(message)

    def paid(self, session_vk: bytes) -> int:
        """The greatest voucher so far."""
        voucher = self.vouchers.get(session_vk)
        return voucher.cumulative if voucher is not None else 0

    async def _renew(self, lease: str, body: bytes) -> None:
        run = self.leases[lease]
        if not run.signed or body == run.signed.body:
            return  # the market asks again
        if self.renews:
            await self.send(wire.LeaseDeclined(lease, self.renews, "the fake says no"))
            return
        renewal.check(run.signed.terms, Terms.decode(body))
        await self.send(wire.LeaseAccepted(lease, SignedTerms(body, self.signer.sign(body))))

    async def progress(self, lease: str, stage: str, **detail: Any) -> None:
        await self.send(wire.LeaseProgress(lease, stage, 0, detail))

    def receipt(self, lease: str, ms: int, final: bool = False, **lie: Any) -> SignedReceipt:
        """The next receipt after *ms* more milliseconds; *lie* replaces fields of it."""
        run = self.leases[lease]
        terms, before = run.terms, self.chains.get(run.terms.session_vk)
        wall, units = run.wall_ms + ms, run.unit_ms + unit_ms(ms, terms.units_milli)
        due = owed(units, terms.rate_micro)
        was = run.last.lease_owed if run.last else 0
        receipt = Receipt(
            terms.session_vk, lease, before.seq + 1 if before else 1, run.wall_ms, wall,
            wall, terms.devices, terms.resource, units, due,
            (before.channel_owed if before else 0) + due - was, (), bytes(32),
            before.hash if before else GENESIS, final,
        )  # fmt: skip
        receipt = replace(receipt, **lie)
        if not lie:
            run.wall_ms, run.unit_ms, run.last = wall, units, receipt
            self.chains[terms.session_vk] = receipt
        return SignedReceipt.sign(receipt, self.signer)

    async def tick(self, lease: str, ms: int = 1000, final: bool = False) -> Receipt:
        signed = self.receipt(lease, ms, final)
        await self.send(wire.ReceiptSent(lease, signed))
        return signed.receipt

    async def finish(self, lease: str, reason: str = "COMPLETED", code: int = 0) -> None:
        """The workload ended: final receipt and progress."""
        self.leases[lease].finished = True
        await self.progress(lease, "FINISHED", reason=reason, exit_code=code, message="")
        await self.tick(lease, 0, final=True)


@dataclass
class FakePayer:
    """Answers every receipt with a voucher for what it says (unless *pays* is false)."""

    market: str
    sessions: dict[bytes, Signer]
    pays: bool = True
    receipts: list[Receipt] = field(default_factory=list)
    progress: list[wire.LeaseProgress] = field(default_factory=list)
    subscribed: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        numbering = Numbering(os.urandom(16))
        at = origin_of(self.market)
        client = Client("payer", Signer(os.urandom(32)), DEVNET_MAGIC, "fake/1", numbering, at)
        url = self.market.replace("http", "ws", 1) + "/v1/payer"
        self.socket = Socket(url, client, self._message, self._welcome)

    async def _welcome(self) -> None:
        client = self.socket.client
        for vk, key in self.sessions.items():
            signature = key.sign(subscribe_message(client.nonce, client.market, vk))
            await self.socket.send(wire.Subscribe(vk, signature))

    async def _message(self, message: wire.Message) -> None:
        match message:
            case wire.Subscribed(vk):
                self.subscribed.append(vk)
            case wire.ReceiptSent(lease, signed):
                self.receipts.append(signed.receipt)
                if self.pays:
                    key = self.sessions[signed.receipt.session_vk]
                    voucher = Voucher.sign(key, signed.receipt.channel_owed)
                    await self.socket.send(wire.VoucherSent(lease, voucher))
            case wire.LeaseProgress():
                self.progress.append(message)
            case _:
                pass

    async def end(self, session: Signer, cumulative: int) -> None:
        await self.socket.send(wire.EndSent(End.sign(session, cumulative)))


@asynccontextmanager
async def working(*parts: FakeAdapter | FakePayer):
    """The fakes' sockets, running for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        for part in parts:
            tasks.start_soon(part.socket.run)
        try:
            yield tasks
        finally:
            for part in parts:
                part.socket.stopped = True
            tasks.cancel_scope.cancel()


async def until(what: Callable[[], Any], seconds: float = 100.0) -> Any:
    """Wait for *what* (sync or async) to be true; its value. Fails loudly after *seconds*."""
    with anyio.fail_after(seconds):
        while True:
            value = what()
            if hasattr(value, "__await__"):
                value = await value
            if value:
                return value
            await anyio.sleep(0.02)
