"""Scaling ahead of demand: what it sees coming, what it does where it cannot, and what no demand
and no lie about it makes it do.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.client.services import forecast
from marketplace.client.services.core import Replica
from marketplace.client.services.demand import MOST, Demand, stretch_ms
from marketplace.client.services.folder import ServiceFolder, Standing
from marketplace.client.services.forecast import CHECKED, Forecast
from marketplace.client.services.scaling import NO_START, Ahead, Scaler, Scaling
from marketplace.client.services.stage import Stage
from marketplace.domain.work.service import Scale

MINUTE, DAY = 60_000, 1_440  # stretches of a minute
BEGIN = 1_800_000_000_000 - 1_800_000_000_000 % MINUTE
SCALE = Scale(0, 20, per_replica=4, down_after_ms=2 * MINUTE, predict=90)


def tide(at: int) -> int:
    """A day's demand: nothing at night, 40 at once at noon, up within two hours."""
    hour = at % DAY / 60
    return round(40 * max(0.0, min(1.0, (hour - 8) / 2, (18 - hour) / 2)))


def days(count: int, and_minutes: int = 0) -> list[int]:
    return [tide(at) for at in range(count * DAY + and_minutes)]


def ahead_of(peaks: list[int], scale: Scale = SCALE, start_ms: int = 10 * MINUTE) -> Ahead:
    return Ahead(scale, Demand(MINUTE, BEGIN, peaks), start_ms, Scaler())


# ---- demand --------------------------------------------------------------------------------------


def test_a_stretch_is_its_highest_moment_and_a_gap_is_as_what_was_before() -> None:
    demand = Demand(5_000)
    assert demand.note(3, 100_000) == []
    assert demand.note(7, 103_000) == []
    assert demand.now == 5
    assert demand.note(1, 105_000) == [7]
    assert demand.note(2, 121_000) == [1, 1, 1], "nobody looked for two stretches"
    assert demand.peaks == [7, 1, 1, 1] and demand.until_ms == 120_000
    assert len(demand.note(2, 120_000 + 5_000 * 1_000_000)) == MOST == len(demand.peaks)


@pytest.mark.parametrize(
    ("start_ms", "is_"), [(1, 5_000), (29_999, 5_000), (30_000, 15_000), (10**9, 600_000)]
)
def test_a_stretch_suits_how_long_a_start_lasts(start_ms: int, is_: int) -> None:
    assert stretch_ms(start_ms) == is_


# ---- what it foresees ---------------------------------------------------------------------------


def test_the_third_morning_is_seen_coming() -> None:
    """At each moment as many are wanted as are needed once they could serve, ten minutes on."""
    ahead, waiting, late, late_waiting, wanted = ahead_of(days(2, 420)), Scaler(), 0, 0, 0
    ahead.demand.until_ms = BEGIN + 420 * MINUTE
    for minute in range(7 * 60, 11 * 60):
        at, now = 2 * DAY + minute, BEGIN + minute * MINUTE
        count = ahead.wanted(SCALE, tide(at), now)
        needed = math.ceil(tide(at + 10) / SCALE.per_replica)
        late += count < needed
        late_waiting += waiting.wanted(SCALE, tide(at), now) < needed
        wanted += count
    assert late_waiting >= 100, "who waits for demand is late on all of its way up"
    assert late <= late_waiting / 5
    assert wanted <= 1.15 * sum(math.ceil(tide(2 * DAY + m) / 4) for m in range(430, 670))


def test_demand_that_stays_is_not_overestimated() -> None:
    made = Forecast([12] * 200, MINUTE, horizon=5, per_cent=95, behind=2)
    for _ in range(50):
        made.learn(12)
    assert made.enough == 12 and made.trusted


@pytest.mark.parametrize("per_cent", [50, 80, 95])
def test_it_is_enough_about_as_often_as_it_was_to_be(per_cent: int) -> None:
    dice = Random(7)
    peaks = [dice.randrange(60) for _ in range(2_000)]
    made = Forecast(peaks[:1_000], MINUTE, horizon=1, per_cent=per_cent, behind=5)
    enough = 0
    for peak in peaks[1_000:]:
        assert made.enough is not None
        enough += peak <= made.enough
        made.learn(peak)
    assert abs(enough / 10 - per_cent) <= 5


def test_where_it_does_worse_than_waiting_it_is_not_used_and_says_so() -> None:
    """Demand that was wild, and is calm now: what was wild is still allowed for."""
    dice = Random(7)
    ahead, waiting = ahead_of([dice.randrange(60) for _ in range(1_000)]), Scaler()
    wanted = [
        (ahead.wanted(SCALE, 4, now), waiting.wanted(SCALE, 4, now))
        for now in range(BEGIN, BEGIN + 60 * MINUTE, MINUTE)
    ]
    assert wanted[0] == (1, 1), "nothing of it was checked yet"
    assert not ahead.forecast.trusted and wanted[-1] == (1, 1)
    assert "is not used" in ahead.says()
    assert ahead.forecast.enough is not None and ahead.forecast.enough > 20


def test_before_anything_was_checked_it_waits() -> None:
    ahead = ahead_of([])
    for minute in range(CHECKED):
        assert ahead.wanted(SCALE, 8, BEGIN + minute * MINUTE) == 2
    assert ahead.forecast.enough is None
    assert "too little was seen" in ahead.says()


def test_the_first_request_of_a_night_is_answered_at_once() -> None:
    ahead = ahead_of(days(3))
    assert ahead.wanted(SCALE, 0, BEGIN) == 0
    assert ahead.wanted(SCALE, 1, BEGIN + 1_000) == 1


def test_fewer_are_wanted_only_after_a_while_also_once_a_forecast_is_believed() -> None:
    ahead = ahead_of([4] * 200, start_ms=MINUTE)
    busy = [4] * CHECKED + [40] + [4] * 10
    wanted, believed = list[int](), list[bool]()
    for minute, under_way in enumerate(busy):
        wanted.append(ahead.wanted(SCALE, under_way, BEGIN + minute * MINUTE))
        believed.append(ahead.forecast.trusted)
    assert not believed[CHECKED - 1] and believed[CHECKED + 1], "it begins just after the rush"
    assert wanted[CHECKED:][:3] == [10, 10, 10], "two minutes are two minutes"
    assert wanted[-1] < 5


# ---- whatever it hears --------------------------------------------------------------------------


@given(
    heard=st.lists(st.integers(0, 10**12), max_size=200),
    least=st.integers(0, 3),
    most=st.integers(3, 9),
    per_cent=st.integers(50, 99),
    start_ms=st.integers(1, 10**7),
)
def test_no_demand_and_no_lie_wants_more_than_the_most_or_fewer_than_the_least(
    heard: list[int], least: int, most: int, per_cent: int, start_ms: int
) -> None:
    scale = Scale(least, most, 4, 10_000, per_cent)
    ahead = Ahead(scale, Demand(stretch_ms(start_ms)), start_ms, Scaler())
    for at, under_way in enumerate(heard):
        wanted = ahead.wanted(scale, under_way, BEGIN + at * 7_000)
        assert least <= wanted <= most
        assert wanted or not under_way


def test_a_lie_about_demand_is_forgotten_with_the_stretches_it_was_told_in() -> None:
    """A market that shouts for an hour: what is learned from it is no more than `most` can bear."""
    ahead = ahead_of([4] * 600, start_ms=MINUTE)
    for minute in range(60):
        assert ahead.wanted(SCALE, 10**12, BEGIN + minute * MINUTE) <= SCALE.most
    counts = [ahead.wanted(SCALE, 4, BEGIN + minute * MINUTE) for minute in range(60, 120)]
    assert counts[-1] <= 2


# ---- from one keeper to the next ----------------------------------------------------------------


def replica(job: str, stage: Stage) -> Replica:
    return Replica(job, "new", stage, 0, 3_600_000)


def test_what_was_seen_outlasts_the_keeper_that_saw_it(tmp_path: Path) -> None:
    folder = ServiceFolder(tmp_path, "web")
    folder.path.mkdir(parents=True)
    scaling, scale = Scaling(folder), Scale(1, 4, 4, 10_000, 90)
    assert scaling.wanted(scale, 9, BEGIN) == 3
    assert scaling.forecast == NO_START, "nobody knows yet how long one needs"
    scaling.posted("job_1", BEGIN - 9_000)
    scaling.posted("job_2", BEGIN - 8_000)
    scaling.saw([replica("job_1", Stage.WARMING), replica("job_2", Stage.STARTING)], BEGIN)
    assert scaling.starts_ms == ()
    scaling.saw([replica("job_1", Stage.SERVING)], BEGIN + 1_000)
    assert scaling.starts_ms == (10_000,), "the one that never served has no say"
    for at in range(40):
        scaling.wanted(scale, 5, BEGIN + at * 5_000)
    assert scaling.forecast.startswith("5 requests at once will be enough for the next 10 s")

    folder.stand(Standing("new", starts_ms=scaling.starts_ms))
    after = Scaling(folder)
    assert after.wanted(scale, 5, BEGIN + 200_000) == 2
    assert after.forecast.startswith("5 requests at once will be enough for the next 10 s")
    # Another scale, or replicas that start more slowly: it learns anew from the same demand.
    slow = Scale(1, 4, 4, 10_000, 99)
    assert after.wanted(slow, 5, BEGIN + 201_000) == 2 and "99 of 100" in after.forecast
    assert after.wanted(Scale(1, 4, 4), 5, BEGIN + 202_000) == 2 and after.forecast == ""


def test_a_damaged_memory_is_written_over_and_stops_nobody(tmp_path: Path) -> None:
    folder = ServiceFolder(tmp_path, "web")
    folder.path.mkdir(parents=True)
    (folder.path / "demand.json").write_text("{")
    folder.stand(Standing(starts_ms=(9_000,)))
    scaling = Scaling(folder)
    for at in range(3):
        assert scaling.wanted(SCALE, 9, BEGIN + at * 5_000) == 3
    known = folder.demand()
    assert known is not None and known.peaks == [9, 9]


def nothing(name: str) -> None:
    """No module is found."""


def test_without_the_library_demand_is_waited_for_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ServiceFolder(tmp_path, "web")
    folder.path.mkdir(parents=True)
    folder.remember(Demand(5_000, BEGIN, [5] * 100))
    scaling = Scaling(folder)
    scaling.posted("job_1", BEGIN)
    scaling.saw([replica("job_1", Stage.SERVING)], BEGIN + 9_000)
    monkeypatch.setattr(forecast, "find_spec", nothing)
    assert scaling.wanted(SCALE, 9, BEGIN + 10_000) == 3
    assert "service.scale.predict needs scikit-learn" in scaling.forecast
