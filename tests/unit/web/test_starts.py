"""The page and the command line say in the same words what a start is expected to take."""

from __future__ import annotations

import pytest

from marketplace.client.net.expected import ExpectedStartAnswer, start_words
from tests.unit.web.test_numbers import ASSETS, page

READ = f"""
const {{ startWords }} = await import("{ASSETS}/ui/starts.js");
return given.map(startWords);
"""


def start(ms: int, pull: int | None = 0, rate: int = 0) -> ExpectedStartAnswer:
    return {"ms": ms, "here": pull == 0, "pull_bytes": pull, "bytes_s": rate}


TABLE = {
    "": None,
    "4 s, image here": start(4000),
    "0.1 s, image here": start(1),
    "1.9 s, image here": start(1949),
    "12 s, image here": start(12_499),
    "about 90 s, 6 GB to pull at 70 MB/s": start(90_000, 6_000_000_000, 70_000_000),
    "about 3 min, 1.5 GB to pull at 8.1 MB/s": start(180_000, 1_450_000_000, 8_060_000),
    "about 9 s, 999 B to pull": start(8999, 999),
    "about 11 min, 2.5 kB to pull at 1 kB/s": start(630_000, 2_500, 1_000),
    "about 2 s, the whole image to pull": start(2000, None, 5),
}


@pytest.mark.parametrize("words", TABLE)
def test_the_command_line_says(words: str) -> None:
    assert start_words(TABLE[words]) == words


def test_the_page_says_the_same() -> None:
    assert page(READ, list(TABLE.values())) == list(TABLE)
    many = [
        start(ms, pull, rate)
        for ms in (0, 49, 50, 9_949, 9_999, 10_000, 179_499, 179_999, 209_999)
        for pull in (
            None,
            0,
            1,
            999,
            1_000,
            1_049,
            1_050,
            99_949_999,
            999_949_999,
            10**10 + 5 * 10**7,
        )
        for rate in (0, 1_499_999)
    ]
    assert page(READ, many) == [start_words(one) for one in many]
