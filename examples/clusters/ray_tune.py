"""What examples/clusters/ray_tune.yaml runs on its head: Ray Tune looks for the least of Hartmann's
function of six numbers, by Optuna's Bayesian search (TPE) and at random, with as many trials each;
so many members have so many trials at a time. Some points cannot be tried: a trial that fails ends
nothing, but counts.
"""

import logging
import os
import statistics
import time

import numpy as np
import ray
from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch

TRIALS, SEEDS = int(os.environ.get("TRIALS", "40")), int(os.environ.get("SEEDS", "5"))
MEMBERS = int(os.environ.get("TALLY_MEMBERS", "1"))
HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
WIDTHS = np.array([
    [10, 3, 17, 3.5, 1.7, 8],
    [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8],
    [17, 8, 0.05, 10, 0.1, 14],
])  # fmt: skip
PLACES = np.array([
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
])  # fmt: skip
LEAST = -3.32237


def trial(at: dict[str, float]) -> None:
    """One point of the function."""
    if at["x4"] > 0.85:
        raise ValueError("this point cannot be tried")
    point = np.array([at[f"x{one}"] for one in range(6)])
    value = -float(HEIGHTS @ np.exp(-(WIDTHS * (point - PLACES) ** 2).sum(axis=1)))
    tune.report({"value": value, "member": int(os.environ.get("TALLY_MEMBER", "0"))})


def search(name: str, seed: int) -> float:
    """The least that a search with so many trials found."""
    if name == "optuna":
        by = ConcurrencyLimiter(OptunaSearch(seed=seed), max_concurrent=MEMBERS)
    else:
        by = BasicVariantGenerator(random_state=seed, max_concurrent=MEMBERS)
    tuner = tune.Tuner(
        tune.with_resources(trial, {"CPU": 1, "member": 1}),
        param_space={f"x{one}": tune.uniform(0, 1) for one in range(6)},
        tune_config=tune.TuneConfig(
            metric="value", mode="min", num_samples=TRIALS, search_alg=by
        ),
        run_config=tune.RunConfig(
            name=f"{name}-{seed}", storage_path="/workspace/ray", verbose=0
        ),
    )  # fmt: skip
    began = time.monotonic()
    found = tuner.fit()
    least = found.get_best_result().metrics["value"]
    members = {one.metrics["member"] for one in found if one.error is None}
    print(
        f"{name}, seed {seed}: {least:.3f} of {len(found)} trials on {len(members)} members, "
        f"{found.num_errors} failed, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return least


def main() -> None:
    ray.init(logging_level=logging.WARNING, log_to_driver=False)
    found = {
        name: statistics.median([search(name, seed) for seed in range(SEEDS)])
        for name in ("optuna", "random")
    }
    print(
        f"median of {SEEDS} seeds at {TRIALS} trials: optuna {found['optuna']:.3f}, "
        f"random {found['random']:.3f}; the least there is: {LEAST}",
        flush=True,
    )


if __name__ == "__main__":
    main()
