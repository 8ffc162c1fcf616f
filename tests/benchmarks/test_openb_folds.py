"""The scoring's numbers hold on families of traces that had no part in choosing them.

``openb_folds.json`` holds the grid and, per fold, the numbers chosen without one family. Here each
fold's numbers are run through the public interface on that family's published arrival orders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.openb import arrivals, data_folder, hosts, published, replay, requests
from marketplace.matching import Matchmaker, Weights

DATA = data_folder("openb")
RECORD: dict[str, Any] = json.loads((Path(__file__).parent / "openb_folds.json").read_text())
CASES = [(fold, trace) for fold in RECORD["folds"][:-1] for trace in fold["judged_on"]]


def test_every_fold_chose_the_best_of_the_grid_without_its_family():
    for fold in RECORD["folds"]:
        scored = [
            (np.mean([v for f, v in point["families"].items() if f != fold["left_out"]]), at)
            for at, point in enumerate(RECORD["grid"])
        ]
        best = RECORD["grid"][max(scored)[1]]
        assert fold["weights"] == {k: v for k, v in best.items() if k != "families"}


def test_the_numbers_shipped_are_those_chosen_on_all_families():
    chosen = RECORD["folds"][-1]
    assert chosen["left_out"] is None
    assert Weights(**chosen["weights"]) == Weights()


def test_every_fold_chose_the_numbers_shipped():
    """So that a fold's run is one of ``test_every_trace_beats_the_published_best``, which is part of
    ``make prove``: a fold that chooses others has to be run there again.
    """
    assert all(Weights(**fold["weights"]) == Weights() for fold in RECORD["folds"])


@pytest.mark.nightly
@pytest.mark.skipif(
    not DATA.exists(),
    reason=f"NOT PROVEN HERE: the openb traces are not at {DATA}; set TALLY_BENCH to their folder",
)
@pytest.mark.parametrize(
    ("fold", "trace"), CASES, ids=[f"{t}-without-{f['left_out']}" for f, t in CASES]
)
def test_a_fold_beats_the_published_best_on_the_family_it_never_saw(
    fold: dict[str, Any], trace: str
):
    tasks, fleet, orders, theirs = (
        requests(DATA, trace),
        hosts(DATA),
        arrivals(DATA),
        published(DATA),
    )
    gains: list[tuple[float, float]] = []
    for seed in (42, 44, 46):
        market = Matchmaker([(t, 1.0) for t in tasks], weights=Weights(**fold["weights"]))
        got = replay(fleet, tasks, orders[f"{trace}_{seed}"], market)
        assert got.voluntary == 0
        best = theirs[trace, seed]
        gains.append((got.a100 - best[0], got.a130 - best[1]))
    assert min(np.mean(gains, axis=0)) > 0
