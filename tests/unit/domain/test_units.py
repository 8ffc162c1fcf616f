"""Money, time and size: exact, and never by way of a float."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain import units
from marketplace.domain.errors import Malformed
from marketplace.domain.metering import kinds
from marketplace.domain.money.keep import KEEP, KEEP_MS, read_keep


@pytest.mark.parametrize(
    ("text", "lovelace"),
    [("40 ADA", 40_000_000), ("1.5 ADA", 1_500_000), ("0.000001 ADA", 1), ("2000 lovelace", 2000)],
)
def test_money(text: str, lovelace: int) -> None:
    assert units.parse_money(text) == lovelace


@pytest.mark.parametrize("text", ["1.5 lovelace", "0.0000001 ADA", "-1 ADA", "ADA", "1e3 ADA", "1"])
def test_money_refused(text: str) -> None:
    with pytest.raises(Malformed):
        units.parse_money(text)


@pytest.mark.parametrize(
    ("text", "ms"), [("90s", 90_000), ("15m", 900_000), ("6h", 21_600_000), ("250ms", 250)]
)
def test_duration(text: str, ms: int) -> None:
    assert units.parse_duration_ms(text) == ms


@pytest.mark.parametrize(("text", "mib"), [("512MB", 512), ("24GB", 24_576), ("1TB", 1_048_576)])
def test_size(text: str, mib: int) -> None:
    assert units.parse_size_mib(text) == mib


def test_rates() -> None:
    assert units.parse_rate_micro("1900.5 lovelace") == 1_900_500_000
    assert units.parse_rate_micro("0.002 ADA") == 2_000_000_000
    assert kinds.show_rate(1_900_500_000, "gpu") == "1900.5 lovelace per GPU-second"


def test_one_gpu_second_costs_its_rate() -> None:
    assert units.owed(1000, 1900 * units.MICRO) == 1900
    assert units.unit_ms(1000, 4000) == 4000


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(1, 10**10))
def test_totals_lose_less_than_one_lovelace(a: int, b: int, rate: int) -> None:
    apart = units.owed(a, rate) + units.owed(b, rate)
    assert 0 <= units.owed(a + b, rate) - apart <= 1


@given(st.integers(0, 45 * 10**15))
def test_ada_is_shown_exactly(lovelace: int) -> None:
    assert units.parse_money(units.show_ada(lovelace)) == lovelace


def test_a_keep_is_a_duration_or_nothing() -> None:
    assert [read_keep(text) for text in (KEEP, "0", " 0 ", "0s", "90s")] == [
        KEEP_MS, 0, 0, 0, 90_000
    ]  # fmt: skip
    for text in ("", "-1s", "10", "31d"):
        with pytest.raises(Malformed):
            read_keep(text)
