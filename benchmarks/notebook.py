"""``tally bench notebook``: from asking for a notebook to a page that can be used.

The embedded market with its three processes, JupyterLab's image on the host, and the channel of the
first run kept for the others, as a person's second notebook of a day has it. The clock runs from
before the posting until JupyterLab answers through the market; the time until the container runs
stands beside it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks import yardstick
from benchmarks.machine import machine, percentile
from benchmarks.start import PURSE, WITHIN_S, NoDocker
from marketplace.cli.commands.page_session import ready
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.up import start
from marketplace.cli.shared.printing import print_json
from marketplace.client.jobs.sessions import NOTEBOOK
from marketplace.client.sdk.market import Market

RUNS: Final = 10
IDLE_MS: Final = 600_000


def run(runs: int = RUNS) -> dict[str, Any]:
    """``{"usable_ms": {"p50", "p95", "first"}, "running_ms": {…}, "runs", "machine"}``; *first*
    opened its channel and is not among the others.
    """
    home = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    before = machine()
    try:
        found = anyio.run(_measure, home, runs + 1)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    told: dict[str, Any] = {"runs": runs}
    for at, name in enumerate(("running_ms", "usable_ms")):
        first, *others = [one[at] for one in found]
        told[name] = {
            "p50": percentile(others, 50), "p95": percentile(others, 95), "first": first
        }  # fmt: skip
    return {**told, "machine": {**before, "load_1m_after": machine()["load_1m"]}}


async def _measure(home: Path, runs: int) -> list[tuple[int, int]]:
    place = Embedded(home, block_ms=500, resume_window="15s", sessions=(NOTEBOOK,))
    place.prepare()
    try:
        await start(place, PURSE)
        if not place.session_images:
            raise NoDocker("no Docker answers")
        purse = await place.purse("consumer")
        async with Market(place.market_url, wallet=purse, chain_url=place.chain_url) as market:
            with anyio.fail_after(WITHIN_S, reason="nobody offered anything"):
                while not await market.offers():  # noqa: ASYNC110  a read, no event
                    await anyio.sleep(0.1)
            return [await _one(market) for _ in range(runs)]
    finally:
        with anyio.CancelScope(shield=True):
            await place.stop()
            await place.sweep()


async def _one(market: Market) -> tuple[int, int]:
    """Milliseconds until the container runs, and until the page answers."""
    began = time.perf_counter()
    job = await market.run(NOTEBOOK.job(NOTEBOOK.local, IDLE_MS, ()))
    await job.running()
    runs = time.perf_counter()
    await ready(market, job, NOTEBOOK)
    usable = time.perf_counter()
    await job.stop()
    await job.wait()
    return round((runs - began) * 1000), round((usable - began) * 1000)


def main(argv: list[str]) -> int:
    """The command line of the bench."""
    parser = argparse.ArgumentParser(prog="tally bench notebook", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    result = run(options.runs)
    result["yardstick"] = yardstick.measure()
    if options.json:
        print_json(result)
        return 0
    print(yardstick.said(result["yardstick"]))
    for name, what in (("running_ms", "its container runs"), ("usable_ms", "its page can be used")):
        one = result[name]
        print(
            f"until {what}: p50 {one['p50']} ms, p95 {one['p95']} ms over {result['runs']} runs;"
            f" the first, with a new channel: {one['first']} ms"
        )
    print(result["machine"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
