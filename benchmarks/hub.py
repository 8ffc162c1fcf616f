"""``tally bench hub``: one market process with 200 jobs ticking, and how fast it answers reads.

Three processes: the market, over SQLite with synchronous=FULL; the load, adapters and payers with
real sockets and real signatures, one receipt and one voucher a second for each job
(:mod:`benchmarks.hub_load`); and this one, a consumer that posts the jobs and then reads.
They share the machine, so the figures are a lower bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.abc
import httpx
from anyio.streams.buffered import BufferedByteReceiveStream

from benchmarks import yardstick
from benchmarks.hub_load import PER_ADAPTER, TICK_S, LoadLost
from benchmarks.start import machine, percentile
from marketplace.cli.embedded.child import die_with
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import guarded
from marketplace.client.net.signin import sign_message
from marketplace.domain.keys import Signer
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Price, Range, Resources
from marketplace.market.base.settings import Settings
from marketplace.process.main import Config, serve

JOBS: Final = 200
SECONDS: Final = 20
READERS: Final = 4
READ_PAUSE_S: Final = 0.1
STARTS_AT_ONCE: Final = 4
READY_WITHIN_S: Final = 240.0
_ENTERPRISE: Final = b"\x60"  # an address of a payment key alone, on a test network
_LINE: Final = 1 << 24


@dataclass(eq=False)
class Child:
    """One of the other processes, and the lines of JSON that are exchanged with it."""

    name: str
    process: anyio.abc.Process
    log: Path
    lines: BufferedByteReceiveStream = field(init=False)

    def __post_init__(self) -> None:
        assert self.process.stdout is not None
        self.lines = BufferedByteReceiveStream(self.process.stdout)

    async def hear(self) -> dict[str, Any]:
        """Its next line; LoadLost when it says that it failed, or ended."""
        try:
            line = await self.lines.receive_until(b"\n", _LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead) as error:
            said = self.log.read_text(errors="replace").strip().splitlines()
            last = f": {said[-1][:300]}" if said else ""
            raise LoadLost(f"the process of the {self.name} ended{last}") from error
        told = cast("dict[str, Any]", json.loads(line))
        if "failed" in told:
            raise LoadLost(str(told["failed"]))
        return told

    async def tell(self, what: dict[str, Any]) -> None:
        """One line to it."""
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send(json.dumps(what).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # why it ended is in its last line


@asynccontextmanager
async def child(name: str, log: Path, *arguments: str) -> AsyncGenerator[Child]:
    """``python -m`` *arguments*, which ends with this process and no later than the block."""
    with log.open("wb") as file:
        command = [sys.executable, "-m", *arguments]
        async with await anyio.open_process(command, stderr=file.fileno()) as process:
            try:
                yield Child(name, process, log)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


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

    async def start(self) -> Signer:
        """One job, signed for, on a channel of its own whose session key is returned."""
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
        signed: dict[str, Any] = {
            "session_signature": signature.hex(),
            "channel_tx": os.urandom(32).hex(),
            "secrets": {},
        }
        await self._post(f"/v1/leases/{quote['lease']}/sign", signed)
        self.jobs.append(str(view["id"]))
        return session

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
        spent = (time.perf_counter_ns() - begun) // 1_000
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
    """Figures; times in ms, of reads in µs. ``refused`` is empty, or the figures are worth nothing.
    LoadLost.
    """
    folder = Path(tempfile.mkdtemp(prefix="tally-hub-"))
    try:
        return anyio.run(_measure, folder, jobs, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Rig:
    """A market in a process of its own at *url*, and leases that tick in another."""

    url: str
    market: Child
    load: Child
    consumer: Consumer
    start_ms: int

    async def count(self) -> None:
        """From here on."""
        await self.load.tell({"count": True})

    async def counted(self) -> dict[str, Any]:
        """What the load counted since; LoadLost when it failed meanwhile."""
        await self.load.tell({"count": False})
        with anyio.fail_after(READY_WITHIN_S):
            return cast("dict[str, Any]", (await self.load.hear())["counted"])


@asynccontextmanager
async def ticking(
    folder: Path, jobs: int, serving: str = "benchmarks.hub", tick_s: float = TICK_S
) -> AsyncGenerator[Rig]:
    """*jobs* leases that tick at a market, which the module *serving* starts; LoadLost."""
    me, count = str(os.getpid()), -(-jobs // PER_ADAPTER)
    serve_it = (serving, "--serve", str(folder), "--parent", me)
    async with child("market", folder / "market.log", *serve_it) as market:
        try:
            with anyio.fail_after(READY_WITHIN_S):
                url = str((await market.hear())["url"])
            consumer = Consumer(url)
            loading = ("benchmarks.hub_load", url, str(count), me, str(tick_s))
            async with child("load", folder / "load.log", *loading) as load:
                with anyio.fail_after(READY_WITHIN_S):
                    await load.hear()
                    begun = anyio.current_time()
                    await _begin(load, consumer, jobs, count)
                    start_ms = round((anyio.current_time() - begun) * 1000)
                await anyio.sleep(2 * tick_s)
                yield Rig(url, market, load, consumer, start_ms)
            await consumer.http.aclose()
        except TimeoutError as error:
            raise LoadLost(f"{jobs} jobs did not tick within {READY_WITHIN_S:.0f} s") from error
        except httpx.HTTPError as error:
            raise LoadLost(f"a request failed: {type(error).__name__} {error}") from error


async def _measure(folder: Path, jobs: int, seconds: int) -> dict[str, Any]:
    before = machine()
    async with ticking(folder, jobs) as rig:
        pids = (rig.market.process.pid, rig.load.process.pid)
        cpu = [cpu_ms(pid) for pid in pids]
        counted = await _reading(rig, seconds)
        cpu = [cpu_ms(pid) - had for pid, had in zip(pids, cpu, strict=True)]
    trips: list[int] = counted["round_trips"]
    if not trips:
        raise LoadLost("no tick came back")
    reads = [spent for some in rig.consumer.reads.values() for spent in some]
    return {
        "jobs": jobs,
        "seconds": seconds,
        "start_ms": rig.start_ms,
        "ticks_per_s": round(len(trips) / seconds, 1),
        "tick_p50_ms": percentile(trips, 50),
        "tick_p99_ms": percentile(trips, 99),
        "late": counted["late"],
        "reads": len(reads),
        "read_p50_us": percentile(reads, 50),
        "read_p99_us": percentile(reads, 99),
        "read_p99_us_by_kind": {k: percentile(v, 99) for k, v in rig.consumer.reads.items()},
        "market_cpu_permille": cpu[0] // seconds,
        "load_cpu_permille": cpu[1] // seconds,
        "refused": counted["refused"][:5],
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


async def _begin(load: Child, consumer: Consumer, jobs: int, payers: int) -> None:
    """Jobs, until all of them tick."""
    await consumer.sign_in()
    while await consumer.offers() < payers:  # noqa: ASYNC110  a read, no event
        await anyio.sleep(0.1)
    left = iter(range(jobs))

    async def one() -> None:
        for number in left:
            session = await consumer.start()
            await load.tell({"watch": [number % payers, session.seed.hex()]})

    async with anyio.create_task_group() as starts:
        for _ in range(STARTS_AT_ONCE):
            starts.start_soon(one)
        while (await load.hear()).get("started", 0) < jobs:
            pass


async def _reading(rig: Rig, seconds: int) -> dict[str, Any]:
    """Read for *seconds*; what the load counted meanwhile."""
    turns = itertools.count()

    async def reader() -> None:
        while True:
            await rig.consumer.read(next(turns))
            await anyio.sleep(READ_PAUSE_S)

    await rig.count()
    async with anyio.create_task_group() as readers:
        for _ in range(READERS):
            readers.start_soon(reader)
        with anyio.move_on_after(seconds):
            await rig.load.hear()  # it has nothing to say but that it failed
        readers.cancel_scope.cancel()
    return await rig.counted()


def cpu_ms(pid: int) -> int:
    """User and system time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def _serve(folder: str) -> None:
    """The market that is measured."""
    most = 1_000_000  # its consumers pay nothing, and are no squatters
    settings = Settings(
        requests_per_minute=10_000, quotes_new=most, quotes_address=most, starts_in_turn=False
    )
    config = Config(
        f"sqlite:///{folder}/market.db",
        folder,
        port=0,
        settings=settings,
        console=False,
        on_ready=lambda url, _: print(json.dumps({"url": url}), flush=True),
    )
    anyio.run(serve, config)


def _stop(_signal: int, _frame: object) -> None:
    """An ordinary end, so that everything is cleaned up."""
    sys.exit(128 + signal.SIGTERM)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench hub", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.serve:
        die_with(options.parent)
        _serve(options.serve)
        return 0
    signal.signal(signal.SIGTERM, _stop)
    result = guarded(lambda: run(options.jobs, options.seconds))
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
    else:
        print(yardstick.said(result["yardstick"]))
        print(
            f"{result['jobs']} jobs: {result['ticks_per_s']} ticks/s, a voucher comes back in"
            f" {result['tick_p50_ms']} ms (p99 {result['tick_p99_ms']}); reads p50"
            f" {result['read_p50_us'] / 1000:.1f} ms, p99 {result['read_p99_us'] / 1000:.1f} ms;"
            f" {result['machine']}"
        )
    return 1 if result["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
