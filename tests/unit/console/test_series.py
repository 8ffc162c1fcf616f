"""What is drawn over days is reckoned from the leases that are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from marketplace.console.series import (
    DAY_MS,
    DAYS_SHOWN,
    MOST_MODELS,
    by_day,
    in_use,
    presence,
    prices,
)
from marketplace.market.base.records import Lease

NOW = 1_800_000_000_000


def lease(device: str, rate: int, days_ago: int, **more: Any) -> Lease:
    fields = {
        "device": device, "rate_micro": rate, "created_ms": NOW - days_ago * DAY_MS,
        "resource": "gpu", "simulated": False, "session_signature": b"s", **more,
    }  # fmt: skip
    return cast(Lease, SimpleNamespace(**fields))


def test_a_days_price_is_the_median_of_what_was_agreed() -> None:
    found = prices(
        [
            lease("NVIDIA H100", 100, 0), lease("2 x NVIDIA H100", 300, 0),
            lease("NVIDIA H100", 200, 0), lease("NVIDIA H100", 50, 3),
            lease("NVIDIA H100", 9, DAYS_SHOWN + 1),  # before the days that are shown
            lease("NVIDIA H100", 10**9, 0, session_signature=b""),  # nobody agreed to it
            lease("AMD EPYC", 4, 1, resource="core"),
        ],
        NOW,
    )  # fmt: skip
    assert [row["model"] for row in found] == ["NVIDIA H100", "cores"]
    line = [rate for _, rate in found[0]["days"]]
    assert len(line) == DAYS_SHOWN and (line[-1], line[-4]) == (200, 50)
    assert line.count(None) == DAYS_SHOWN - 2
    assert (found[0]["least"], found[0]["most"], found[0]["latest"]) == (50, 200, 200)


def test_what_is_drawn_is_bounded_whoever_names_the_devices() -> None:
    many = [lease(f"GPU {n}", 100, 0) for n in range(500)]
    assert len(prices(many, NOW)) == MOST_MODELS


def test_money_is_summed_by_day() -> None:
    days = by_day([(NOW, 5), (NOW - DAY_MS, 7), (NOW, 6), (NOW - 99 * DAY_MS, 9)], NOW)
    assert [d["owed"] for d in days[-2:]] == [7, 11] and sum(d["owed"] for d in days) == 18


def used(days_ago: int, gpu: int, held: int) -> dict[str, int]:
    return {
        "at_ms": (NOW // DAY_MS - days_ago) * DAY_MS, "gpu_milli": gpu, "gpu_milli_held": held,
        "core_milli": 0, "core_milli_held": 0,
    }  # fmt: skip


def test_how_much_was_in_use_is_said_of_the_days_that_had_something() -> None:
    found = in_use([used(2, 4000, 1000), used(1, 0, 0), used(0, 2000, 2000)], NOW)
    assert len(found["gpu"]) == DAYS_SHOWN
    assert [part for _, part in found["gpu"]][-4:] == [None, 250, None, 1000]
    assert found["gpus"] == 625 and found["cores"] is None
    assert in_use([], NOW)["gpus"] is None


def test_a_day_that_nobody_looked_at_blames_no_provider() -> None:
    seen = [{"at_ms": (NOW // DAY_MS - 1) * DAY_MS, "looks": 4, "uptime_milli": 750}]
    assert [part for _, part in presence(seen, NOW)][-3:] == [None, 750, None]
