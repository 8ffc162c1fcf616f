"""Ray Tune on a cluster of real adapters: a Bayesian search beside a random one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marketplace.client.sdk.market import Market
from tests.e2e.support.frameworks import Shown, example, running, said, story, until_complete
from tests.requires import need_stack

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]
SEARCH = re.compile(
    r"^(\w+), seed \d+: -[\d.]+ of (\d+) trials on (\d) members, (\d+) failed", re.MULTILINE
)
MEDIANS = re.compile(r"median of (\d+) seeds at (\d+) trials: optuna -([\d.]+), random -([\d.]+);")


def searched(tmp_path: Path, trials: int, seeds: int, within_s: float = 360) -> tuple[float, float]:
    """The depths that both searches found, median over the *seeds*."""
    stack, found = need_stack(), list[float]()

    async def tell(made: Shown, market: Market) -> None:
        job = example("ray_tune", stack, cpu=2000, TRIALS=str(trials), SEEDS=str(seeds))
        async with running(made, market, job) as one:
            await until_complete(one, within_s)
            printed = await said(one.gang.members[0])
        print(printed)
        each = SEARCH.findall(printed)
        same = [(name, str(trials), "3") for name in ("optuna", "random") for _ in range(seeds)]
        assert [one[:3] for one in each] == same, "as many trials each, on all members"
        for name in ("optuna", "random"):
            assert sum(int(one[3]) for one in each if one[0] == name), "and some failed"
        medians = MEDIANS.search(printed)
        assert medians is not None and medians[1] == str(seeds) and medians[2] == str(trials)
        found.extend((float(medians[3]), float(medians[4])))

    story(tmp_path, stack, 3, tell, within_s + 180)
    bayesian, random = found
    return bayesian, random


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_bayesian_search_finds_more_than_a_random_one_at_equal_trials(tmp_path: Path) -> None:
    bayesian, random = searched(tmp_path, 40, 5, 1500)
    assert bayesian > random


@pytest.mark.prove
def test_ray_tune_tries_on_all_members_and_a_failing_trial_ends_nothing(tmp_path: Path) -> None:
    bayesian, random = searched(tmp_path, 12, 1)
    assert 0 < bayesian < 3.33 and 0 < random < 3.33
