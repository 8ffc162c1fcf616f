"""What ``tally bench scaling`` replays: an hour of a language model's requests, five weeks of
tasks of a GPU cluster, a generated week with days and weekends, or any other trace.

The first two are not shipped: Azure/AzurePublicDataset on GitHub (CC BY 4.0; Patel and others,
"Splitwise", ISCA 2024) and hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0; Weng and others,
USENIX ATC 2023).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.openb import data_folder
from benchmarks.scaling_world import Replay, Request

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
READ_A_SECOND: Final = 4_000  # tokens of context
WRITTEN_MS: Final = 30  # a token that is generated, and its reader's patience
LONGEST_MS: Final = 2 * HOUR_MS
"""A task of the cluster that ran for longer was no request but a service itself."""
BUSY_FROM: Final = 115
"""The trace's days before have a task now and then: what still ran when it was recorded."""


def language_model(folder: Path) -> Replay:
    """An hour of a language model's conversations: replicas of 8 at once, that need a minute to
    load their weights. A request takes as long as its tokens say.
    """
    with (folder / "AzureLLMInferenceTrace_conv.csv").open() as file:
        rows = [
            (
                datetime.fromisoformat(row["TIMESTAMP"][:26]),
                int(row["ContextTokens"]) * 1_000 // READ_A_SECOND
                + int(row["GeneratedTokens"]) * WRITTEN_MS,
            )
            for row in csv.DictReader(file)
        ]
    begin = rows[0][0]
    requests = [
        Request(round((at - begin).total_seconds() * 1_000), max(1, work)) for at, work in rows
    ]
    return Replay("azure_llm", requests, 8, 60_000, first=6, counted_ms=HOUR_MS // 4)


def cluster(folder: Path) -> Replay:
    """Five weeks of the tasks of a GPU cluster: replicas of 4 at once, that need five minutes."""
    with (folder / "openb_pod_list_default.csv").open() as file:
        rows = [
            (int(row["creation_time"]) * 1_000, int(row["deletion_time"]) * 1_000)
            for row in csv.DictReader(file)
        ]
    begin = BUSY_FROM * DAY_MS
    requests = [
        Request(made - begin, max(1_000, ended - made))
        for made, ended in sorted(rows)
        if made >= begin and ended - made <= LONGEST_MS
    ]
    return Replay("openb", requests, 4, 300_000, tick_ms=30_000, counted_ms=DAY_MS)


def generated(days: int = 7, a_second: float = 1.2, seed: int = 1) -> Replay:
    """Days with a night, the sixth and seventh of a week with less: replicas of 8 at once, that
    need a minute.
    """
    dice, requests, at = Random(seed), list[Request](), 0.0
    while at < days * 86_400:
        day, hour = int(at // 86_400) % 7, at % 86_400 / 3_600
        light = max(0.0, math.sin(math.pi * (hour - 6) / 15)) if 6 < hour < 21 else 0.0
        rate = a_second * (0.4 if day >= 5 else 1.0) * (0.1 + 0.9 * light**1.5)
        at += dice.expovariate(rate)
        requests.append(Request(round(at * 1_000), round(dice.lognormvariate(9, 0.6))))
    return Replay("generated", requests, 8, 60_000, tick_ms=5_000, counted_ms=DAY_MS)


def of_file(path: Path) -> Replay:
    """Lines of ``seconds,seconds that it takes``, without a head, in any order: replicas of 8 at
    once, that need a minute; the first tenth is not counted.
    """
    with path.open() as file:
        rows = sorted((float(row[0]), float(row[1])) for row in csv.reader(file) if row)
    begin = rows[0][0]
    requests = [
        Request(round((at - begin) * 1_000), max(1, round(work * 1_000))) for at, work in rows
    ]
    tick_ms = 1_000 if requests[-1].at_ms < DAY_MS else 5_000
    return Replay(
        path.stem, requests, 8, 60_000, tick_ms, counted_ms=requests[-1].at_ms // 10
    )  # fmt: skip


TRACES: Final[dict[str, Callable[[], Replay]]] = {
    "azure_llm": lambda: language_model(data_folder("azure_llm")),
    "openb": lambda: cluster(data_folder("openb")),
    "generated": generated,
}
