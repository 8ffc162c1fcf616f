"""``tally bench start --new-consumer``: from ``POST /v1/jobs`` to a running workload for somebody
who never was here, at the pace of a public network.

Every run is a consumer of its own: purse, account, session, coins that are a few blocks old, and no
channel. The image is there, or without Docker the job is a plain process. Blocks come by lottery
every 20 s, the index is 20 s behind, a door takes ten requests a second (``tally up
--like-preprod``). Measured twice: as the provider serves by itself, on an allowance before the
first block, and beside it with the allowance at 0, where each lease waits for its block. The clock
runs from just before the posting to STARTED as the payer hears it.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.machine import machine, percentile
from marketplace.chain.actions.handed_open import INPUT_DEPTH
from marketplace.chain.node.blockfrost import connect
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.client.jobs.core.route_mode import RouteMode
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Market
from marketplace.domain.errors import Fault
from marketplace.domain.isolation import Isolation
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Policy, Price, Range, Resources

_COINS: Final = 20 * LOVELACE_PER_ADA
_LONGEST_MS: Final = 120_000
_WITHIN_S: Final = 400.0
_SLEEP: Final = ("python3", "-c", "import time; time.sleep(600)")


class NotStarted(Fault):
    """A provider ended a job before it ran."""

    code = "NOT_STARTED"
    remedy = "`tally bench start` again; where it comes again, its provider's log says why"


@dataclass(frozen=True)
class First:
    """One start, in milliseconds since the posting: *heard* by the payer; *steps* on the way;
    *waited*: why it waited for a block (a code), empty if it did not.
    """

    heard: int
    steps: dict[str, int]
    waited: str


def run(runs: int, beside: int, like_preprod: bool = True) -> dict[str, Any]:
    """``{"allowance": {…}, "block": {…}, "machine"}``: *runs* within the allowance, *beside* that
    wait for a block; no ``block`` without any.
    """
    before = machine()
    found = {"allowance": told(_phase(runs, "", like_preprod))}
    if beside:
        found["block"] = told(_phase(beside, "0 ADA", like_preprod))
    return {**found, "machine": {**before, "load_1m_after": machine()["load_1m"]}}


def told(found: list[First]) -> dict[str, Any]:
    """Sums of a phase."""
    heard = [one.heard for one in found]
    names = sorted({name for one in found for name in one.steps})
    return {
        "runs": heard,
        "p50_ms": percentile(heard, 50),
        "p95_ms": percentile(heard, 95),
        "waited": [one.waited for one in found if one.waited],
        "steps_p50_ms": {
            name: round(statistics.median(o.steps[name] for o in found if name in o.steps))
            for name in names
        },
    }


def _phase(runs: int, allowance: str, like_preprod: bool) -> list[First]:
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    try:
        return anyio.run(partial(_measure, home, runs, allowance, like_preprod))
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _measure(home: Path, runs: int, allowance: str, like_preprod: bool) -> list[First]:
    place = Embedded(
        home, block_ms=500, resume_window="1m", like_preprod=like_preprod, allowance=allowance
    )
    place.prepare()
    try:
        await start(place, 0)
        purses = [await place.consumer(_COINS, f"consumer-{n}") for n in range(runs)]
        await deep(place)
        if like_preprod:
            await place.slow_down()
        return [await one_start(place, purse, spec_of(place.image)) for purse in purses]
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


async def deep(place: Embedded) -> None:
    """Until the coins of all are as old as a provider wants them."""
    chain = await connect(place.chain_url)
    height = (await chain.tip()).height
    with anyio.fail_after(60, reason="the chain grew too slowly"):
        while (await chain.tip()).height < height + INPUT_DEPTH:  # noqa: ASYNC110  it tells nobody
            await anyio.sleep(0.1)


def spec_of(image: str, *providers: str) -> JobSpec:
    """A job that sleeps, at one of *providers* or wherever it fits."""
    return JobSpec(
        name="first",
        image=image,
        command=_SLEEP,
        resources=(Resources(cpu=Range(500), memory=Range(128)),),
        price=Price(budget=LOVELACE_PER_ADA),
        placement=Placement(
            isolation=Isolation.CONTAINER if image else Isolation.PROCESS, providers=providers
        ),
        policy=Policy(max_duration_ms=_LONGEST_MS),
    )


async def one_start(
    place: Embedded, purse: Any, spec: JobSpec, route: RouteMode = RouteMode.AUTO
) -> First:
    """One consumer from a posting to that job's end; it never waits for the chain there."""
    steps: dict[str, int] = {}
    waited: list[str] = []
    news = anyio.Event()

    async def heard(paid: Paid) -> None:
        if paid.kind == "stage":
            steps.setdefault(paid.code, _now_ms() - begun)
            if paid.code == "OPEN_WAITS":
                waited.append(str((paid.detail or {}).get("code", "")))
            if paid.code in ("STARTED", "FINISHED"):
                news.set()

    async with Market(
        place.market_url,
        wallet=purse,
        chain_url=place.chain_url,
        project_id=purse.name,
        keep="10m",
        route=route,
    ) as market:
        market.listen(heard)
        begun = _now_ms()
        job = await market.run(spec)
        steps["SIGNED"] = _now_ms() - begun
        with anyio.fail_after(_WITHIN_S, reason="the job did not start or did not end"):
            await news.wait()
            if "STARTED" not in steps:
                raise NotStarted(f"it ended before it started: {', '.join(waited) or 'no reason'}")
            await job.stop()
            await job.wait()
    return First(steps["STARTED"], steps, waited[0] if waited else "")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def said(result: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{words}: p50 {found['p50_ms']} ms, p95 {found['p95_ms']} ms of {len(found['runs'])}"
        f" new consumers; steps {found['steps_p50_ms']}"
        + (f"; waited for a block: {', '.join(found['waited'])}" if found["waited"] else "")
        for words, found in (
            ("within the allowance", result["allowance"]),
            ("waiting for a block", result.get("block")),
        )
        if found is not None
    ]
    return "\n".join([*lines, str(result["machine"])])
