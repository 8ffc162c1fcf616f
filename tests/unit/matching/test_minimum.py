"""A host's minimum: a job that cannot cost so much there is not placed there, and is told why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marketplace.matching import FairQueue, Gpu, Host, Matchmaker, NoMatch, Placement, Request
from marketplace.matching.filters import most_cost

RATE = 2_000_000_000  # micro-lovelace a second: 2,000 lovelace
ASKED = 200_000
BUDGET = 10_000_000


def host(name: str, minimum: int, rate: int = RATE) -> Host:
    gpu = Gpu("A", 1_000, rate)
    return Host(name, 8_000, 8_000, (gpu, gpu), core_rate=rate, minimum=minimum)


def job(seconds: int, budget: int | None = BUDGET, **more: object) -> Request:
    base = Request(1_000, 100, 1, duration_ms=seconds * 1000, budget=budget)
    return replace(base, **more)  # pyright: ignore[reportArgumentType]  names are the caller's


def market(*hosts: Host) -> Matchmaker:
    made = Matchmaker()
    for one in hosts:
        made.add(one)
    return made


def where(answer: Placement | NoMatch) -> str:
    return answer.host if isinstance(answer, Placement) else ""


def test_a_job_is_placed_from_the_minimum_on() -> None:
    asks = market(host("asks", ASKED))
    assert [where(asks.quote(job(seconds))) for seconds in (99, 100)] == ["", "asks"]
    assert [where(asks.quote(job(3600, n))) for n in (ASKED - 1, ASKED)] == ["", "asks"]
    assert where(asks.quote(job(1, None))) == "asks"  # it says no budget: nothing is asked of it


def test_the_next_best_host_that_asks_for_less_serves_it() -> None:
    two = market(host("cheap", ASKED), host("dear", 0, 2 * RATE))
    assert [where(two.quote(job(s))) for s in (10, 100)] == ["dear", "cheap"]


def test_what_a_channel_brought_counts_at_its_own_host_only() -> None:
    two = market(host("mine", ASKED), host("other", ASKED))
    small = job(25)  # 50,001 lovelace
    assert where(two.quote(replace(small, spent=(("mine", 149_999),)))) == "mine"
    assert where(two.quote(replace(small, spent=(("mine", 149_998),)))) == ""
    assert where(two.quote(replace(small, spent=(("gone", BUDGET),)))) == ""


def test_devices_shares_and_cores_count_as_they_are_billed() -> None:
    one = market(host("h", ASKED))
    rows = np.array([0])
    wishes = (
        job(10), job(10, gpu_count=2), job(10, gpu_milli=500), job(10, gpu_count=0, cpu_milli=500),
    )  # fmt: skip
    costs = [int(most_cost(one.fleet, rows, wish)[0]) for wish in wishes]
    assert costs == [20_001, 40_001, 10_001, 10_001]


def test_the_refusal_says_the_numbers_and_the_ways_out() -> None:
    answer = market(host("a", ASKED), host("b", 2 * ASKED)).place(job(5))
    assert isinstance(answer, NoMatch)
    assert (dict(answer.reasons), answer.relaxations) == ({"minimum": 2}, ())
    text = str(answer)
    assert "2 ask for at least 0.2 ADA a job, this one costs at most 0.010001 ADA" in text
    assert "lengthen it, raise its budget or keep a channel" in text


def test_a_job_that_can_never_pay_does_not_hold_up_the_line_behind_it() -> None:
    asks = market(host("asks", ASKED))
    queue = FairQueue(asks)
    queue.submit("small", job(1, owner="a"), 0)
    queue.submit("large", job(500, owner="a"), 1)
    assert [started.job for started in queue.round(2)] == ["large"]


def test_one_kind_of_request_is_judged_by_its_own_budget_each_time() -> None:
    asks = market(host("asks", ASKED))
    for seconds, fits in ((1, False), (100, True), (1, False), (100, True)):
        answer = asks.explain(job(seconds))
        assert bool(answer) is fits and asks.fits_on("asks", job(seconds)) is fits
