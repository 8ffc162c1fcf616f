"""``tally bench fairness``: job times and finish-time fairness on Philly-derived jobs.

Each virtual cluster is replayed in rounds on as many devices as make it busy (its own mean load
over 0.9, and never fewer than its largest job). A job's finish-time-fairness ratio is its time in
the system over the time it would have taken if all jobs present had split the devices equally all
along (a fluid; the same for every policy). Only SRTF knows how long jobs are. A second figure is
the flood: ten thousand jobs of one consumer are queued, then one of another's, and the scheduling
rounds until that one starts are counted.

The traces are not shipped: GitHub stanford-futuredata/gavel, scheduler/traces/msr (MIT).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import yardstick
from benchmarks.openb import data_folder
from benchmarks.timeshare import Floats, Ints, TimeShare, equal_split
from marketplace.matching import FairQueue, Gpu, Host, Matchmaker, Request

ROUND_S: Final = 1_800.0
BUSY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival: seconds, devices, seconds alone on those devices."""

    arrival: Floats
    wants: Floats
    alone: Floats

    @property
    def devices(self) -> int:
        """A cluster that this trace keeps busy."""
        load = float((self.wants * self.alone).sum() / max(self.arrival.max(), 1.0))
        return max(math.ceil(load / BUSY), int(self.wants.max()))


def trace(path: Path) -> Trace:
    """Read one virtual cluster."""
    with path.open() as file:
        rows = [
            (float(r["arrival_s"]), float(r["gpus"]), float(r["duration_s"]))
            for r in csv.DictReader(file)
        ]
    table = np.array(sorted(rows))
    return Trace(table[:, 0], table[:, 1], table[:, 2])


@dataclass(slots=True)
class View:
    """What a policy may see of the jobs present; ``left`` is for the oracle alone."""

    arrival: Floats
    wants: Floats
    attained: Floats
    earned: Floats
    age: Floats
    left: Floats


Order = Callable[[View], Ints]


def _max_min(view: View) -> Ints:
    """Whoever received the least of what it wants, over its time in the system."""
    return np.argsort(view.attained / (view.wants * np.maximum(view.age, 1.0)), kind="stable")


def orders(devices: int) -> dict[str, Order]:
    """The policies, each as an order of the jobs present."""
    ours = TimeShare(devices)
    return {
        "fifo": lambda view: np.argsort(view.arrival, kind="stable"),
        "las": lambda view: np.argsort(view.attained, kind="stable"),
        "max_min": _max_min,
        "srtf_oracle": lambda view: np.argsort(view.left, kind="stable"),
        "tally": lambda view: ours.order(view.attained, view.earned),
    }


def fluid(jobs: Trace) -> Floats:
    """Seconds in the system for every job when devices are always split equally."""
    count = len(jobs.arrival)
    left = jobs.wants * jobs.alone
    done = np.zeros(count)
    now, nxt = 0.0, 0
    present: list[int] = []
    while nxt < count or present:
        if not present:
            now = max(now, float(jobs.arrival[nxt]))
        while nxt < count and jobs.arrival[nxt] <= now:
            present.append(nxt)
            nxt += 1
        at = np.array(present)
        speed = equal_split(jobs.wants[at], jobs.devices)
        until = float((left[at] / speed).min())
        if nxt < count:
            until = min(until, float(jobs.arrival[nxt]) - now)
        left[at] -= speed * until
        now += until
        over = left[at] <= 1e-6 * jobs.wants[at]
        done[at[over]] = now
        present = [int(j) for j in at[~over]]
    return done - jobs.arrival


def replay(jobs: Trace, order: Order, *, strict: bool) -> Floats:
    """Seconds in the system for every job under *order*; *strict* lets nobody pass whoever waits in
    front.
    """
    count = len(jobs.arrival)
    need = jobs.wants * jobs.alone
    attained, earned, done = np.zeros(count), np.zeros(count), np.zeros(count)
    share = TimeShare(jobs.devices)
    now, nxt = 0.0, 0
    present = np.zeros(0, np.int64)
    while nxt < count or len(present):
        if not len(present):
            now = max(now, math.floor(jobs.arrival[nxt] / ROUND_S) * ROUND_S)
        came = int(np.searchsorted(jobs.arrival, now, "right"))
        present = np.concatenate([present, np.arange(nxt, came)])
        nxt = came
        if not len(present):
            now += ROUND_S
            continue
        wants = jobs.wants[present]
        view = View(
            arrival=jobs.arrival[present],
            wants=wants,
            attained=attained[present],
            earned=earned[present],
            age=now - jobs.arrival[present],
            left=jobs.alone[present] - attained[present] / wants,
        )
        ranked = order(view)
        if strict:
            fits = np.cumsum(wants[ranked]) <= jobs.devices
            chosen = ranked[np.logical_and.accumulate(fits)]
        else:
            chosen = share.pick(ranked, wants)
        earned[present] += equal_split(wants, jobs.devices) * ROUND_S
        run = present[chosen]
        spent = np.minimum(ROUND_S, (need[run] - attained[run]) / jobs.wants[run])
        attained[run] += spent * jobs.wants[run]
        over = need[run] - attained[run] <= 1e-6 * need[run]
        done[run[over]] = now + spent[over]
        present = np.setdiff1d(present, run[over], assume_unique=True)
        now += ROUND_S
    return done - jobs.arrival


def flood(waiting: int = 10_000) -> dict[str, Any]:
    """Rounds until another consumer's first job starts behind *waiting* jobs of one, and its wait
    in rounds.
    """
    market = Matchmaker()
    for at in range(8):
        market.add(Host(f"h{at}", 64_000, 262_144, (Gpu("A100", 40_960),) * 8))
    queue = FairQueue(market)
    for at in range(waiting):
        queue.submit(f"flood-{at}", Request(1_000, 1_024, 1, owner="flood"), 0)
    running = [started.job for started in queue.round(1)]
    queue.submit("first", Request(1_000, 1_024, 1, owner="other"), 2)
    rounds = 0
    while True:
        rounds += 1
        queue.finished(running.pop(0), 2 + rounds)
        if any(started.job == "first" for started in queue.round(2 + rounds)):
            return {"waiting": waiting, "rounds_to_first": rounds}


def run(data: Path | None = None, traces: Sequence[str] | None = None) -> dict[str, Any]:
    """A row per trace and policy: mean job time and worst finish-time-fairness ratio."""
    folder = data or data_folder("gavel_philly")
    names = list(traces or sorted(path.stem for path in folder.glob("*.csv")))
    rows: list[dict[str, Any]] = []
    for name in names:
        jobs = trace(folder / f"{name}.csv")
        fair = fluid(jobs)
        for policy, order in orders(jobs.devices).items():
            took = replay(jobs, order, strict=policy == "fifo")
            ratio = took / np.maximum(fair, ROUND_S)
            rows.append(
                {
                    "trace": name,
                    "devices": jobs.devices,
                    "policy": policy,
                    "mean_job_s": round(float(took.mean())),
                    "worst_ftf": round(float(ratio.max()), 3),
                    "p99_ftf": round(float(np.percentile(ratio, 99)), 3),
                }
            )
    return {"rows": rows, "flood": flood()}


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench fairness", description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder("gavel_philly"))
    parser.add_argument("--traces", help="comma-separated; all by default")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(list(argv))
    report = run(chosen.data, chosen.traces.split(",") if chosen.traces else None)
    report["yardstick"] = yardstick.measure()
    if chosen.json:
        print(json.dumps(report))
        return 0
    print(yardstick.said(report["yardstick"]))
    print(f"{'trace':<8} {'GPUs':>4} {'policy':<12} {'mean job h':>10} {'worst FTF':>9} {'p99':>6}")
    for row in report["rows"]:
        print(
            f"{row['trace']:<8} {row['devices']:>4} {row['policy']:<12} "
            f"{row['mean_job_s'] / 3600:10.1f} {row['worst_ftf']:9.2f} {row['p99_ftf']:6.2f}"
        )
    wait = report["flood"]
    print(
        f"flood of {wait['waiting']}: another's first job starts in round {wait['rounds_to_first']}"
    )
    return 0
