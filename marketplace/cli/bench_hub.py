"""``tally bench hub``: one market process with 200 jobs ticking, and how fast it answers reads.

The market is a process of its own over SQLite with synchronous=FULL. Adapters and payers are load
clients in this process: real sockets, real signatures, one receipt and one voucher a second for each
job. They share the machine with the market, so the figures are a lower bound. A tick counts once its
voucher has come back to the adapter: verified and durable twice on the way.

Over 400 lines: the load's two clients and the reader, nothing that a product file needs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.abc
import httpx
from websockets.asyncio.client import ClientConnection, connect

from marketplace.api.main import Config, serve
from marketplace.cli.bench_start import machine, percentile
from marketplace.cli.common import print_json
from marketplace.client.signin import sign_message
from marketplace.domain import wire
from marketplace.domain.conversation import Client, Numbering, Phase, Role, subscribe_message
from marketplace.domain.hardware import Cpu, HostHardware
from marketplace.domain.job import JobSpec, Policy, Price, Range, Resources
from marketplace.domain.keys import Signer
from marketplace.domain.offer import DEVNET_MAGIC, Offer
from marketplace.domain.receipt import GENESIS, Receipt, SignedReceipt
from marketplace.domain.terms import SignedTerms, Terms
from marketplace.domain.units import LOVELACE_PER_ADA, owed, unit_ms
from marketplace.domain.voucher import Voucher
from marketplace.service.market import Settings

JOBS: Final = 200
PER_ADAPTER: Final = 20
SECONDS: Final = 20
READERS: Final = 4
READ_PAUSE_S: Final = 0.1
TICK_S: Final = 1.0
READY_WITHIN_S: Final = 120.0
_ENTERPRISE: Final = b"\x60"  # an address of a payment key alone, on a test network

Handler = Callable[[wire.Message], Awaitable[None]]


@dataclass
class Line:
    """One load client's socket; it counts on a market that stays."""

    url: str
    role: Role
    signer: Signer
    handle: Handler
    client: Client = field(init=False)
    socket: ClientConnection | None = None
    open: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.client = Client(
            self.role, self.signer, DEVNET_MAGIC, "bench", Numbering(os.urandom(16))
        )

    async def send(self, message: wire.Message) -> None:
        """Number it and write it."""
        assert self.socket is not None
        await self.socket.send(self.client.send(message))

    async def run(self) -> None:
        """Serve until cancelled."""
        async with connect(self.url, max_size=wire.MAX_FRAME, open_timeout=60) as socket:
            self.socket = socket
            await socket.send(self.client.connected())
            async for frame in socket:
                assert isinstance(frame, bytes)
                answers, message = self.client.receive(frame)
                for answer in answers:
                    await socket.send(answer)
                if self.client.phase is Phase.OPEN:
                    self.open.set()
                if message is not None:
                    await self.handle(message)
                    await socket.send(self.client.handled())


@dataclass
class Load:
    """What the adapters and payers share with the one that measures."""

    url: str
    counting: bool = False
    ticks: int = 0
    round_trips: list[int] = field(default_factory=list[int])  # ms from a receipt to its voucher
    refused: list[str] = field(default_factory=list[str])
    started: int = 0

    def note(self, message: wire.Message) -> None:
        """A refusal is a fault of the bench: it is shown."""
        if isinstance(message, wire.Rejected):
            self.refused.append(f"{message.code}: {message.message}")


class Adapter:
    """Accepts every proposal and ticks each lease once a second."""

    def __init__(self, load: Load, tasks: anyio.abc.TaskGroup) -> None:
        self.signer = Signer(os.urandom(32))
        self.line = Line(_socket(load.url, "provider"), "adapter", self.signer, self._heard)
        self._load, self._tasks = load, tasks
        self._terms: dict[str, Terms] = {}
        self._sent: dict[bytes, tuple[int, float]] = {}

    def offer(self, leases: int) -> Offer:
        """Cores for *leases* jobs."""
        vk = self.signer.verify_key.hex()
        cores = leases + 1
        return Offer(
            id=f"offer_{vk[:26]}",
            provider=vk,
            magic=DEVNET_MAGIC,
            adapter_vkh=self.signer.key_hash,
            payout=bytes(28),
            payout_address="addr_test1vqqqqqqqq",
            host=HostHardware(
                host=vk[:8],
                cpu=Cpu("load", cores, cores * 1000),
                memory_mib=512 * cores,
                disk_mib=10_000 * cores,
                gpus=(),
                region="EU",
            ),
            gpu_rates={},
            core_rate=5_000_000,
        )

    async def _heard(self, message: wire.Message) -> None:
        self._load.note(message)
        match message:
            case wire.LeaseProposed(lease, _, body):
                self._terms[lease] = Terms.decode(body)
                signed = SignedTerms(body, self.signer.sign(body))
                await self.line.send(wire.LeaseAccepted(lease, signed))
            case wire.LeaseSigned(lease):
                await self.line.send(wire.LeaseProgress(lease, "STARTED", 0, {}))
                self._tasks.start_soon(self._tick, self._terms[lease])
            case wire.VoucherSent(_, voucher):
                self._paid(voucher)
            case _:
                pass

    def _paid(self, voucher: Voucher) -> None:
        due, at = self._sent.get(voucher.session_vk, (-1, 0.0))
        if self._load.counting and voucher.cumulative == due:
            self._load.ticks += 1
            self._load.round_trips.append(round((anyio.current_time() - at) * 1000))

    async def _tick(self, terms: Terms) -> None:
        self._load.started += 1
        deadline, last, begun = anyio.current_time(), GENESIS, 0
        for seq in itertools.count(1):
            deadline += TICK_S
            await anyio.sleep_until(deadline)
            wall = round(seq * TICK_S * 1000)
            units = unit_ms(wall, terms.units_milli)
            due = owed(units, terms.rate_micro)
            receipt = Receipt(
                terms.session_vk, terms.lease, seq, begun, wall, wall, terms.devices,
                terms.resource, units, due, due, (), bytes(32), last, False,
            )  # fmt: skip
            begun, last = wall, receipt.hash
            signed = SignedReceipt.sign(receipt, self.signer)
            self._sent[terms.session_vk] = (due, anyio.current_time())
            await self.line.send(wire.ReceiptSent(terms.lease, signed))


class Payer:
    """Answers every receipt of its channels with a voucher."""

    def __init__(self, load: Load) -> None:
        self.line = Line(_socket(load.url, "payer"), "payer", Signer(os.urandom(32)), self._heard)
        self._load = load
        self._sessions: dict[bytes, Signer] = {}

    async def watch(self, session: Signer) -> None:
        """Pay on this channel from now on."""
        vk = session.verify_key
        self._sessions[vk] = session
        proof = session.sign(subscribe_message(self.line.client.nonce, vk))
        await self.line.send(wire.Subscribe(vk, proof))

    async def _heard(self, message: wire.Message) -> None:
        self._load.note(message)
        match message:
            case wire.ReceiptSent(lease, signed):
                receipt = signed.receipt
                session = self._sessions[receipt.session_vk]
                voucher = Voucher.sign(session, receipt.channel_owed)
                await self.line.send(wire.VoucherSent(lease, voucher))
            case _:
                pass


def _socket(url: str, role: str) -> str:
    return url.replace("http", "ws", 1) + f"/v1/{role}"


class Consumer:
    """One account: signs in, posts, signs, reads."""

    def __init__(self, url: str) -> None:
        self.signer = Signer(os.urandom(32))
        limits = httpx.Limits(max_connections=16)
        self.http = httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=limits)
        self.jobs: list[str] = []
        self.reads: dict[str, list[int]] = {}

    async def sign_in(self) -> None:
        """By the key alone, as a purse does."""
        raw = _ENTERPRISE + self.signer.key_hash
        asked = await self._post("/v1/auth/challenge", {"address": raw.hex()})
        signed = sign_message(self.signer, raw, bytes.fromhex(str(asked["message"])))
        body = {"address": raw.hex(), "signature": signed.signature, "key": signed.key}
        token = (await self._post("/v1/auth/verify", body))["token"]
        self.http.headers["Authorization"] = f"Bearer {token}"

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        answer.raise_for_status()
        return cast("dict[str, Any]", answer.json())

    async def offers(self) -> int:
        """How many are listed."""
        return len((await self.http.get("/v1/offers?limit=200")).json()["items"])

    async def start(self, payer: Payer) -> None:
        """One job, signed for, on a channel of its own that *payer* pays on."""
        session = Signer(os.urandom(32))
        body: dict[str, Any] = {
            "spec": _SPEC.to_wire(),
            "session_vk": session.verify_key.hex(),
            "consumer_vkh": self.signer.key_hash.hex(),
            "channels": [],
        }
        view = await self._post("/v1/jobs", body)
        while not view.get("quote"):
            await anyio.sleep(0.1)
            view = (await self.http.get(f"/v1/jobs/{view['id']}")).json()
        quote = view["quote"]
        signature = session.sign(bytes.fromhex(str(quote["terms"])))
        signed = {
            "session_signature": signature.hex(),
            "channel_tx": os.urandom(32).hex(),
            "secrets": {},
        }
        await self._post(f"/v1/leases/{quote['lease']}/sign", signed)
        await payer.watch(session)
        self.jobs.append(str(view["id"]))

    async def read(self, turn: int) -> None:
        """The next of the reads that a console and an SDK make."""
        job = self.jobs[turn % len(self.jobs)]
        kinds = {
            "job": f"/v1/jobs/{job}",
            "jobs": "/v1/jobs?limit=20",
            "receipts": f"/v1/jobs/{job}/receipts?limit=20",
            "offers": "/v1/offers?limit=20",
        }
        name, path = list(kinds.items())[turn % len(kinds)]
        begun = time.perf_counter_ns()
        answer = await self.http.get(path)
        spent = (time.perf_counter_ns() - begun) // 1_000_000
        answer.raise_for_status()
        self.reads.setdefault(name, []).append(spent)


_SPEC: Final = JobSpec(
    name="load",
    image="sha256:" + "ab" * 32,
    command=("sleep", "600"),
    resources=(Resources(cpu=Range(1000), memory=Range(256)),),
    price=Price(budget=LOVELACE_PER_ADA),
    policy=Policy(max_duration_ms=3_600_000),
)


def run(jobs: int = JOBS, seconds: int = SECONDS) -> dict[str, Any]:
    """Figures; times in ms. ``refused`` is empty, or the figures are worth nothing."""
    folder = Path(tempfile.mkdtemp(prefix="tally-hub-"))
    try:
        return anyio.run(_measure, folder, jobs, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measure(folder: Path, jobs: int, seconds: int) -> dict[str, Any]:
    before, cpu = machine(), 0
    arguments = [sys.executable, "-m", "marketplace.cli.bench_hub", "--serve", str(folder)]
    log = (folder / "market.log").open("wb")
    async with await anyio.open_process(arguments, stderr=log.fileno()) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(READY_WITHIN_S):
                url = str(json.loads(await process.stdout.receive())["url"])
            load, consumer = Load(url), Consumer(url)
            async with anyio.create_task_group() as tasks:
                await _begin(load, consumer, jobs, tasks)
                cpu = _cpu_ms(process.pid)
                await _reading(load, consumer, seconds)
                cpu = _cpu_ms(process.pid) - cpu
                tasks.cancel_scope.cancel()
            await consumer.http.aclose()
        finally:
            process.kill()
    reads = [spent for some in consumer.reads.values() for spent in some]
    return {
        "jobs": jobs,
        "seconds": seconds,
        "ticks_per_s": round(load.ticks / seconds, 1),
        "tick_p50_ms": percentile(load.round_trips, 50),
        "tick_p99_ms": percentile(load.round_trips, 99),
        "reads": len(reads),
        "read_p50_ms": percentile(reads, 50),
        "read_p99_ms": percentile(reads, 99),
        "read_p99_ms_by_kind": {k: percentile(v, 99) for k, v in consumer.reads.items()},
        "market_cpu_permille": cpu // seconds,
        "refused": load.refused[:5],
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


async def _begin(load: Load, consumer: Consumer, jobs: int, tasks: anyio.abc.TaskGroup) -> None:
    """Offers, then jobs, until all of them tick."""
    with anyio.fail_after(READY_WITHIN_S):
        await consumer.sign_in()
        count = -(-jobs // PER_ADAPTER)
        adapters = [Adapter(load, tasks) for _ in range(count)]
        payers = [Payer(load) for _ in range(count)]
        for line in [one.line for one in (*adapters, *payers)]:
            tasks.start_soon(line.run)
            await line.open.wait()
        for adapter in adapters:
            await adapter.line.send(wire.OfferPosted(adapter.offer(PER_ADAPTER), False))
            await adapter.line.send(wire.LeasesHeld([]))
        while await consumer.offers() < count:  # noqa: ASYNC110  a read, no event
            await anyio.sleep(0.1)
        limit = anyio.CapacityLimiter(4)

        async def one(payer: Payer) -> None:
            async with limit:
                await consumer.start(payer)

        async with anyio.create_task_group() as starts:
            for number in range(jobs):
                starts.start_soon(one, payers[number % count])
        while load.started < jobs:  # noqa: ASYNC110  counted by the adapters
            await anyio.sleep(0.1)
        await anyio.sleep(2 * TICK_S)


async def _reading(load: Load, consumer: Consumer, seconds: int) -> None:
    turns = itertools.count()

    async def reader() -> None:
        while True:
            await consumer.read(next(turns))
            await anyio.sleep(READ_PAUSE_S)

    load.counting = True
    async with anyio.create_task_group() as readers:
        for _ in range(READERS):
            readers.start_soon(reader)
        await anyio.sleep(seconds)
        readers.cancel_scope.cancel()
    load.counting = False


def _cpu_ms(pid: int) -> int:
    """User and system time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def _serve(folder: str) -> None:
    """The market that is measured."""
    settings = Settings(requests_per_minute=1_000_000)
    config = Config(
        f"sqlite:///{folder}/market.db",
        folder,
        port=0,
        settings=settings,
        console=False,
        on_ready=lambda url, _: print(json.dumps({"url": url}), flush=True),
    )
    anyio.run(serve, config)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench hub", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.serve:
        _serve(options.serve)
        return 0
    result = run(options.jobs, options.seconds)
    if options.json:
        print_json(result)
    else:
        print(
            f"{result['jobs']} jobs: {result['ticks_per_s']} ticks/s, a voucher comes back in"
            f" {result['tick_p50_ms']} ms (p99 {result['tick_p99_ms']}); reads p50"
            f" {result['read_p50_ms']} ms, p99 {result['read_p99_ms']} ms; {result['machine']}"
        )
    return 1 if result["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
