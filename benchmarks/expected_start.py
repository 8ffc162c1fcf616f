"""``tally bench expected_start``: what quotes say of starts, held against the starts.

The embedded market with its registry and this machine's own Docker. Images of several sizes, each a
layer of random bytes on the machine's Python, are pushed and taken off the host. Each runs once
from the registry and once more where it is now; before each, its quote is read. The first pulls and
starts teach the adapter what they take here, and are shown apart. A start is from the provider's
first word of it to the running container, as the market sees both.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import tempfile
import uuid
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import docker

from benchmarks import yardstick
from benchmarks.machine import machine
from benchmarks.start import PURSE, WITHIN_S, NoDocker
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.cli.shared.printing import print_json
from marketplace.client.images.pushing import push
from marketplace.client.images.registry import MarketRegistry
from marketplace.client.jobs import jobfiles
from marketplace.client.net.answers import JobQuoteAnswer
from marketplace.client.net.expected import start_words
from marketplace.client.sdk.market import Market

SIZES_MB: Final = (40, 160, 80, 320, 20, 240, 120, 60, 200, 30)
TAUGHT: Final = 3
"""So many images come first, and count for nothing."""
_FILL: Final = """
import os
with open("/filled", "wb") as out:
    for _ in range({}):
        out.write(os.urandom(10**6))
"""
_JOB: Final = """
version: 1
name: expected
image: {}
command: ["true"]
resources: {{cpu: 0.5, memory: 64MB}}
price: {{budget: 5 ADA}}
policy: {{max_duration: 10m}}
"""


def filled(base: str, name: str, megabytes: int) -> None:
    """An image *name*, *base* with so many random bytes; blocks."""
    client: Any = docker.from_env()
    try:
        one = client.containers.create(base, ["python3", "-c", _FILL.format(megabytes)])
        one.start()
        one.wait()
        one.commit(name, "v1")
        one.remove()
    finally:
        client.close()


def silent(_done: int, _most: int) -> None:
    """What is sent is not told."""


def forget(*names: str) -> None:
    """Take them off the host; blocks."""
    client: Any = docker.from_env()
    try:
        for name in names:
            client.images.remove(name, force=True)
    finally:
        client.close()


def run(sizes: tuple[int, ...] = SIZES_MB) -> dict[str, Any]:
    """A row a start, and by how much the middle one of those that count was off."""
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    before = machine()
    try:
        rows = anyio.run(_measure, home, sizes)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    off = {
        kind: [abs(row["off"]) for row in rows if row["counts"] and row["here"] is here]
        for kind, here in (("pulled", False), ("here", True))
    }
    every = [*off["pulled"], *off["here"]]
    return {
        "rows": rows,
        "median_off": {
            **{kind: round(median(found), 3) for kind, found in off.items()},
            "all": round(median(every), 3),
        },
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def _measure(home: Path, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    place = Embedded(home, block_ms=500, resume_window="15s", registry=_free_port())
    place.prepare()
    mine = f"tally-bench/{uuid.uuid4().hex[:10]}"
    try:
        await start(place, PURSE)
        if not place.image:
            raise NoDocker("no Docker answers")
        purse = await place.purse("consumer")
        async with Market(place.market_url, wallet=purse, chain_url=place.chain_url) as market:
            with anyio.fail_after(WITHIN_S, reason="nobody offered anything"):
                while not await market.offers():  # noqa: ASYNC110  a read, no event
                    await anyio.sleep(0.1)
            account = await MarketRegistry(market.http).account()
            images: list[str] = []
            for at, size in enumerate(sizes):
                local, there = f"{mine}-{at}", account.name(f"filled-{at}:v1")
                await anyio.to_thread.run_sync(filled, place.image, local, size)
                pushed = await anyio.to_thread.run_sync(
                    push, f"{local}:v1", there, market.http.token, silent
                )
                await anyio.to_thread.run_sync(forget, f"{local}:v1", pushed.name)
                images.append(there.at(pushed.digest))
            rows = [
                await _one(market, image, size, counts=at >= TAUGHT)
                for at, (size, image) in enumerate(zip(sizes, images, strict=True))
                for _ in range(2)
            ]
            await anyio.to_thread.run_sync(forget, *images)
            return rows
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


async def _one(market: Market, image: str, size: int, *, counts: bool) -> dict[str, Any]:
    """What the quote says, and what came of it."""
    job = jobfiles.loads(_JOB.format(image)).spec()
    await anyio.sleep(2.5)  # what the last start taught is told within a second or two
    said = cast(JobQuoteAnswer, await market.quote(job)).get("expected_start")
    running = await market.run(job)
    await running.wait()
    events = await market.http.all(f"/v1/jobs/{running.id}/history")
    at = {str(one["kind"]): int(one["at_ms"]) for one in reversed(events)}
    took = at["STARTED"] - at["PULLING"]
    expected = said["ms"] if said is not None else 0
    return {
        "mb": size,
        "here": bool(said and said["here"]),
        "said": start_words(said) or "nobody can say",
        "expected_ms": expected,
        "took_ms": took,
        "off": round((expected - took) / took, 3),
        "counts": counts,
    }


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench expected_start", description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = run()
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
        return 0
    print(yardstick.said(result["yardstick"]))
    for row in result["rows"]:
        kept = "" if row["counts"] else "  (the adapter learns)"
        print(
            f"{row['mb']:>4} MB: said {row['said']:<44} took {row['took_ms']:>6} ms,"
            f" off by {row['off']:+.0%}{kept}"
        )
    off = result["median_off"]
    print(
        f"median off: {off['pulled']:.0%} of pulled ones, {off['here']:.0%} of those here,"
        f" {off['all']:.0%} of all"
    )
    print(result["machine"])
    return 0
