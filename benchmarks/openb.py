"""``tally bench openb``: placement quality on Alibaba's GPU-sharing traces, by the protocol of the
FGD paper.

Tasks arrive in the published order, each is tried once, nothing departs. Allocation is read where
the arrived GPU demand rounds to 100 and to 130 % of capacity (Weng et al., USENIX ATC 2023, and its
public simulator). A ledger of the benchmark's own checks every placement, and counts a refusal as
voluntary if the task would have fitted.

The traces are not shipped: GitHub hkust-adsl/kubernetes-scheduler-simulator, data/csv (Apache-2.0).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import yardstick
from marketplace.matching import Gpu, Host, Matchmaker, Placement, Request

SEEDS: Final = (42, 43, 44, 45, 46)
READ_AT: Final = (100, 130)


def data_folder(name: str) -> Path:
    """Where the public traces lie: ``$TALLY_BENCH``, or ``shared/bench`` beside the checkout."""
    root = os.environ.get("TALLY_BENCH")
    beside = Path(__file__).resolve().parents[2] / "shared" / "bench"
    return (Path(root) if root else beside) / name


def hosts(data: Path) -> list[Host]:
    """The trace's GPU hosts."""
    with (data / "openb_node_list_gpu_node.csv").open() as file:
        return [
            Host(
                id=row["sn"],
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpus=(Gpu(model=row["model"]),) * int(row["gpu"]),
            )
            for row in csv.DictReader(file)
        ]


def requests(data: Path, trace: str) -> list[Request]:
    """The trace's tasks, in file order."""
    with (data / f"openb_pod_list_{trace}.csv").open() as file:
        return [
            Request(
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpu_count=int(row["num_gpu"]),
                gpu_milli=int(row["gpu_milli"]) if int(row["num_gpu"]) == 1 else 1000,
                gpu_models=frozenset(filter(None, (row.get("gpu_spec") or "").split("|"))),
            )
            for row in csv.DictReader(file)
        ]


def arrivals(data: Path) -> dict[str, NDArray[np.uint16]]:
    """Key ``<trace>_<seed>`` to row numbers in order of arrival."""
    with np.load(data / "arrival_sequences.npz") as archive:
        return {name: archive[name] for name in archive.files}


class Ledger:
    """An account of what is free that knows nothing of the matchmaker's."""

    def __init__(self, fleet: Sequence[Host]) -> None:
        self.row = {host.id: at for at, host in enumerate(fleet)}
        self.cpu = np.array([host.cpu_milli for host in fleet])
        self.mem = np.array([host.memory_mib for host in fleet])
        most = max((len(host.gpus) for host in fleet), default=0)
        self.gpu = np.array([[1000] * len(h.gpus) + [0] * (most - len(h.gpus)) for h in fleet])
        self.model = np.array([host.gpus[0].model if host.gpus else "" for host in fleet])

    def fits(self, request: Request) -> bool:
        """Whether *request* fits on any host."""
        good = (self.cpu >= request.cpu_milli) & (self.mem >= request.memory_mib)
        if request.gpu_models:
            good &= np.isin(self.model, list(request.gpu_models))
        if request.gpu_count:
            good &= (self.gpu >= request.gpu_milli).sum(1) >= request.gpu_count
        return bool(good.any())

    def take(self, placement: Placement) -> None:
        """Subtract; RuntimeError when the matchmaker gave what is not there."""
        at, request = self.row[placement.host], placement.request
        self.cpu[at] -= request.cpu_milli
        self.mem[at] -= request.memory_mib
        for slot in placement.gpus:
            self.gpu[at, slot] -= request.gpu_milli
        wrong_model = request.gpu_models and self.model[at] not in request.gpu_models
        if min(self.cpu[at], self.mem[at], self.gpu[at].min()) < 0 or wrong_model:
            raise RuntimeError(f"{placement.host} was given more than it has: {placement}")
        if len(set(placement.gpus)) != request.gpu_count:
            raise RuntimeError(f"{placement.gpus} for {request.gpu_count} devices")


@dataclass(frozen=True, slots=True)
class Result:
    """Allocation in per cent of capacity at 100 and 130 % arrived, and what it took."""

    a100: float
    a130: float
    voluntary: int
    us_mean: float
    us_p99: float


def replay(
    fleet: Sequence[Host],
    tasks: Sequence[Request],
    order: Sequence[int] | NDArray[np.uint16],
    market: Matchmaker,
) -> Result:
    """One run of one arrival order through *market*, to which the hosts are added here."""
    for host in fleet:
        market.add(host)
    ledger = Ledger(fleet)
    capacity = 1000 * sum(len(host.gpus) for host in fleet)
    arrived = placed = voluntary = 0
    at: dict[int, list[float]] = {k: [] for k in READ_AT}
    spent = np.zeros(len(order))
    for event, index in enumerate(order):
        task = tasks[int(index)]
        arrived += task.gpu_demand
        start = time.perf_counter_ns()
        answer = market.place(task)
        spent[event] = time.perf_counter_ns() - start
        if isinstance(answer, Placement):
            ledger.take(answer)
            placed += task.gpu_demand
        elif ledger.fits(task):
            voluntary += 1
        reached = round(100 * arrived / capacity)
        if reached in at:
            at[reached].append(100 * placed / capacity)
    micro = spent / 1000
    return Result(
        a100=float(np.mean(at[100])),
        a130=float(np.mean(at[130])),
        voluntary=voluntary,
        us_mean=float(micro.mean()),
        us_p99=float(np.percentile(micro, 99)),
    )


def published(data: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """The authors' own FGD runs: (trace, seed) to allocation at 100 and 130 %."""
    with (data / "published_allocation.csv").open() as file:
        return {
            (row["workload"].removeprefix("openb_pod_list_"), int(row["seed"])): (
                float(row["100"]),
                float(row["130"]),
            )
            for row in csv.DictReader(file)
            if row["sc_policy"].endswith("FGD")
        }


def run(
    data: Path | None = None,
    traces: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Every trace and seed through the public interface; with *learn* the mix is not told but
    learned.
    """
    folder = data or data_folder("openb")
    fleet, orders = hosts(folder), arrivals(folder)
    names = list(traces or sorted({key.rsplit("_", 1)[0] for key in orders}))
    rows: list[dict[str, Any]] = []
    for trace in names:
        tasks = requests(folder, trace)
        for seed in seeds:
            mix = () if learn else [(task, 1.0) for task in tasks]
            result = replay(fleet, tasks, orders[f"{trace}_{seed}"], Matchmaker(mix=mix))
            rows.append(
                {
                    "trace": trace,
                    "seed": seed,
                    "a100": round(result.a100, 3),
                    "a130": round(result.a130, 3),
                    "voluntary": result.voluntary,
                    "us_mean": round(result.us_mean, 1),
                    "us_p99": round(result.us_p99, 1),
                }
            )
    return {"rows": rows}


def show(report: dict[str, Any], data: Path) -> None:
    """Means over seeds, beside the published FGD of the same seeds."""
    theirs = published(data)
    print(f"{'trace':<12} {'100 %':>7} {'130 %':>7}   {'FGD 100':>7} {'130':>7}   {'gain':>6}")
    rows = report["rows"]
    for trace in dict.fromkeys(row["trace"] for row in rows):
        mine = [row for row in rows if row["trace"] == trace]
        ours = [float(np.mean([row[key] for row in mine])) for key in ("a100", "a130")]
        known = [theirs[trace, row["seed"]] for row in mine if (trace, row["seed"]) in theirs]
        line = f"{trace:<12} {ours[0]:7.2f} {ours[1]:7.2f}"
        if known:
            fgd = np.mean(known, axis=0)
            line += f"   {fgd[0]:7.2f} {fgd[1]:7.2f}   {ours[1] - fgd[1]:+6.2f}"
        print(line)
    print(f"voluntary refusals: {sum(row['voluntary'] for row in rows)}")


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench openb", description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder("openb"))
    parser.add_argument("--traces", help="comma-separated; all by default")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--learn", action="store_true", help="learn the mix from arrivals")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(list(argv))
    report = run(
        chosen.data,
        chosen.traces.split(",") if chosen.traces else None,
        [int(seed) for seed in chosen.seeds.split(",")],
        learn=chosen.learn,
    )
    report["yardstick"] = yardstick.measure()
    if chosen.json:
        print(json.dumps(report))
    else:
        print(yardstick.said(report["yardstick"]))
        show(report, chosen.data)
    return 0
