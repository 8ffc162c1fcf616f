"""``tally bench start --new-consumer --routed``: from ``POST /v1/jobs`` to a running workload at a
provider that this consumer never saw, over its hop to the market's router, at the pace of a public
network.

Every run is a consumer of its own: purse, account, a hop to the router that is final, and one job
done over it at another provider. Two providers, one host; the router has a hop to each. No
transaction belongs to such a start: those that the consumer or the router made are counted, by
their own logs. The chain and the clock are as in :mod:`benchmarks.first_start`.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.first_start import First, one_start, spec_of, told
from benchmarks.machine import machine
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.client.net.http import Http, MarketRefused
from marketplace.domain.units import LOVELACE_PER_ADA

_COINS: Final = 20 * LOVELACE_PER_ADA
_FIRST, _SECOND = "adapter", "adapter-b"
_AT_ONCE: Final = 4
_WITHIN_S: Final = 120.0


@dataclass
class Found:
    """*starts*, and how many transactions were made meanwhile, by whom."""

    starts: list[First] = field(default_factory=list[First])
    by_consumers: int = 0
    by_router: int = 0


def run(runs: int, like_preprod: bool = True) -> dict[str, Any]:
    """``{"routed": {…, "transactions": {…}}, "machine"}``."""
    before = machine()
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    try:
        found = anyio.run(partial(_measure, home, runs, like_preprod))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    made = {"consumers": found.by_consumers, "router": found.by_router}
    return {
        "routed": {**told(found.starts), "transactions": made},
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


async def _measure(home: Path, runs: int, like_preprod: bool) -> Found:
    place = Embedded(home, block_ms=500, resume_window="1m", like_preprod=like_preprod, routes=True)
    place.prepare()
    try:
        await start(place, 0)
        await place.start_adapter(_SECOND)
        providers = await _ready(place)
        names = [f"consumer-{n}" for n in range(runs)]
        limit = anyio.CapacityLimiter(_AT_ONCE)

        async def first(name: str) -> None:
            async with limit:
                purse = await place.consumer(_COINS, name)
                spec = spec_of(place.image, providers[_FIRST])
                await one_start(place, purse, spec, RouteMode.ROUTED)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(first, name)
        if like_preprod:
            await place.slow_down()
        found = Found(by_consumers=-_made(home, names), by_router=-_made(home, ["market/route"]))
        for name in names:
            spec = spec_of(place.image, providers[_SECOND])
            purse = await place.purse(name)
            found.starts.append(await one_start(place, purse, spec, RouteMode.ROUTED))
        found.by_consumers += _made(home, names)
        found.by_router += _made(home, ["market/route"])
        return found
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


async def _ready(place: Embedded) -> dict[str, str]:
    """The providers by part, once the router has a hop that carries to each."""
    http = Http(place.market_url)
    try:
        with anyio.fail_after(_WITHIN_S, reason="the router has no hop to each provider"):
            while await _hops_out(http) < 2:  # noqa: ASYNC110  a read, no event
                await anyio.sleep(0.2)
        return {
            name: str(
                (await http.get(f"/v1/offers/{place.parts[name].ready['offer']}"))["provider"]
            )
            for name in (_FIRST, _SECOND)
        }
    finally:
        with anyio.CancelScope(shield=True):
            await http.aclose()


async def _hops_out(http: Http) -> int:
    try:
        return int((await http.get("/v1/router"))["hops_out"])
    except MarketRefused as refused:
        if refused.code != "NO_ROUTER":
            raise
        return 0


def _made(home: Path, folders: list[str]) -> int:
    """Transactions in the logs of these purses."""
    logs = [log for name in folders for log in (home / name).glob("transactions/*.jsonl")]
    return len({row.split(",")[0] for log in logs for row in log.read_text().splitlines()})


def said(result: dict[str, Any]) -> str:
    """For people."""
    found = result["routed"]
    made = found["transactions"]
    return (
        f"routed, at a provider never seen: p50 {found['p50_ms']} ms, p95 {found['p95_ms']} ms of"
        f" {len(found['runs'])} consumers; {made['consumers']} transactions by them,"
        f" {made['router']} by the router; steps {found['steps_p50_ms']}\n{result['machine']}"
    )
