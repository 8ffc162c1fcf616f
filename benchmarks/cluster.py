"""``tally bench cluster``: how soon the members of a large cluster have their orders, what each
costs its market and its keeper, and how soon real meshes meet.

At protocol level: one market process, over SQLite with synchronous=FULL; adapters with a member
each (:mod:`benchmarks.cluster_load`); and this process, the consumer, with the product's payer and
keeper. Small and large clusters take turns, each with a market and adapters of its own, and the
figures are medians. What market and keeper use while nothing is posted is measured too and taken
off, or a small cluster would seem dear. The meshes: :mod:`benchmarks.cluster_mesh`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import anyio
import httpx

from benchmarks import cluster_mesh, yardstick
from benchmarks.hub import READY_WITHIN_S, Child, Consumer, child, cpu_ms
from benchmarks.hub_load import LoadLost
from benchmarks.machine import machine
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import guarded
from marketplace.client.clusters.core import Rules
from marketplace.client.clusters.keeper import Change, Keeper
from marketplace.client.jobs.core.quotes import Quote
from marketplace.client.net.http import Http
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.missed_receipts import HttpReceipts
from marketplace.client.payer.payers import Payers
from marketplace.domain.keys import Signer
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.cluster import Cluster, Stall
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Gang, Policy, Price, Range, Resources

SIZES: Final = (8, 32)
ROUNDS: Final = 3
SECONDS: Final = 20
IDLE_S: Final = 5
SETTLES_S: Final = 2
"""Until the last orders are shown, and every lease ticks."""
MESHED: Final = cluster_mesh.MEMBERS
_CAPACITY: Final = 100 * LOVELACE_PER_ADA


def _spec(members: int) -> JobSpec:
    return JobSpec(
        name="cluster",
        image="sha256:" + "ab" * 32,
        command=("sleep", "600"),
        resources=(Resources(cpu=Range(1000), memory=Range(256)),),
        price=Price(budget=members * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=3_600_000),
        gang=Gang(members, spread=True),
        cluster=Cluster(members, mesh=True),
    )


@dataclass
class Rig:
    """A market with adapters, and the consumer that is this process."""

    market: Child
    load: Child
    consumer: Consumer
    http: Http
    payers: Payers

    def cpu(self) -> tuple[int, int]:
        """Milliseconds that the market and the keeper's process had so far."""
        return cpu_ms(self.market.process.pid), round(time.process_time() * 1000)

    async def used(self, seconds: float) -> tuple[int, int]:
        """The same, within so long."""
        before = self.cpu()
        await anyio.sleep(seconds)
        return _since(self.cpu(), before)

    async def sign(self, job: dict[str, Any], session: Signer) -> None:
        """Agree to the quote of *job*: its channel's book, and the signature."""
        while not job.get("quote"):
            await anyio.sleep(0.05)
            job = await self.http.get(f"/v1/jobs/{job['id']}")
        quote = Quote.read(job["quote"])
        tx, terms = os.urandom(32).hex(), quote.terms
        facts = ChannelFacts(
            session.verify_key, self.payers.market, DEVNET_MAGIC, str(job["provider"]),
            terms.asset, _CAPACITY, keep_ms=600_000,
        )  # fmt: skip
        held = await self.payers.create(facts, session)
        await held.opened(tx, 0, _CAPACITY)
        signed = await held.agree(quote.signed, terms.ceiling, member=True)
        assert signed.session_signature is not None
        body: dict[str, Any] = {
            "session_signature": signed.session_signature.hex(), "channel_tx": tx, "secrets": {},
        }  # fmt: skip
        await self.http.post(f"/v1/leases/{terms.lease}/sign", body)


@asynccontextmanager
async def _standing(folder: Path, members: int) -> AsyncGenerator[Rig]:
    """A market with so many adapters; LoadLost."""
    me = str(os.getpid())
    serving = ("benchmarks.hub", "--serve", str(folder), "--parent", me)
    async with child("market", folder / "market.log", *serving) as market:
        url = str((await market.hear())["url"])
        loading = ("benchmarks.cluster_load", url, str(members), me)
        async with child("load", folder / "load.log", *loading) as load:
            await load.hear()
            consumer = Consumer(url)
            await consumer.sign_in()
            while await consumer.offers() < members:  # noqa: ASYNC110  a read, no event
                await anyio.sleep(0.05)
            http = Http(url, consumer.http.headers["Authorization"].removeprefix("Bearer "))
            payers = Payers(folder / "books", url, DEVNET_MAGIC, HttpReceipts(http.get))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(payers.run)
                yield Rig(market, load, consumer, http, payers)
                tasks.cancel_scope.cancel()
            await http.aclose()
            await consumer.http.aclose()


async def _round(folder: Path, members: int, seconds: float, idle_s: float) -> dict[str, Any]:
    """One cluster, from its posting on; it is not ended."""
    async with _standing(folder, members) as rig:
        idle = await rig.used(idle_s)
        spec, sessions = _spec(members), [Signer(os.urandom(32)) for _ in range(members)]
        asked: dict[str, Any] = {
            "spec": spec.to_wire(),
            "session_vks": [one.verify_key.hex() for one in sessions],
            "consumer_vkh": rig.consumer.signer.key_hash.hex(),
        }
        await rig.load.tell({"members": members})
        gang = cast("dict[str, Any]", await rig.http.post("/v1/gangs", asked))
        for job, session in zip(gang["members"], sessions, strict=True):
            await rig.sign(job, session)
        jobs = [str(job["id"]) for job in gang["members"]]
        return await _kept(rig, members, (str(gang["id"]), jobs), seconds, idle, idle_s)


async def _kept(
    rig: Rig, members: int, gang: tuple[str, list[str]], seconds: float,
    idle: tuple[int, int], idle_s: float,
) -> dict[str, Any]:  # fmt: skip
    """From the last signature on."""
    signed_ns, began = time.monotonic_ns(), rig.cpu()
    rules = Rules(members, members, Stall.PAUSE, mesh=True)
    keeper = Keeper(rig.http, rig.payers, *gang, rules)
    wrong: list[str] = []

    def told(change: Change) -> None:
        if change.code:
            wrong.append(change.words)

    keeper.listen(told)
    found: dict[str, Any] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        found |= await rig.load.hear()
        found |= await rig.load.hear()
        found["assembling_cpu_ms"] = list(_since(rig.cpu(), began))
        await anyio.sleep(SETTLES_S)
        used = await rig.used(seconds)
        found["running_cpu_permille"] = [round(ms / seconds, 1) for ms in used]
        await rig.load.tell({"tell": True})
        found |= await rig.load.hear()
        tasks.cancel_scope.cancel()
    given_ns, runs_ns = found.pop("given_ns"), found.pop("runs_ns")
    return {
        **found,
        "refused": [*found["refused"], *wrong[:3]],
        "stage": keeper.stage.name,
        "given_ms": (given_ns - signed_ns) // 1_000_000,
        "runs_ms": (runs_ns - signed_ns) // 1_000_000,
        "idle_cpu_permille": [round(ms / idle_s, 1) for ms in idle] if idle_s else [0, 0],
    }


def _since(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return now[0] - before[0], now[1] - before[1]


async def _measured(members: int, seconds: float, idle_s: float) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="tally-cluster-"))
    try:
        with anyio.fail_after(READY_WITHIN_S):
            return await _round(folder, members, seconds, idle_s)
    except TimeoutError as error:
        raise LoadLost(f"{members} members did not run in {READY_WITHIN_S:.0f} s") from error
    except httpx.HTTPError as error:
        raise LoadLost(f"a request failed: {type(error).__name__} {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    sizes: Sequence[int] = SIZES, rounds: int = ROUNDS, seconds: float = SECONDS,
    idle_s: float = IDLE_S,
) -> dict[str, Any]:  # fmt: skip
    """``{"sizes": {members: figures}, "rounds", ...}``; LoadLost. Of each size: medians of the
    times from the last signature, and of the processor time a member, in µs: until all run, and a
    second from then on, each without what is used when nothing is posted.
    """
    before = machine()
    found: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for number in range(rounds):
        for size in sizes if number % 2 == 0 else tuple(reversed(sizes)):
            found[size].append(anyio.run(_measured, size, seconds, idle_s))
    figures = {str(size): _figures(size, rows) for size, rows in found.items()}
    return {
        "sizes": figures,
        "refused": [why for rows in found.values() for row in rows for why in row["refused"]],
        "rounds": rounds,
        "seconds": seconds,
        "machine": before,
    }


def _figures(members: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    least = {key: min(row[key] for row in rows) for key in _COUNTED}
    times = {key: round(median(row[key] for row in rows)) for key in ("given_ms", "runs_ms")}
    slowest = {f"{key}_most": max(row[key] for row in rows) for key in times}
    spent: dict[str, int] = {}
    for part, at in (("market", 0), ("keeper", 1)):
        assembling, running = ([_of_member(row, at, members)[n] for row in rows] for n in (0, 1))
        spent[f"assembling_{part}_us"] = round(median(assembling))
        spent[f"running_{part}_us_per_s"] = round(median(running))
    for kind, n in (("assembling_us", 0), ("running_us_per_s", 1)):
        both = [sum(_of_member(row, at, members)[n] for at in (0, 1)) for row in rows]
        spent[kind] = round(median(both))
    return {**least, **times, **slowest, **spent, "rows": rows}


_COUNTED: Final = ("placed", "keyed", "given", "runs", "hears", "ticks")


def _of_member(row: dict[str, Any], at: int, members: int) -> tuple[float, float]:
    """Of the market (*at* 0) or the keeper (1), µs a member: until all run, and a second then."""
    idle = row["idle_cpu_permille"][at]
    assembling = row["assembling_cpu_ms"][at] * 1000 - idle * row["runs_ms"]
    return assembling / members, (row["running_cpu_permille"][at] - idle) * 1000 / members


def _print(result: dict[str, Any]) -> None:
    for size, row in result["sizes"].items():
        print(
            f"{size} members: after the last signature all have their lists in"
            f" {row['given_ms'] / 1000:.1f} s (at most {row['given_ms_most'] / 1000:.1f}) and run"
            f" in {row['runs_ms'] / 1000:.1f} ({row['runs_ms_most'] / 1000:.1f}); a member takes"
            f" {row['assembling_us'] / 1000:.1f} ms of processor time until then (market"
            f" {row['assembling_market_us'] / 1000:.1f}, keeper"
            f" {row['assembling_keeper_us'] / 1000:.1f}), and"
            f" {row['running_us_per_s'] / 1000:.2f} ms a second while it runs (market"
            f" {row['running_market_us_per_s'] / 1000:.2f}, keeper"
            f" {row['running_keeper_us_per_s'] / 1000:.2f}); {row['ticks']} ticks"
        )
    rows = list(result["sizes"].values())
    if len(rows) > 1 and min(rows[0]["assembling_us"], rows[0]["running_us_per_s"]) > 0:
        until, then = (
            rows[-1][key] / rows[0][key] for key in ("assembling_us", "running_us_per_s")
        )
        print(f"the most to the fewest, a member: {until:.2f} until all run, {then:.2f} then")
    mesh = result["mesh"]
    if "lacks" in mesh:
        print(f"no mesh was measured: this machine lacks {mesh['lacks']}")
    elif mesh:
        print(
            f"{mesh['members']} real meshes: up in {mesh['up_ms'] / 1000:.2f} s, and"
            f" {mesh['heard']} of {mesh['members'] * (mesh['members'] - 1)} directions heard"
            f" {mesh['meshed_ms'] / 1000:.2f} s later; {mesh['cpu_ms']} ms of processor time"
        )
    for why in result["refused"]:
        print(f"refused: {why}")
    print(result["machine"])


def _mesh(members: int) -> dict[str, Any]:
    if not members:
        return {}
    lacks = cluster_mesh.lacks()
    return {"lacks": lacks} if lacks else cluster_mesh.run(members)


def _stop(_signal: int, _frame: object) -> None:
    """An ordinary end, so that everything is cleaned up."""
    sys.exit(128 + signal.SIGTERM)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench cluster", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="members, each 2 to 64")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="that each cluster runs")
    parser.add_argument("--meshed", type=int, default=MESHED, help="members with real meshes; 0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    sizes = [int(size) for size in options.sizes.split(",")]
    signal.signal(signal.SIGTERM, _stop)
    result = guarded(lambda: run(sizes, options.rounds, options.seconds, IDLE_S))
    result["mesh"] = guarded(lambda: _mesh(options.meshed))
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
    else:
        print(yardstick.said(result["yardstick"]))
        _print(result)
    return 1 if result["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
