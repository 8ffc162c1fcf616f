"""``tally bench gateway``: what the way through the market costs a request to a workload's port.

The embedded market with its three processes, and a real container that answers each request with
1 kB. The same requests go straight to the container's address, and through the market and the
adapter to its port's own origin, and to that of a service of which it is the only replica: at a
fixed rate, each timed from when it was due, so that a stall counts for all that it holds up; then
as fast as some connections can, each from an address of its own: a market gives each a pace. The
ways take turns.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_process
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from adapter.runtime.docker.door import connect
from benchmarks import yardstick
from benchmarks.machine import machine, percentile
from benchmarks.start import PURSE, WITHIN_S, NoDocker
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.cli.shared.printing import print_json
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Port, Price, Range, Resources

RATE: Final = 100  # requests a second
SECONDS: Final = 5
ROUNDS: Final = 4
CONNECTIONS: Final = 16
PORT: Final = 8000
SERVER: Final = r"""
import asyncio
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n"
async def answer(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(HEAD + b"x" * 1024)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    async with await asyncio.start_server(answer, "", 8000) as server:
        await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True)
class Way:
    """Where requests go: an address, and the ``Host`` that they name."""

    address: str
    port: int
    host: str


@dataclass
class Seen:
    """Of one way, over all rounds: microseconds from when each was due, and answers a second."""

    us: list[int] = field(default_factory=list[int])
    refused: int = 0
    rates: list[int] = field(default_factory=list[int])

    def add(self, other: Seen) -> None:
        """Another round's."""
        self.us += other.us
        self.rates += other.rates
        self.refused += other.refused

    def told(self) -> dict[str, float]:
        """The figures."""
        return {
            "p50_ms": percentile(self.us, 50) / 1000,
            "p99_ms": percentile(self.us, 99) / 1000,
            "refused": self.refused,
            "most_per_s": percentile(self.rates, 50),
        }


def run(rounds: int = ROUNDS, seconds: int = SECONDS) -> dict[str, Any]:
    """``{"direct": {"p50_ms", "p99_ms", "most_per_s"}, "origin": {…}, "service": {…}, "requests",
    "machine"}``.
    """
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    before = machine()
    try:
        found = anyio.run(_measure, home, rounds, seconds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return {
        **{name: seen.told() for name, seen in found.items()},
        "requests": rounds * seconds * RATE,
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


async def _measure(home: Path, rounds: int, seconds: int) -> dict[str, Seen]:
    async with _served(home) as ways:
        found = {name: Seen() for name in ways}
        for way in ways.values():  # connections, caches, and the container's first pages
            await anyio.to_process.run_sync(_asked, way, 1)
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].add(await anyio.to_process.run_sync(_asked, way, seconds))
        return found


def _asked(way: Way, seconds: int) -> Seen:
    """Both parts of a round, in a process of its own: the payer of the job has this one."""
    seen = Seen()
    anyio.run(_paced, way, seconds, seen)
    anyio.run(_rush, way, seconds, seen)
    return seen


@asynccontextmanager
async def _served(home: Path) -> AsyncGenerator[dict[str, Way]]:
    """A running workload, and the ways to it."""
    place = Embedded(home, block_ms=500, resume_window="15s")
    place.prepare()
    try:
        await start(place, PURSE)
        if not place.image:
            raise NoDocker("no Docker answers")
        purse = await place.purse("consumer")
        async with Market(place.market_url, wallet=purse, chain_url=place.chain_url) as market:
            with anyio.fail_after(WITHIN_S, reason="nobody offered anything"):
                while not await market.offers():  # noqa: ASYNC110  a read, no event
                    await anyio.sleep(0.1)
            job, container = await _started(market, place.image)
            own = next(iter((await job.refresh()).get("ports", [])))
            dialled = urlsplit(place.market_url)
            service = await _service(market, job.id)
            direct = Way(await anyio.to_thread.run_sync(_address, container), PORT, "direct")
            await _listens(direct)
            yield {
                "direct": direct,
                **{
                    name: Way(dialled.hostname or "", dialled.port or 80, urlsplit(url).netloc)
                    for name, url in (("origin", own["url"]), ("service", service))
                },
            }
            await job.stop()
            await job.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


async def _service(market: Market, job: str) -> str:
    """The address of a service whose one replica is *job*."""
    made = await market.http.put_json("/v1/services/bench", {"auth": "public"})
    await market.http.put_json(f"/v1/services/bench/replicas/{job}", {"port": PORT})
    return str(made["url"])


async def _started(market: Market, image: str) -> tuple[Job, str]:
    """The job, and the name of its container."""
    workload, news = "", anyio.Event()

    async def heard(paid: Paid) -> None:
        nonlocal workload
        if paid.kind == "stage" and paid.code == "STARTED":
            workload = str((paid.detail or {}).get("workload", ""))
            news.set()

    silence = market.listen(heard)
    spec = JobSpec(
        name="gateway",
        kind="service",
        image=image,
        command=("python3", "-u", "-c", SERVER),
        resources=(Resources(cpu=Range(1000), memory=Range(128)),),
        ports=(Port(PORT, "public"),),
        price=Price(budget=2 * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=1_800_000),
    )
    try:
        job = await market.run(spec)
        with anyio.fail_after(WITHIN_S, reason="the service did not start"):
            await news.wait()
            await job.running()
    finally:
        silence()
    return job, workload


def _address(container: str) -> str:
    client = connect("")
    try:
        networks = client.containers.get(container).attrs["NetworkSettings"]["Networks"]
    finally:
        client.close()
    return next(str(one["IPAddress"]) for one in networks.values() if one["IPAddress"])


async def _listens(way: Way) -> None:
    """Until the container's server does."""
    with anyio.fail_after(WITHIN_S, reason="nothing listens in the container"):
        while True:
            try:
                await (await anyio.connect_tcp(way.address, way.port)).aclose()
            except OSError:
                await anyio.sleep(0.1)
            else:
                return


class _Line:
    """One connection that is kept open."""

    def __init__(self, stream: anyio.abc.ByteStream, way: Way) -> None:
        self._stream, self._read = stream, BufferedByteReceiveStream(stream)
        self._asked = f"GET / HTTP/1.1\r\nHost: {way.host}\r\n\r\n".encode()

    async def ask(self) -> bool:
        """One request and its whole answer; False where it is another's than the workload's."""
        await self._stream.send(self._asked)
        head = (await self._read.receive_until(b"\r\n\r\n", 1 << 16)).decode().lower()
        if not head.startswith("http/1.1 200 ") or "content-length: 1024" not in head:
            return False
        await self._read.receive_exactly(1024)
        return True

    async def close(self) -> None:
        """Hang up."""
        await self._stream.aclose()


async def _paced(way: Way, seconds: int, seen: Seen) -> None:
    """:data:`RATE` requests a second, over as many connections as that takes."""
    free: list[_Line] = []

    async def one(due: float) -> None:
        line = free.pop() if free else _Line(await anyio.connect_tcp(way.address, way.port), way)
        if not await line.ask():
            seen.refused += 1
            await line.close()
            return
        seen.us.append(round((time.perf_counter() - due) * 1_000_000))
        free.append(line)

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for number in range(seconds * RATE):
            due = begun + number / RATE
            await anyio.sleep(max(0.0, due - time.perf_counter()))
            tasks.start_soon(one, due)
    for line in free:
        await line.close()


async def _rush(way: Way, seconds: int, seen: Seen) -> None:
    """:data:`CONNECTIONS` that each ask again as soon as they are answered."""
    answers, until = 0, time.perf_counter() + seconds

    async def again(number: int) -> None:
        nonlocal answers
        own = f"127.0.0.{number + 2}" if way.address.startswith("127.") else None
        line = _Line(await anyio.connect_tcp(way.address, way.port, local_host=own), way)
        while time.perf_counter() < until:
            if not await line.ask():
                seen.refused += 1
                break
            answers += 1
        await line.close()

    async with anyio.create_task_group() as tasks:
        for number in range(CONNECTIONS):
            tasks.start_soon(again, number)
    seen.rates.append(answers // seconds)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each part of a round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = run(options.rounds, options.seconds)
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
        return 0
    print(yardstick.said(result["yardstick"]))
    for name in ("direct", "origin", "service"):
        one = result[name]
        print(
            f"{name}: p50 {one['p50_ms']} ms, p99 {one['p99_ms']} ms at {RATE} requests/s,"
            f" {one['refused']} refused; {one['most_per_s']} requests/s over {CONNECTIONS}"
            " connections"
        )
    print(result["machine"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
