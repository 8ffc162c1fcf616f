"""Images and where they are: how long a start takes on each host, and what a wait is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.matching import Gpu, Host, Image, Matchmaker, Placement, Request, Stock

BASE, LAYER, WHOLE = b"base", b"layer", b"image"
MIB = 1 << 20
IMAGE = Image(WHOLE, ((BASE, 100 * MIB), (LAYER, 50 * MIB)))
ASKED = Request(1000, 512, image="model", duration_ms=3_600_000)


def host(name: str, rate: int) -> Host:
    return Host(name, 8000, 32_768, core_rate=rate)


def market(**rates: int) -> Matchmaker:
    made = Matchmaker()
    for name, rate in rates.items():
        made.add(host(name, rate))
    made.locality.learn("model", IMAGE)
    return made


def placed(made: Matchmaker, request: Request) -> str:
    found = made.place(request)
    assert isinstance(found, Placement)
    return found.host


def test_a_start_is_what_the_host_measured_and_what_it_lacks() -> None:
    made = market(a=10)
    made.locality.tell("a", Stock(frozenset({BASE}), 2000, 500, 10 * MIB))
    start = made.locality.start("model", "a")
    assert start is not None
    assert (start.here, start.lacking, start.ms) == (False, 50 * MIB, 2000 + 500 + 5000)
    made.locality.tell("a", Stock(frozenset({BASE, LAYER, WHOLE}), 2000, 500, 10 * MIB))
    start = made.locality.start("model", "a")
    assert start is not None and (start.here, start.lacking, start.ms) == (True, 0, 2000)


def test_nothing_is_expected_where_nothing_is_known() -> None:
    made = market(a=10)
    assert made.locality.start("model", "a") is None
    made.locality.tell("a", Stock(frozenset(), 2000, 0, 0))
    assert made.locality.start("another", "a") is None
    assert made.locality.delays("another") is None


def test_an_image_nobody_has_taken_apart_is_here_or_of_unknown_size() -> None:
    made = market(a=10)
    made.locality.learn("other", Image(b"other"))
    made.locality.tell("a", Stock(frozenset({b"other"}), 1500, 0, 0))
    start = made.locality.start("other", "a")
    assert start is not None and start.here and start.ms == 1500
    made.locality.tell("a", Stock(frozenset(), 1500, 0, 0))
    start = made.locality.start("other", "a")
    assert start is not None and not start.here and start.lacking is None


def test_of_hosts_that_cost_the_same_the_one_that_has_the_image_wins() -> None:
    made = market(a=10, b=10, c=10)
    made.locality.tell("c", Stock(frozenset({WHOLE}), 2000, 0, 0))
    indifferent = replace(ASKED, wait_rate=0)
    for request, where in ((Request(1000, 512), "a"), (indifferent, "c"), (ASKED, "c")):
        found = made.quote(request)
        assert isinstance(found, Placement) and found.host == where


@pytest.mark.parametrize(("percent", "where"), [(3, "dear"), (5, "cheap")])
def test_without_a_wish_a_wait_costs_what_running_costs(percent: int, where: str) -> None:
    # 150 s to pull are 4.2 % of the hour that the job may run
    made = market(cheap=100_000, dear=100_000 + percent * 1000)
    made.locality.tell("dear", Stock(frozenset({WHOLE}), 2000, 0, MIB))
    made.locality.tell("cheap", Stock(frozenset(), 2000, 0, MIB))
    assert placed(made, ASKED) == where


@pytest.mark.parametrize(
    ("wait_rate", "where"), [(0, "cheap"), (1000, "cheap"), (23_000, "cheap"), (25_000, "dear")]
)
def test_a_wait_is_weighed_against_the_price_of_the_whole_run(wait_rate: int, where: str) -> None:
    # 150 s to pull; the run costs 3.6 lovelace more at the dearer host: even at 24,000 a second
    made = market(cheap=10_000, dear=11_000)
    made.locality.tell("dear", Stock(frozenset({WHOLE}), 2000, 0, MIB))
    made.locality.tell("cheap", Stock(frozenset(), 2000, 0, MIB))
    request = Request(1000, 512, image="model", wait_rate=wait_rate, duration_ms=3_600_000)
    assert placed(made, request) == where


def test_what_a_host_tells_later_counts_and_so_do_hosts_that_come_later() -> None:
    made = market(a=10)
    made.locality.tell("a", Stock(frozenset(), 2000, 0, MIB))
    before = made.locality.delays("model")
    assert before is not None and before[0] == 152_000
    made.locality.tell("b", Stock(frozenset({BASE, LAYER}), 3000, 0, MIB))  # before its offer
    made.add(host("b", 10))
    after = made.locality.delays("model")
    assert after is not None and after[:2].tolist() == [152_000, 3000]
    made.locality.tell("a", Stock(frozenset({WHOLE}), 1000, 0, MIB))
    after = made.locality.delays("model")
    assert after is not None and after[:2].tolist() == [1000, 3000]
    made.remove("a")
    made.add(host("c", 10))  # in the row of the host that left
    after = made.locality.delays("model")
    assert after is not None and after[0] == 152_000  # as the middle of both


def test_a_host_that_tells_nothing_is_taken_for_one_like_the_others_without_the_image() -> None:
    made = market(a=10, silent=10)
    made.locality.tell("a", Stock(frozenset(), 4000, 0, 50 * MIB))
    delays = made.locality.delays("model")
    assert delays is not None and delays[:2].tolist() == [7000, 7000]


def test_devices_of_ones_own_are_weighed_alike() -> None:
    made = Matchmaker()
    for name, rate in (("cheap", 1000), ("dear", 1100)):
        made.add(Host(name, 8000, 32_768, (Gpu("H100", 80_000, rate),)))
    made.locality.learn("model", IMAGE)
    made.locality.tell("dear", Stock(frozenset({WHOLE}), 2000, 0, MIB))
    made.locality.tell("cheap", Stock(frozenset(), 2000, 0, MIB))
    share = Request(
        1000, 512, 1, 500, owner="me", image="model", wait_rate=100_000, duration_ms=3_600_000
    )
    assert [placed(made, share) for _ in range(3)] == ["dear", "dear", "cheap"]
