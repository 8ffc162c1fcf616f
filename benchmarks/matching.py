"""``tally bench matching``: decisions per second with the scoring that the quality figures use.

A decision is one ``place`` (hit or reasoned refusal) in a market that is kept at its steady state:
once 90 % of its devices are held, every new arrival is preceded by the end of a random running job.
Ends are not timed as decisions but their time counts. Kinds follow the openb default trace's shape:
mostly whole devices and the 0.81, 0.47 shares.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks import durable, yardstick
from marketplace.matching import Gpu, Host, Matchmaker, Placement, Request

SIZES: Final = ((1_213, 8), (12_500, 8), (100_000, 1))
FULL: Final = 0.9

KINDS: Final[tuple[tuple[int, int, int, int, float], ...]] = (
    (3152, 5600, 1, 810, 1047),
    (11300, 49152, 1, 1000, 857),
    (11400, 48128, 1, 1000, 534),
    (3152, 5600, 1, 1000, 470),
    (11908, 47104, 1, 470, 388),
    (12500, 57344, 0, 1000, 364),
    (8000, 30517, 1, 470, 360),
    (32000, 49152, 0, 1000, 284),
    (11908, 47104, 1, 650, 237),
    (9810, 41560, 1, 1000, 195),
    (15700, 58368, 1, 1000, 158),
    (4000, 22888, 1, 320, 111),
    (8000, 16384, 1, 1000, 104),
    (4000, 30517, 1, 230, 84),
    (4000, 15258, 1, 160, 53),
    (24200, 93184, 2, 1000, 84),
    (48000, 163840, 4, 1000, 40),
    (88000, 327680, 8, 1000, 36),
)
"""cores, memory, devices, share, weight: the commonest kinds of openb's default trace."""


def shape(per_host: int) -> tuple[int, int]:
    """Cores and memory of a host: a data centre's, or a home machine's with one device."""
    return (96_000, 393_216) if per_host > 1 else (16_000, 65_536)


def kinds(per_host: int) -> list[tuple[Request, float]]:
    """The mix: those kinds that a host of this size could serve; machines with one device get no
    work without one.
    """
    cores, memory = shape(per_host)
    least = 0 if per_host > 1 else 1
    return [
        (Request(cpu_milli=c, memory_mib=m, gpu_count=n, gpu_milli=share), weight)
        for c, m, n, share, weight in KINDS
        if least <= n <= per_host and c <= cores and m <= memory
    ]


def filled(
    count: int, per_host: int, rng: np.random.Generator
) -> tuple[Matchmaker, list[Placement]]:
    """A market of *count* hosts, nearly full, and what runs there."""
    mix = kinds(per_host)
    market = Matchmaker(mix=mix)
    cores, memory = shape(per_host)
    for at in range(count):
        gpus = (Gpu(model="G2" if per_host > 1 else "RTX4090", vram_mib=24_576),) * per_host
        market.add(Host(f"h{at:06}", cores, memory, gpus))
    running: list[Placement] = []
    held, capacity = 0, 1000 * count * per_host
    requests = [request for request, _ in mix]
    weights = np.array([weight for _, weight in mix])
    chosen: list[int] = rng.choice(
        len(mix), 4 * count * per_host, p=weights / weights.sum()
    ).tolist()
    for index in chosen:
        if held >= FULL * capacity:
            break
        placed = market.attempt(requests[index])
        if placed is not None:
            running.append(placed)
            held += placed.request.gpu_demand
    return market, running


def measure(count: int, per_host: int, decisions: int, seed: int = 1) -> dict[str, Any]:
    """Decisions per second and the 99th percentile of one, in milliseconds."""
    rng = np.random.default_rng(seed)
    market, running = filled(count, per_host, rng)
    mix = kinds(per_host)
    weights = np.array([weight for _, weight in mix])
    order: list[int] = rng.choice(len(mix), decisions, p=weights / weights.sum()).tolist()
    ends = rng.random(decisions)
    spent = np.zeros(decisions)
    begin = time.perf_counter_ns()
    for at in range(decisions):
        if running:
            victim = int(ends[at] * len(running))
            running[victim], running[-1] = running[-1], running[victim]
            market.release(running.pop())
        start = time.perf_counter_ns()
        answer = market.place(mix[order[at]][0])
        spent[at] = time.perf_counter_ns() - start
        if isinstance(answer, Placement):
            running.append(answer)
    elapsed = time.perf_counter_ns() - begin
    return {
        "hosts": count,
        "gpus_per_host": per_host,
        "decisions_per_s": round(decisions / (elapsed / 1e9)),
        "p99_ms": round(float(np.percentile(spent, 99)) / 1e6, 3),
    }


def run(sizes: Sequence[tuple[int, int]] = SIZES, decisions: int = 20_000) -> dict[str, Any]:
    """A row per size."""
    return {"rows": [measure(count, per_host, decisions) for count, per_host in sizes]}


def _sizes(text: str) -> list[tuple[int, int]]:
    """``1213x8,12500x8`` as pairs. ValueError for anything else, which argparse turns into its
    usual refusal.
    """
    pairs = [one.split("x") for one in text.split(",")]
    return [(int(hosts), int(devices)) for hosts, devices in pairs]


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench matching", description=__doc__)
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default=SIZES,
        help="hosts x devices, as 1213x8,12500x8",
    )
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=6_000, help="of the durable half")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(list(argv))
    report = run(chosen.sizes, chosen.decisions)
    report["yardstick"] = yardstick.measure()
    for row in report["rows"]:
        row["per_million_steps"] = yardstick.per_million_steps(
            row["decisions_per_s"], report["yardstick"]
        )
    report["durable"] = durable.run(chosen.jobs)
    if chosen.json:
        print(json.dumps(report))
    else:
        print(yardstick.said(report["yardstick"]))
        for row in report["rows"]:
            print(
                f"{row['hosts']:>8} hosts x {row['gpus_per_host']}: {row['decisions_per_s']:>7}"
                f" decisions/s, {row['per_million_steps']} per million steps, p99"
                f" {row['p99_ms']} ms"
            )
        for row in report["durable"]:
            print(f"{row['store']:>12}: {row['jobs_per_s']} durable jobs/s")
    return 0
