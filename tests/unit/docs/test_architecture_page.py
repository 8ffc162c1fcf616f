"""The map of the code leads to files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
IN = ("", "marketplace", "web/assets")
"""What the page names, it names from the root or from these."""


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", PAGE)
    assert len(named) > 20, "the page is not read as it is written"
    assert not [one for one in named if not any((ROOT / room / one).exists() for room in IN)]


def test_what_a_newcomer_looks_for_is_named() -> None:
    asked = (
        "receipt is checked",
        "voucher is signed",
        "gang is placed",
        "image is pulled",
        "port is opened",
    )
    _, _, places = PAGE.partition("Where is …?")
    assert not [one for one in asked if not re.search(rf"{one}:[^:]*`[\w/]+\.py`", places)]
