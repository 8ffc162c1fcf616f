"""``tally bench start``: from ``POST /v1/jobs`` to a running container, over a warm channel.

The embedded market with its three processes, a kept channel that is open and confirmed, and an
image that is there. The clock runs from just before the posting to STARTED as the payer hears it;
Docker's own StartedAt stands beside it, as an account that the adapter has no hand in. Everything
between is the real way: match, terms signed by both, secrets, network, container.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.door import connect
from benchmarks import first_routed, first_start, yardstick
from benchmarks.machine import machine, percentile
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.cli.shared.printing import print_json
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Market
from marketplace.domain.errors import Refusal
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Policy, Price, Range, Resources

RUNS: Final = 20
WITHIN_S: Final = 60.0
PURSE: Final = 300 * LOVELACE_PER_ADA
_SLEEP: Final = ("python3", "-c", "import time; time.sleep(600)")


class NoDocker(Refusal):
    """There is nothing to start containers with."""

    code = "NO_DOCKER"
    remedy = "start Docker; `tally adapter doctor` says what it lacks"


@dataclass(frozen=True)
class Run:
    """One start, in milliseconds since the posting: *heard* by the payer, *docker* by its own
    clock, and the steps of the way as far as the client sees them.
    """

    heard: int
    docker: int
    steps: dict[str, int]


def run(runs: int = RUNS) -> dict[str, Any]:
    """``{"runs": [ms], "docker": [ms], "p50_ms", "p95_ms", "steps": {…p50}, "machine"}``."""
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    before = machine()
    try:
        found = anyio.run(_measure, home, runs)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    heard = [one.heard for one in found]
    docker = [one.docker for one in found]
    return {
        "runs": heard,
        "docker_started": docker,
        "p50_ms": percentile(heard, 50),
        "p95_ms": percentile(heard, 95),
        "docker_p50_ms": percentile(docker, 50),
        "docker_p95_ms": percentile(docker, 95),
        "steps_p50_ms": {
            name: round(statistics.median(one.steps[name] for one in found))
            for name in found[0].steps
        },
        "machine": {**before, "load_1m_after": machine()["load_1m"]},
    }


async def _measure(home: Path, runs: int) -> list[Run]:
    place = Embedded(home, block_ms=500, resume_window="15s")
    place.prepare()
    try:
        await start(place, PURSE)
        if not place.image:
            raise NoDocker("no Docker answers")
        purse = await place.purse("consumer")
        async with Market(
            place.market_url, wallet=purse, chain_url=place.chain_url, keep="10m"
        ) as market:
            with anyio.fail_after(WITHIN_S, reason="nobody offered anything"):
                while not await market.offers():  # noqa: ASYNC110  a read, no event
                    await anyio.sleep(0.1)
            await _warm(market, place.image)
            return [await _one(market, place.image, n) for n in range(runs)]
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


def _spec(image: str, name: str, longest_ms: int) -> JobSpec:
    return JobSpec(
        name=name,
        image=image,
        command=_SLEEP,
        resources=(Resources(cpu=Range(500), memory=Range(128)),),
        price=Price(budget=LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=longest_ms),
    )


async def _warm(market: Market, image: str) -> None:
    """The first job opens the channel, with room for all runs, and the first connections."""
    await _one(market, image, -1, 4 * 3_600_000)
    with anyio.fail_after(WITHIN_S, reason="the first job's channel was in no block"):
        while not any(h.facts.state == "OPEN" for h in market.payers.all):  # noqa: ASYNC110
            await anyio.sleep(0.1)
    await anyio.sleep(2.0)  # the adapter has seen the last voucher; nothing of it overlaps a run


async def _one(market: Market, image: str, number: int, longest_ms: int = 120_000) -> Run:
    started: dict[str, tuple[int, str]] = {}
    news = anyio.Event()

    async def heard(paid: Paid) -> None:
        if paid.kind == "stage" and paid.code not in started:
            started[paid.code] = (_now_ms(), str((paid.detail or {}).get("workload", "")))
            if paid.code == "STARTED":
                news.set()

    silence = market.listen(heard)
    begun = _now_ms()
    try:
        job = await market.run(_spec(image, f"start-{number}", longest_ms))
        signed = _now_ms()
        with anyio.fail_after(WITHIN_S, reason=f"job {number} did not start"):
            await news.wait()
    finally:
        silence()
    steps = {"SIGNED": signed - begun}
    steps |= {name: at - begun for name, (at, _) in started.items()}
    workload = started["STARTED"][1]
    docker_ms = await anyio.to_thread.run_sync(_docker_started_ms, workload)
    await job.stop()
    with anyio.fail_after(WITHIN_S, reason=f"job {number} did not end"):
        await job.wait()
    return Run(started["STARTED"][0] - begun, docker_ms - begun, steps)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _docker_started_ms(container: str) -> int:
    """Docker's StartedAt in Unix milliseconds."""
    client = connect("")
    try:
        state = client.containers.get(container).attrs["State"]
    finally:
        client.close()
    if not state["Running"]:
        raise RuntimeFault(f"Docker says that {container[:12]} does not run")
    text = str(state["StartedAt"]).rstrip("Z")
    whole, _, fraction = text.partition(".")
    at = datetime.fromisoformat(f"{whole}+00:00")
    return int(at.timestamp()) * 1000 + int((fraction + "000")[:3])


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench start", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument(
        "--new-consumer",
        action="store_true",
        help="each run by somebody who never was here, at a"
        " public network's pace, within the allowance and waiting for a block",
    )
    parser.add_argument(
        "--routed",
        action="store_true",
        help="with --new-consumer: over a hop to the market's router that is final, at a provider"
        " that the consumer never saw",
    )
    parser.add_argument("--beside", type=int, default=RUNS, help="runs that wait for a block")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.routed and not options.new_consumer:
        parser.error("--routed goes with --new-consumer")
    if options.routed:
        result = first_routed.run(options.runs)
    elif options.new_consumer:
        result = first_start.run(options.runs, options.beside)
    else:
        result = run(options.runs)
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
    elif options.new_consumer:
        print(yardstick.said(result["yardstick"]))
        print((first_routed if options.routed else first_start).said(result))
    else:
        print(yardstick.said(result["yardstick"]))
        print(
            f"p50 {result['p50_ms']} ms, p95 {result['p95_ms']} ms of {options.runs} starts; by"
            f" Docker's clock {result['docker_p50_ms']} and {result['docker_p95_ms']} ms;"
            f" steps {result['steps_p50_ms']}; {result['machine']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
