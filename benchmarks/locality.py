"""``tally bench locality``: how soon jobs run and what they pay, placed with and without regard to
where their images are.

A part of openb's hosts, each with a price and a line of its own, serves openb's tasks with their
devices and times; they arrive so fast that a given part of the devices is held. Each task runs one
of many images, popular as words are (Zipf), whose layers some share. A host keeps what it pulled
until its room is full, then drops what was unused longest. The same tasks on the same hosts under
each rule: only where a task lands differs.

Waiting is counted from the placement: what the host lacks, at its own rate, and its own start. The
price is of the run alone. The last column values a second of waiting as the rules in the middle do,
as a second of running.

The trace is not shipped: GitHub hkust-adsl/kubernetes-scheduler-simulator, data/csv (Apache-2.0).
Without it (``--made``) tasks of ``tally bench matching``'s kinds are made.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles
from typing import Any, Final

from benchmarks import openb, yardstick
from benchmarks.matching import KINDS
from benchmarks.openb import data_folder
from marketplace.matching import Gpu, Host, Image, Matchmaker, Placement, Policy, Request, Stock
from marketplace.matching.model import WHOLE

MB: Final = 1_000_000
LIMITS_S: Final = (900, 3600, 14_400, 86_400)
"""A task says the least of these that its time fits into, as its longest run."""
LONGEST_S: Final = LIMITS_S[-1]
RATE_MICRO: Final = 220_000_000
"""Of the middle device a second: 220 lovelace."""


@dataclass(frozen=True)
class Rule:
    """*told*: the matchmaker knows of images; *factor*: a second of waiting is worth so many of
    running.
    """

    name: str
    told: bool
    factor: float


RULES: Final = (
    Rule("blind", False, 0.0),
    Rule("ties only (wait_per_second: 0)", True, 0.0),
    Rule("as running (the default)", True, 1.0),
    Rule("ten times as running", True, 10.0),
    Rule("a hundred times", True, 100.0),
)


@dataclass(frozen=True)
class Task:
    """*at_s* it arrives and runs for *runs_s*; *image* by its number."""

    at_s: float
    runs_s: float
    image: int
    request: Request


@dataclass
class Shelf:
    """A host's images: *room* in bytes, *used* of it, in the order of their use."""

    room: int
    rate: int
    start_ms: int
    images: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])


@dataclass(frozen=True)
class World:
    """What all rules meet."""

    hosts: list[Host]
    shelves: list[tuple[int, int, int]]  # room, bytes a second, ms of a start
    images: list[Image]
    tasks: list[Task]


def tasks_of(data: Path) -> list[tuple[Request, float]]:
    """The trace's tasks with devices: what they need, and how long they ran."""
    requests = openb.requests(data, "default")
    with (data / "openb_pod_list_default.csv").open() as file:
        rows = list(csv.DictReader(file))
    ran = [float(row["deletion_time"]) - float(row["creation_time"]) for row in rows]
    return [
        (request, min(LONGEST_S, max(10.0, ran_s)))
        for request, ran_s in zip(requests, ran, strict=True)
        if request.gpu_count
    ]


def made(rng: Random, count: int = 4_000) -> list[tuple[Request, float]]:
    """Tasks of the commonest kinds, for a median of nine minutes."""
    kinds = [one for one in KINDS if one[2]]
    chosen = rng.choices(kinds, [one[4] for one in kinds], k=count)
    return [
        (Request(c, m, n, milli), min(LONGEST_S, max(10.0, rng.lognormvariate(log(540), 1.9))))
        for c, m, n, milli, _ in chosen
    ]


def world(
    kinds: Sequence[tuple[Request, float]], fleet: Sequence[Host], asked: argparse.Namespace
) -> World:
    """Hosts with prices and lines, images with shared layers, and tasks as they arrive."""
    rng = Random(asked.seed)
    hosts: list[Host] = []
    for host in rng.sample(list(fleet), min(asked.hosts, len(fleet))):
        rate = int(RATE_MICRO * rng.lognormvariate(0.0, asked.spread))
        gpus = tuple(replace(gpu, rate=rate) for gpu in host.gpus)
        hosts.append(replace(host, gpus=gpus, core_rate=0))
    shelves = [
        (
            int(asked.room_gb * 1000 * MB),
            int(min(500 * MB, max(5 * MB, rng.lognormvariate(log(70 * MB), 0.7)))),
            rng.randint(1_500, 5_000),
        )
        for _ in hosts
    ]
    images = _images(rng, asked.images)
    ranks = [1.0 / rank for rank in range(1, asked.images + 1)]
    devices = sum(len(host.gpus) for host in hosts)
    chosen = rng.choices(kinds, k=asked.tasks)
    need = sum(request.gpu_demand / WHOLE * runs for request, runs in chosen) / asked.tasks
    which = rng.choices(range(asked.images), ranks, k=asked.tasks)
    tasks: list[Task] = []
    at_s = 0.0
    for (request, runs_s), image in zip(chosen, which, strict=True):
        at_s += rng.expovariate(devices * asked.load / need)
        tasks.append(Task(at_s, runs_s, image, request))
    return World(hosts, shelves, images, tasks)


def _images(rng: Random, count: int) -> list[Image]:
    """Each one of a few bases and three layers of its own: a median of 5 GB."""
    bases = [
        (f"base{at}".encode(), int(rng.lognormvariate(log(2_500 * MB), 0.4))) for at in range(8)
    ]
    found: list[Image] = []
    for at in range(count):
        parts = [rng.expovariate(1.0) for _ in range(3)]
        whole = rng.lognormvariate(log(2_200 * MB), 0.9) / sum(parts)
        own = tuple((f"{at}.{n}".encode(), int(part * whole)) for n, part in enumerate(parts))
        found.append(Image(f"image{at}".encode(), (rng.choice(bases), *own)))
    return found


class Replay:
    """One rule over one world."""

    def __init__(self, world: World, rule: Rule) -> None:
        self.world, self.rule = world, rule
        self.market = Matchmaker(policy=Policy(wait_worth=rule.factor))
        self.row = {host.id: at for at, host in enumerate(world.hosts)}
        self.shelves = [Shelf(*one) for one in world.shelves]
        for host in world.hosts:
            self.market.add(host)
        if rule.told:
            for at, image in enumerate(world.images):
                self.market.locality.learn(str(at), image)
            for at in range(len(self.shelves)):
                self._tell(at)

    def run(self) -> dict[str, Any]:
        """The figures of a row."""
        ends: list[tuple[float, int, Placement]] = []
        waits: list[float] = []
        paid = waited = usual = 0.0
        here = refused = 0
        for number, task in enumerate(self.world.tasks):
            while ends and ends[0][0] <= task.at_s:
                self.market.release(heapq.heappop(ends)[2])
            placed = self.market.place(self._request(task))
            if not isinstance(placed, Placement):
                refused += 1
                continue
            lacking, wait_s = self._bring(self.row[placed.host], task.image)
            here += not lacking
            waits.append(wait_s)
            paid += placed.rate / 1e6 * task.runs_s
            waited += placed.rate / 1e6 * wait_s
            usual += task.request.gpu_demand / WHOLE * task.runs_s
            heapq.heappush(ends, (task.at_s + wait_s + task.runs_s, number, placed))
        return {
            "rule": self.rule.name,
            "mean_start_s": round(fmean(waits), 1),
            "median_start_s": round(median(waits), 1),
            "p95_start_s": round(quantiles(waits, n=20)[-1], 1),
            "image_here": round(here / len(waits), 3),
            "lovelace_per_gpu_s": round(paid / usual, 2),
            "with_waiting": round((paid + waited) / usual, 2),
            "refused": refused,
        }

    def _request(self, task: Task) -> Request:
        longest = next(one for one in LIMITS_S if task.runs_s <= one)
        image = str(task.image) if self.rule.told else ""
        wait_rate = None if self.rule.factor else 0
        return replace(
            task.request, image=image, wait_rate=wait_rate, duration_ms=longest * 1000, owner=""
        )

    def _bring(self, row: int, image: int) -> tuple[int, float]:
        """(bytes pulled, seconds to the start) on that host, which keeps the image now."""
        shelf = self.shelves[row]
        lacking = 0
        if image not in shelf.images:
            there = self._held(shelf)
            parts = self.world.images[image].layers
            lacking = sum(size for name, size in parts if name not in there)
        shelf.images.pop(image, None)
        shelf.images[image] = None
        while self._size(shelf) > shelf.room and len(shelf.images) > 1:
            shelf.images.popitem(last=False)
        if self.rule.told:
            self._tell(row)
        return lacking, lacking / shelf.rate + shelf.start_ms / 1000

    def _held(self, shelf: Shelf) -> set[bytes]:
        return {name for at in shelf.images for name, _ in self.world.images[at].layers}

    def _size(self, shelf: Shelf) -> int:
        parts = {part for at in shelf.images for part in self.world.images[at].layers}
        return sum(size for _, size in parts)

    def _tell(self, row: int) -> None:
        shelf = self.shelves[row]
        whole = {self.world.images[at].print for at in shelf.images}
        held = frozenset(self._held(shelf) | whole)
        told = Stock(held, shelf.start_ms, 0, shelf.rate)
        self.market.locality.tell(self.world.hosts[row].id, told)


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """A row per rule."""
    data = data_folder("openb")
    rng = Random(asked.seed)
    if asked.made or not data.is_dir():
        gpus = (Gpu("G2", 24_576),) * 8
        fleet = [Host(f"h{at:04}", 96_000, 393_216, gpus) for at in range(asked.hosts)]
        kinds = made(rng)
    else:
        fleet, kinds = openb.hosts(data), tasks_of(data)
    met = world(kinds, fleet, asked)
    return {
        "hosts": len(met.hosts),
        "devices": sum(len(host.gpus) for host in met.hosts),
        "tasks": len(met.tasks),
        "images": len(met.images),
        "rows": [Replay(met, rule).run() for rule in RULES],
    }


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench locality", description=__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=6_000)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--room-gb", type=float, default=100.0, help="for images, on each host")
    parser.add_argument("--load", type=float, default=0.6, help="part of the devices that is held")
    parser.add_argument("--spread", type=float, default=0.15, help="of prices (log-normal)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", action="store_true", help="made tasks, not the trace's")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(list(argv))
    report = run(chosen)
    report["yardstick"] = yardstick.measure()
    if chosen.json:
        print(json.dumps(report))
        return 0
    print(yardstick.said(report["yardstick"]))
    print(
        f"{report['tasks']} tasks on {report['hosts']} hosts with {report['devices']} devices,"
        f" {report['images']} images"
    )
    head = ("rule", "start mean", "median", "p95", "here", "lovelace/GPU-s", "with waiting")
    print("{:<32} {:>10} {:>8} {:>8} {:>6} {:>14} {:>12}".format(*head))
    for row in report["rows"]:
        print(
            f"{row['rule']:<32} {row['mean_start_s']:>8} s {row['median_start_s']:>6} s"
            f" {row['p95_start_s']:>6} s {row['image_here']:>6.1%} {row['lovelace_per_gpu_s']:>14}"
            f" {row['with_waiting']:>12}"
        )
    return 0
