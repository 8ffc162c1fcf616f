"""The queue's promises: fair shares, quotas, priorities, nobody shut out; and turns where work can
be paused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.fairness import Trace, flood, fluid, orders, replay
from benchmarks.timeshare import TimeShare, equal_split
from marketplace.matching import FairQueue, Gang, Gpu, Host, Matchmaker, Quota, Request
from marketplace.matching.fairness import BACK_MS, EVERY_MS
from marketplace.matching.waiting import PATIENCE_MS


def queue(devices: int = 8, **quotas: Quota) -> FairQueue:
    market = Matchmaker()
    market.add(Host("h", 64_000, 262_144, (Gpu("A100", 40_960),) * devices))
    return FairQueue(market, quotas)


def work(owner: str, priority: int = 0, count: int = 1) -> Request:
    return Request(1_000, 1_024, count, owner=owner, priority=priority)


def started(fair: FairQueue, now: int = 0) -> list[str]:
    return [one.job for one in fair.round(now)]


def test_two_consumers_share_alike_whoever_came_first():
    fair = queue(8)
    for at in range(20):
        fair.submit(f"a{at}", work("ada"), 0)
    for at in range(20):
        fair.submit(f"b{at}", work("bob"), 1)
    first = started(fair)
    assert sorted(first) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]
    assert fair.share("ada") == fair.share("bob") == 0.5


def test_the_dominant_resource_decides():
    """Ada's jobs are all cores, Bob's are devices: each counts by what it takes most of (DRF's own
    example).
    """
    market = Matchmaker()
    market.add(Host("h", 64_000, 262_144, (Gpu("A100", 40_960),) * 8))
    fair = FairQueue(market)
    for at in range(20):
        fair.submit(f"a{at}", Request(8_000, 1_024, owner="ada"), 0)
        fair.submit(f"b{at}", Request(1_000, 1_024, 1, owner="bob"), 0)
    fair.round(0)
    assert fair.share("ada") == pytest.approx(fair.share("bob"), abs=0.13)


def test_who_is_amended_joins_a_line_by_its_age_and_may_leave_it():
    fair, found = queue(2), work("ada")
    lost = replace(found, gpu_models=frozenset({"nobody lists it"}))
    for at, asked in enumerate((lost, found, lost, found)):
        fair.submit(f"a{at}", asked, 0)
    fair.amend({"a2": found, "a1": found})  # of a1 that is nothing new
    fair.amend({"a0": found})
    assert started(fair) == ["a0", "a1"]
    fair.amend({"a2": lost, "a3": lost})
    fair.cancel("a2")
    assert len(fair) == 1 and started(fair) == []
    with pytest.raises(KeyError):
        fair.amend({"a2": found})


def test_a_weight_is_a_larger_share():
    fair = queue(8, ada=Quota(weight=3.0))
    for at in range(20):
        fair.submit(f"a{at}", work("ada"), 0)
        fair.submit(f"b{at}", work("bob"), 0)
    assert sum(job.startswith("a") for job in started(fair)) == 6


def test_a_quota_is_a_ceiling_that_holds_nobody_else_back():
    fair = queue(8, ada=Quota(max_gpu_milli=2_000))
    for at in range(10):
        fair.submit(f"a{at}", work("ada"), 0)
    fair.submit("b0", work("bob"), 5)
    assert sorted(started(fair)) == ["a0", "a1", "b0"]


def test_priority_goes_first_but_only_as_high_as_granted():
    fair = queue(1, ada=Quota(max_priority=5))
    fair.submit("bob", work("bob", priority=99), 0)
    fair.submit("ada", work("ada", priority=3), 1)
    assert started(fair) == ["ada"]


def test_a_job_that_does_not_fit_lets_smaller_ones_pass():
    fair = queue(4)
    fair.submit("big", work("ada", count=8), 0)
    fair.submit("small", work("ada"), 1)
    assert started(fair) == ["small"]


def together(owner: str, members: int, priority: int = 0) -> Gang:
    return Gang((work(owner, priority),) * members)


def test_a_gang_waits_with_nothing_held_and_is_started_whole():
    fair = queue(4)
    fair.submit("a0", work("ada"), 0)
    assert started(fair) == ["a0"]
    fair.submit_gang("g", together("bob", 4), 1)
    for _ in range(3):
        assert started(fair) == [] and len(fair.market.live()) == 1 and not fair.runs("g")
    assert fair.expected_wait_ms("g", 1) is None
    fair.finished("a0", 2)
    [one] = fair.round(3)
    assert (one.job, len(one.placements), fair.share("bob")) == ("g", 4, 1.0)
    assert fair.runs("g") and len(fair.market.live()) == 4
    with pytest.raises(ValueError, match="already"):
        fair.submit_gang("g", together("bob", 4), 4)
    for name in one.names:
        fair.finished(name, 4)
    assert (len(fair), fair.runs("g"), fair.market.live()) == (0, False, [])
    with pytest.raises(ValueError, match="no members"):
        fair.submit_gang("none", Gang(()), 4)


def test_a_gang_counts_as_all_its_members():
    fair = queue(8, ada=Quota(max_gpu_milli=2_000), bob=Quota(max_cpu_milli=3_000))
    fair.submit_gang("g", together("ada", 3), 0)
    fair.submit_gang("h", together("bob", 4), 0)
    assert started(fair) == []
    fair.cancel("g")
    fair.submit_gang("g2", together("ada", 2), 0)
    assert started(fair) == ["g2"]


def test_a_gang_comes_in_the_order_of_everybody():
    """The least served consumer's first, whether a gang or a job; then priority."""
    fair = queue(4)
    fair.submit("a0", work("ada"), 0)
    assert started(fair) == ["a0"]
    fair.submit("a1", work("ada"), 1)
    fair.submit_gang("g", together("bob", 3), 2)
    assert started(fair) == ["g"]
    fair = queue(4, bob=Quota(max_priority=5))
    fair.submit("a1", work("ada"), 1)
    fair.submit_gang("g", together("bob", 4, priority=5), 2)
    assert started(fair) == ["g"]


def busy(fair: FairQueue, begin: int, end: int) -> int | None:
    """Small jobs without an end, each device free for another at another time; when the gang is
    started, if it is.
    """
    for at, now in enumerate(range(begin, end, 10_000)):
        running = [job for job in fair._running if job.startswith("s")]
        if running:
            fair.finished(running[0], now)
        fair.submit(f"s{at:05d}", work("ada"), now)
        if "g" in started(fair, now):
            return now
    return None


def test_small_jobs_do_not_starve_a_gang_for_ever_and_it_holds_them_back_for_a_tenth():
    fair = queue(4)
    for at in range(40):
        fair.submit(f"s-{at}", work("ada"), 0)
    started(fair)
    fair.submit_gang("g", together("bob", 4), 1)
    begun = busy(fair, 10_000, 4 * EVERY_MS)
    assert begun is not None and begun <= EVERY_MS
    assert begun % EVERY_MS >= EVERY_MS - BACK_MS and begun >= PATIENCE_MS
    # One that can never fit costs the others no more than that.
    fair = queue(4)
    fair.submit_gang("g", together("eve", 5), 0)
    for at in range(20):  # more of the same cost no more
        fair.submit_gang(f"h{at}", together(f"eve{at}", 6), at)
    idle = 0
    for at, now in enumerate(range(0, 5 * EVERY_MS, 10_000)):
        fair.submit(f"s{at}", work("ada"), now)
        begun_now = started(fair, now)
        for job in begun_now:
            fair.finished(job, now)
        idle += not begun_now
    assert idle * 10_000 <= 5 * BACK_MS


def test_who_came_before_or_has_a_higher_priority_does_not_stand_back():
    fair = queue(1, eve=Quota(max_priority=5))
    now = EVERY_MS - 1
    fair.submit("old", work("ada"), 0)
    fair.submit_gang("g", together("bob", 2), 1)
    fair.submit("young", work("ada"), 2)
    fair.submit("urgent", work("eve", priority=5), 3)
    order: list[str] = []
    for _ in range(4):
        order += (begun := started(fair, now))
        for job in begun:
            fair.finished(job, now)
    assert order == ["urgent", "old"]
    assert started(fair, now + 1) == ["young"]  # the time is over


def test_a_flood_delays_another_by_one_round_at_most():
    assert flood(10_000) == {"waiting": 10_000, "rounds_to_first": 1}


def test_ended_and_cancelled_jobs_leave_nothing_behind():
    fair = queue(2)
    for at in range(3):
        fair.submit(f"a{at}", work("ada"), 0)
    with pytest.raises(ValueError, match="already"):
        fair.submit("a0", work("ada"), 0)
    assert started(fair) == ["a0", "a1"]
    fair.cancel("a2")
    with pytest.raises(KeyError):
        fair.cancel("a2")
    for job in ("a0", "a1"):
        fair.finished(job, 10)
    assert (len(fair), fair.share("ada"), fair.market.live()) == (0, 0.0, [])


def test_the_wait_is_what_stands_before_over_the_pace_of_endings():
    fair = queue(1)
    for at in range(6):
        fair.submit(f"a{at}", work("ada"), 0)
    assert fair.expected_wait_ms("a5", 0) is None
    for at in range(3):
        assert started(fair, 1_000 * at) == [f"a{at}"]
        fair.finished(f"a{at}", 1_000 * at + 1_000)
    near, far = (fair.expected_wait_ms(f"a{at}", 3_000) for at in (3, 5))
    assert near is not None
    assert far is not None
    assert 0 < near < far <= 3_000


def test_an_equal_split_gives_nobody_more_than_it_wants():
    given = equal_split(np.array([1.0, 8.0, 8.0]), 9.0)
    assert given.tolist() == [1.0, 4.0, 4.0]
    assert equal_split(np.array([1.0, 2.0]), 9.0).tolist() == [1.0, 2.0]


def test_a_starved_job_goes_before_the_least_served():
    turns = TimeShare(devices=8)
    served, earned = np.array([90_000.0, 0.0]), np.array([900_000.0, 0.0])
    assert turns.order(served, earned).tolist() == [0, 1]
    assert turns.order(served, np.array([90_000.0, 0.0])).tolist() == [1, 0]


def test_the_fluid_of_two_equal_jobs_takes_twice_as_long():
    jobs = Trace(np.array([0.0, 0.0, 90_000.0]), np.ones(3), np.full(3, 10_000.0))
    assert jobs.devices == 1
    assert fluid(jobs).tolist() == [20_000.0, 20_000.0, 10_000.0]


def test_turns_bound_the_worst_case_at_little_cost_on_a_busy_cluster():
    rng = np.random.default_rng(7)
    count = 150
    jobs = Trace(
        np.sort(rng.uniform(0, 2e6, count)),
        rng.choice([1.0, 1.0, 2.0, 4.0, 8.0], count),
        rng.lognormal(10.5, 1.5, count),
    )
    fair = np.maximum(fluid(jobs), 1_800.0)
    policies = orders(jobs.devices)
    took = {name: replay(jobs, policies[name], strict=False) for name in ("las", "tally")}
    assert (took["tally"] / fair).max() <= (took["las"] / fair).max()
    assert took["tally"].mean() <= 1.1 * took["las"].mean()
