"""What becomes of replicas: the table's corners one by one, then any world at all, held against
what a service promises.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.client.services.core import (
    ALIVE,
    ALL_UNFIT,
    BACK_OFF_MOST_MS,
    BACK_OFF_MS,
    COUNTED_MS,
    Falls,
    Forget,
    Kept,
    Look,
    Post,
    Replica,
    Rotate,
    Stop,
    decide,
)
from marketplace.client.services.scaling import Scaler
from marketplace.client.services.stage import Stage
from marketplace.domain.work.service import Health, Scale, ServiceSpec

SPEC = ServiceSpec(
    "web", 8000, "public", Scale(3, 3), Health(failures=3, start_ms=20_000), drain_ms=10_000
)
HOUR = 3_600_000
NOW = 10_000_000


def one(
    job: str, stage: Stage, revision: str = "new", since: int = NOW, until_ms: int = NOW + HOUR
) -> Replica:
    return Replica(job, revision, stage, since, HOUR, until_ms, provider=f"at-{job}")


def kept(*replicas: Replica, spec: ServiceSpec = SPEC) -> Kept:
    return Kept(spec, "new", replicas)


def well(*replicas: Replica, **other: Look) -> dict[str, Look]:
    """As each was seen: running and fit, in rotation if it serves."""
    looks = {
        r.job: Look("RUNNING", r.stage is Stage.SERVING, True, 0, r.provider) for r in replicas
    }
    return looks | other


def test_one_after_the_other_is_posted_apart_from_those_that_are_there() -> None:
    state, steps = decide(kept(), {}, 3, 0, NOW)
    assert steps == [Post(())]
    assert decide(state, {}, 3, 1, NOW)[1] == []
    there = one("a", Stage.STARTING)
    assert decide(kept(there), well(), 3, 0, NOW)[1] == [Rotate("a", False), Post(("at-a",))]
    alone = replace(SPEC, spread=False)
    looks = {"a": Look("STARTING", provider="at-a")}
    assert decide(kept(there, spec=alone), looks, 3, 0, NOW)[1] == [Post(())]


def test_it_serves_once_a_look_was_good_and_not_before() -> None:
    starts = one("a", Stage.STARTING, until_ms=0)
    state, steps = decide(kept(starts), {"a": Look("STARTING")}, 1, 0, NOW)
    assert (state.replicas[0].stage, steps) == (Stage.STARTING, [])
    state, steps = decide(state, {"a": Look("RUNNING")}, 1, 0, NOW + 1)
    assert (state.replicas[0].stage, steps) == (Stage.WARMING, [])
    assert state.replicas[0].until_ms == NOW + 1 + HOUR
    state, steps = decide(state, {"a": Look("RUNNING", fit=False)}, 1, 0, NOW + 2)
    assert (state.replicas[0].stage, steps) == (Stage.WARMING, [])
    state, steps = decide(state, {"a": Look("RUNNING", fit=True)}, 1, 0, NOW + 3)
    assert (state.replicas[0].stage, steps) == (Stage.SERVING, [Rotate("a", True)])
    # The market did not hear it: it is told again.
    assert decide(state, {"a": Look("RUNNING")}, 1, 0, NOW + 4)[1] == [Rotate("a", True)]
    assert decide(state, {"a": Look("RUNNING", True)}, 1, 0, NOW + 5)[1] == []


def test_one_that_is_never_fit_is_given_up_and_the_next_waits_longer_each_time() -> None:
    state = kept(one("a", Stage.WARMING))
    state, steps = decide(state, {"a": Look("RUNNING", fit=False)}, 1, 0, NOW + 20_000)
    assert steps == [Stop("a", "no good look in time after its start")]
    assert state.falls == Falls(1, NOW + 20_000)
    assert decide(state, {"a": Look("RUNNING")}, 1, 0, NOW + 20_000 + BACK_OFF_MS)[1] == [
        Stop("a", "no good look in time after its start"), Post(()),
    ]  # fmt: skip
    assert Falls(2, 0).next_ms() == 2 * BACK_OFF_MS
    assert Falls(50, 0).next_ms() == BACK_OFF_MOST_MS
    state, _ = decide(kept(one("b", Stage.STARTING)), {"b": Look("ENDED")}, 1, 0, NOW)
    assert (state.replicas, state.falls) == ((), Falls(1, NOW))


def test_bad_looks_in_a_row_take_it_out_and_another_takes_its_place() -> None:
    well, bad = Look("RUNNING", True, True), Look("PAUSED", True, False)
    state = kept(one("a", Stage.SERVING), one("b", Stage.SERVING))
    for turn in range(2):
        state, steps = decide(state, {"a": bad, "b": well}, 2, 0, NOW + turn)
        assert steps == []
    good, _ = decide(state, {"a": well, "b": well}, 2, 0, NOW + 2)
    assert good.replicas[0].misses == 0
    state, steps = decide(state, {"a": bad, "b": well}, 2, 0, NOW + 2)
    assert steps == [Rotate("a", False), Post(("at-b",))]
    assert state.replicas[0].stage is Stage.DRAINING


def test_where_none_answers_all_are_given_longer() -> None:
    """The market was started again, say: its adapters are not back yet."""
    bad = Look("RUNNING", True, False)
    state = kept(one("a", Stage.SERVING), one("b", Stage.SERVING))
    for turn in range(3 * ALL_UNFIT - 1):
        state, steps = decide(state, {"a": bad, "b": bad}, 2, 0, NOW + turn)
        assert steps == [], turn
    back, _ = decide(state, {"a": Look("RUNNING", True, True), "b": bad}, 2, 0, NOW + 9)
    assert [r.stage for r in back.replicas] == [Stage.SERVING, Stage.DRAINING]
    state, _ = decide(state, {"a": bad, "b": bad}, 2, 0, NOW + 9)
    assert [r.stage for r in state.replicas] == [Stage.DRAINING] * 2


@pytest.mark.parametrize(
    ("look", "after", "stops"),
    [
        (Look("RUNNING", False, busy=0), COUNTED_MS, True),
        (Look("RUNNING", False, busy=0), COUNTED_MS - 1, False),  # not all is counted yet
        (Look("RUNNING", True, busy=0), COUNTED_MS, False),  # the market still sends it some
        (Look("RUNNING", False, busy=1), 9_999, False),
        (Look("RUNNING", False, busy=1), 10_000, True),
    ],
)
def test_it_is_stopped_once_it_has_answered_all_or_its_time_is_over(
    look: Look, after: int, stops: bool
) -> None:
    state, steps = decide(kept(one("a", Stage.DRAINING)), {"a": look}, 0, 0, NOW + after)
    assert (state.replicas[0].stage is Stage.STOPPING) is stops
    assert (Stop("a", "") in steps) is stops


def test_an_update_takes_an_old_one_out_for_each_new_one_that_serves() -> None:
    old = [one(name, Stage.SERVING, "old", NOW - 1000 + at) for at, name in enumerate("abc")]
    assert decide(kept(*old), well(*old), 3, 0, NOW)[1] == [Post(())]
    starts = one("d", Stage.WARMING)
    assert decide(kept(*old, starts), well(*old, d=Look("RUNNING")), 3, 0, NOW)[1] == []
    new = one("d", Stage.SERVING)
    steps = decide(kept(*old, new), well(*old, new), 3, 0, NOW)[1]
    assert steps == [Rotate("a", False), Post(("at-d",))]  # what drains is no surge
    # One of them does not answer just now: it goes first, and no other that serves.
    sick = replace(old[2], misses=1)
    looks = well(*old[:2], new, c=Look("RUNNING", True))
    steps = decide(kept(*old[:2], sick, new), looks, 3, 0, NOW)[1]
    assert steps == [Rotate("c", False), Post(("at-d",))]


def test_one_bad_look_at_all_of_them_takes_no_old_one_out() -> None:
    old = [one(name, Stage.SERVING, "old") for name in "abc"]
    bad = {r.job: Look("RUNNING", True, False) for r in old}
    state, steps = decide(kept(*old), bad, 3, 0, NOW)
    assert steps == [Post(())]
    assert [r.stage for r in state.replicas] == [Stage.SERVING] * 3


def test_one_whose_job_ends_soon_has_its_successor_before() -> None:
    soon = one("a", Stage.SERVING, until_ms=NOW + 30_000)  # start and drain
    assert decide(kept(soon), well(soon), 1, 0, NOW)[1] == [Post(())]
    later = one("a", Stage.SERVING, until_ms=NOW + 30_001)
    assert decide(kept(later), well(later), 1, 0, NOW)[1] == []
    new = one("b", Stage.SERVING)
    assert decide(kept(soon, new), well(soon, new), 1, 0, NOW)[1] == [Rotate("a", False)]


def test_fewer_are_wanted() -> None:
    all_of = [one(name, Stage.SERVING, since=NOW + at) for at, name in enumerate("abc")]
    starts = one("d", Stage.STARTING)
    looks = well(*all_of, d=Look("STARTING"))
    assert decide(kept(*all_of, starts), looks, 3, 0, NOW)[1] == [Stop("d", "fewer are wanted")]
    assert decide(kept(*all_of), well(*all_of), 2, 0, NOW)[1] == [Rotate("c", False)]
    state, _ = decide(kept(*all_of), well(*all_of), 0, 0, NOW)
    assert [r.stage for r in state.replicas] == [Stage.DRAINING] * 3


def test_what_the_market_remembers_and_nobody_keeps_is_forgotten() -> None:
    assert decide(kept(), {"x": Look("ENDED"), "y": Look("RUNNING")}, 0, 0, NOW)[1] == [
        Forget("x"), Forget("y"),
    ]  # fmt: skip


def test_more_at_once_fewer_only_after_a_while() -> None:
    scaler, scale = Scaler(), Scale(0, 4, per_replica=2, down_after_ms=10_000)
    assert [scaler.wanted(scale, n, 0) for n in (0, 1, 2, 3, 100)] == [0, 1, 1, 2, 4]
    assert scaler.wanted(scale, 0, 10_000) == 4
    assert scaler.wanted(scale, 1, 10_001) == 1
    assert scaler.wanted(Scale(3, 3), 100, 0) == 3


# ---- any world ----------------------------------------------------------------------------------


@dataclass
class Job:
    runs_at: int
    fit_at: int
    dies_at: int
    state: str = "STARTING"
    serving: bool = False


@dataclass
class Market:
    """A world in which jobs start late, never get fit or die; some words to it get lost."""

    dice: Random
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    count: int = 0

    def post(self, now: int, luck: float) -> str:
        self.count += 1
        name = f"job{self.count}"
        runs = now + self.dice.randint(0, 5_000)
        never = self.dice.random() > luck
        fit = runs + (10**12 if never else self.dice.randint(0, 15_000))
        dies = now + (self.dice.randint(1, 60_000) if self.dice.random() > luck else 10**12)
        self.jobs[name] = Job(runs, fit, dies)
        return name

    def looks(self, now: int) -> dict[str, Look]:
        found: dict[str, Look] = {}
        for name, job in self.jobs.items():
            if now >= job.dies_at:
                job.state = "ENDED"
            elif job.state == "STARTING" and now >= job.runs_at:
                job.state = "RUNNING"
            fit = now >= job.fit_at if job.state == "RUNNING" else None
            found[name] = Look(job.state, job.serving, fit, 0, f"at-{name}")
        return found


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), surge=st.integers(1, 3), lost=st.sampled_from([0.0, 0.3]))
def test_in_any_world_a_service_comes_to_what_is_wanted_and_never_beyond(
    seed: int, surge: int, lost: float
) -> None:
    dice = Random(seed)
    market = Market(dice)
    spec = replace(SPEC, surge=surge)
    state, now, luck, wanted, revision = Kept(spec, "r0"), NOW, 0.7, 3, 0
    before = 0  # that served before an update, and goes on to serve
    for turn in range(900):
        now += 1_000
        if turn < 500 and dice.random() < 0.01:
            revision += 1
        if turn < 500 and dice.random() < 0.01:
            wanted = dice.randint(0, 4)
        luck = 0.7 if turn < 500 else 1.0
        looks = market.looks(now)
        state = replace(state, revision=f"r{revision}")
        dead = sum(market.jobs[r.job].state == "ENDED" for r in state.replicas)
        state, steps = decide(state, looks, wanted, 0, now)
        alive = [r for r in state.replicas if r.stage in ALIVE]
        posts = sum(isinstance(step, Post) for step in steps)
        assert not posts or len(alive) + posts <= wanted + surge
        serving = sum(r.stage is Stage.SERVING for r in state.replicas)
        unfit = sum(looks[r.job].fit is False for r in state.replicas if r.job in looks)
        if serving < before:  # by death, by fewer that are wanted, or for want of fitness
            assert dead or serving >= wanted or unfit
        before = serving
        for step in steps:
            if isinstance(step, Post):
                name = market.post(now, luck)
                fresh = Replica(name, state.revision, Stage.STARTING, now, HOUR)
                state = replace(state, replicas=(*state.replicas, fresh))
                continue
            if dice.random() < lost:
                continue  # it never arrived
            if isinstance(step, Rotate) and market.jobs[step.job].state != "ENDED":
                market.jobs[step.job].serving = step.serving
            elif isinstance(step, Stop):
                market.jobs[step.job].state, market.jobs[step.job].dies_at = "ENDED", 0
            elif isinstance(step, Forget):
                del market.jobs[step.job]
    serving = [r for r in state.replicas if r.stage is Stage.SERVING]
    assert len(serving) == wanted and {r.revision for r in serving} <= {f"r{revision}"}
    assert {n for n, job in market.jobs.items() if job.serving} == {r.job for r in serving}
    assert len(state.replicas) == wanted
