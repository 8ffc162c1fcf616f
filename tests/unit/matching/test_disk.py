"""Disk that is rented alone: what it costs where, who it makes way for, and that its holder is counted."""

from __future__ import annotations

from marketplace.matching import FairQueue, Host, Matchmaker, NoMatch, Request, plan_preemption
from marketplace.matching.model import Placement

GB = 1024


def host(name: str, rate: int, disk_gb: int = 100) -> Host:
    return Host(name, 8000, 32_768, disk_mib=disk_gb * GB, core_rate=5_000_000, disk_rate=rate)


def disk(gb: int, cap: int | None = None) -> Request:
    return Request(0, 0, disk_mib=gb * GB, rents_disk=True, owner="ada", max_disk_rate=cap)


def market_of(*hosts: Host) -> Matchmaker:
    market = Matchmaker()
    for one in hosts:
        market.add(one)
    return market


def test_the_cheapest_disk_is_taken_whatever_cores_cost_there() -> None:
    market = market_of(host("dear", 30_000), host("fair", 20_000), host("full", 1, disk_gb=5))
    placed = market.place(disk(20), 0)
    assert isinstance(placed, Placement)
    assert (placed.host, placed.rate) == ("fair", 20 * 20_000)


def test_a_cap_on_disk_is_none_on_cores() -> None:
    market = market_of(host("a", 20_000))
    assert isinstance(market.place(disk(1, 19_999), 0), NoMatch)
    assert isinstance(market.place(disk(1, 20_000), 0), Placement)


def test_it_makes_way_for_nobody() -> None:
    market = market_of(host("a", 20_000))
    assert isinstance(market.place(disk(90), 0), Placement)
    wanted = Request(1000, 1000, disk_mib=50 * GB, owner="bob", priority=9)
    assert isinstance(market.place(wanted, 0), NoMatch)
    assert plan_preemption(market, wanted, 0, 0) is None


def test_whoever_holds_nothing_but_disk_is_not_forgotten() -> None:
    """A market ended over the second of two such leases."""
    queue = FairQueue(market_of(host("a", 20_000)))
    for job in ("one", "two"):
        queue.submit(job, disk(1), 0)
    assert len(queue.round(0)) == 2
    queue.finished("one", 1)
    queue.finished("two", 2)
    assert queue.share("ada") == 0.0
