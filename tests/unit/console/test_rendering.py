"""How the pages say money, sizes and ends."""

from __future__ import annotations

import pytest

from marketplace.console.rendering import about, ada, exact, memory, per_hour, per_second
from marketplace.console.said import story, why_ended
from marketplace.domain.units import four_digits, hourly


@pytest.mark.parametrize(
    ("lovelace", "shown", "all_of_it"),
    [
        (150_001, "₳0.15", "₳0.150001"),
        (1_667_970, "₳1.668", "₳1.66797"),
        (6_054, "₳0.006054", "₳0.006054"),
        (7_000_000, "₳7.00", "₳7.00"),
        (38_092_123, "₳38.09", "₳38.092123"),
        (1_234_567_890, "₳1\u202f235", "₳1\u202f234.56789"),
        (-1_667_970, "−₳1.668", "−₳1.66797"),
        (0, "₳0.00", "₳0.00"),
    ],
)
def test_four_digits_are_shown_and_the_exact_amount_is_in_the_title(
    lovelace: int, shown: str, all_of_it: str
) -> None:
    assert (about(lovelace), exact(lovelace)) == (shown, all_of_it)
    assert str(ada(lovelace)) == f'<span class="ada" title="{all_of_it}">{shown}</span>'
    assert abs(four_digits(lovelace) - lovelace) * 2000 <= max(abs(lovelace), 1)


@pytest.mark.parametrize("micro", [1_300_000_000, 6_000_000, 250_000_000, 1_000_000])
def test_an_hourly_price_goes_through_a_filter_and_back(micro: int) -> None:
    assert per_second(per_hour(micro)) == micro
    assert per_second(per_hour(micro).replace(".", ",")) == micro
    assert per_second("") == 0 and per_hour(0) == ""
    assert hourly(micro) * 1_000_000 == micro * 3600


@pytest.mark.parametrize(
    ("mib", "sold"),
    [(23_028, "24 GB"), (15_360, "16 GB"), (81_559, "80 GB"), (143_771, "141 GB"),
     (40_960, "40 GB"), (24_564, "24 GB"), (22_528, "22 GB"), (500, "500 MB")],
)  # fmt: skip
def test_a_device_has_the_memory_that_it_is_sold_with(mib: int, sold: str) -> None:
    assert memory(mib) == sold


def test_an_end_is_said_once_in_words() -> None:
    assert why_ended("CANCELLED", "CANCELLED", 143) == "You ended it."
    assert why_ended("COMPLETED", "", 0) == "It ran to its end."
    assert why_ended("FAILED", "", 2) == "Its command failed. Its exit code is 2."
    assert "disk full" in why_ended("START_FAILED", "disk full", None)
    stopping = {"at_ms": 1, "kind": "STOPPING", "detail": {"reason": "CANCELLED"}}
    finished = {
        "at_ms": 3, "kind": "FINISHED",
        "detail": {"reason": "CANCELLED", "message": "CANCELLED", "exit_code": 143},
    }  # fmt: skip
    told = story([stopping, {**stopping, "at_ms": 2}, finished])
    assert [(e["kind"], e["said"]) for e in told] == [
        ("STOPPING", [("", "You ended it.")]), ("FINISHED", [("", "You ended it.")]),
    ]  # fmt: skip
