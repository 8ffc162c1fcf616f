"""``tally bench scaling``: what a service costs, and how many of its requests are late, when it is
scaled by the demand of now, ahead of demand, not at all, or by one who knows the future.

Each is tried with every setting that a user has (how many requests a replica is meant for, how
long it stays, how sure the forecast is to be). What counts is the cheapest setting with which no
more than a goal's share of requests is late.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

from benchmarks.scaling_settings import KINDS, Setting, table
from benchmarks.scaling_traces import TRACES, of_file
from benchmarks.scaling_world import AGREE_MS, Outcome, Policy, Replay, World
from marketplace.client.services.demand import Demand, stretch_ms
from marketplace.client.services.scaling import Ahead, Scaler
from marketplace.domain.work.service import Scale

SIZES: Final = (1.25, 1.0, 0.8, 0.6)  # `concurrency`, of what a replica bears at full speed
KNOWING: Final = (2.5, 2.0, 1.6, 1.25, 1.0)  # SIZES of one who knows when that is enough
STAYS: Final = (1, 2, 5, 10, 20)  # `down_after`, of what a start needs
SURE: Final = (50, 80, 90, 95, 98)  # `predict`
EPOCH_MS: Final = 1_700_000_000_000


@dataclass(frozen=True)
class Fixed:
    """Always so many."""

    count: int

    def wanted(self, under_way: int, now: int) -> int:
        """As every policy."""
        return self.count


class Reactive:
    """The product's :class:`Scaler`."""

    def __init__(self, scale: Scale) -> None:
        self._scale, self._scaler = scale, Scaler()

    def wanted(self, under_way: int, now: int) -> int:
        """As every policy."""
        return self._scaler.wanted(self._scale, under_way, now)


class Predictive:
    """The product's :class:`Ahead`."""

    def __init__(self, scale: Scale, start_ms: int) -> None:
        self._scale = scale
        self._ahead = Ahead(scale, Demand(stretch_ms(start_ms)), start_ms, Scaler())

    def wanted(self, under_way: int, now: int) -> int:
        """As every policy; its times are not below 0."""
        return self._ahead.wanted(self._scale, under_way, EPOCH_MS + now)


class Oracle:
    """Has what the requests need that will be under way from now until a replica that it asks for
    now could serve.
    """

    def __init__(self, replay: Replay, width: int) -> None:
        self._tick, self._width = replay.tick_ms, width
        self._ahead = -(-(replay.start_ms + AGREE_MS) // replay.tick_ms) + 1
        steps = [0] * ((replay.requests[-1].at_ms + replay.start_ms) // replay.tick_ms + 2)
        for one in replay.requests:
            steps[one.at_ms // self._tick] += 1
            end = (one.at_ms + one.work_ms) // self._tick + 1
            if end < len(steps):
                steps[end] -= 1
        self._under_way = list(accumulate(steps))

    def wanted(self, under_way: int, now: int) -> int:
        """As every policy."""
        at = max(0, now // self._tick)
        most = max(self._under_way[at : at + self._ahead], default=0)
        return -(-max(most, min(under_way, 1)) // self._width)  # who waits already is not forgotten


def settings(replay: Replay, quick: bool = False) -> Iterator[Setting]:
    """All that are tried; *quick*: a few of each."""
    sizes, stays, sure = (SIZES, STAYS, SURE) if not quick else ((1.0,), (1, 5), (70, 90))
    for size in sizes:
        for stay in stays:
            yield Setting("reactive", size, stay)
    for size in sizes[:3]:
        for stay in stays[:3]:
            for one in sure:
                yield Setting("predictive", size, stay, one)
    for size in KNOWING:
        yield Setting("oracle", size)
    work = sum(one.work_ms for one in replay.requests) / replay.requests[-1].at_ms
    needed = max(1, round(work / replay.per_replica))
    for count in range(needed, needed * (2 if quick else 4) + 1):
        yield Setting("fixed", count=count)


def policy(setting: Setting, replay: Replay) -> Policy:
    """What does it."""
    width = max(1, round(replay.per_replica * setting.size))
    scale = Scale(0, replay.most, width, setting.stay * replay.start_ms, setting.sure)
    match setting.kind:
        case "fixed":
            return Fixed(setting.count)
        case "reactive":
            return Reactive(scale)
        case "predictive":
            return Predictive(scale, replay.start_ms + AGREE_MS)
        case _:
            return Oracle(replay, width)


def outcome(replay: Replay, setting: Setting) -> Outcome:
    """Of one replay."""
    first = setting.count or replay.first
    return World(replace(replay, first=first), policy(setting, replay)).run()


_REPLAY: list[Replay] = []  # in a process of the pool


def _begin(replay: Replay) -> None:
    _REPLAY[:] = [replay]


def _one(setting: Setting) -> tuple[Setting, Outcome]:
    return setting, outcome(_REPLAY[0], setting)


def sweep(replay: Replay, quick: bool = False) -> dict[Setting, Outcome]:
    """Every setting's outcome, over all cores."""
    with ProcessPoolExecutor(os.cpu_count(), initializer=_begin, initargs=(replay,)) as pool:
        return dict(pool.map(_one, settings(replay, quick)))


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench scaling", description=__doc__)
    parser.add_argument("--only", choices=list(TRACES), help="one of the traces")
    parser.add_argument("--trace", type=Path, help="a file of lines: seconds,seconds it takes")
    parser.add_argument("--quick", action="store_true", help="a few settings")
    parser.add_argument("--all", action="store_true", help="every setting's outcome, as JSON")
    parser.add_argument("--markdown", action="store_true", help="rewrite docs/scaling.md's figures")
    chosen = parser.parse_args(list(argv))
    names = [chosen.only] if chosen.only else list(TRACES)
    replays = [of_file(chosen.trace)] if chosen.trace else [TRACES[name]() for name in names]
    found: dict[str, dict[Setting, Outcome]] = {}
    for replay in replays:
        found[replay.name] = outcomes = sweep(replay, chosen.quick)
        print(f"{replay.name}: {len(replay.requests):,} requests, replica-hours by share late")
        print(f"{'late':>6} " + " ".join(f"{kind:>12}" for kind in KINDS))
        for late, *hours in table(outcomes):
            print(f"{late:>6} " + " ".join(f"{one:>12}" for one in hours))
        if chosen.all:
            for setting, one in outcomes.items():
                print(json.dumps({**asdict(setting), **asdict(one)}))
    if chosen.markdown:
        from benchmarks import scaling_page  # its plot needs a library that only developers have

        scaling_page.write(found)
    return 0
