"""Every page, in both themes and widths: as wide as the screen, as high as it was, in the words that
it had, with nothing for axe to find, and asking nobody but its own origin.

What is compared is in ``tests/golden/screens.json``; ``TALLY_WRITE_GOLDEN=1`` writes it anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.support.product import Product
from tests.browser.support.screens import Screens
from tests.browser.support.walk import walk
from tests.unit.support.golden import FOLDER, REMEDY, writing

pytestmark = [pytest.mark.browser, pytest.mark.prove, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "web" / "templates"
PINNED = FOLDER / "screens.json"
HEIGHTS = (0.6, 1.6)
"""How a page may be lower or higher than it was: logs, stories and prices grow as they please."""


def differences(was: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where a page is of another size, or has other words, than it had."""
    found = [f"{name} is there on one side only" for name in was.keys() ^ now.keys()]
    for name in was.keys() & now.keys():
        for view, (width, height) in now[name]["sizes"].items():
            before = was[name]["sizes"][view]
            if width != before[0]:
                found.append(f"{name} {view} is {width} wide, and was {before[0]}")
            if not HEIGHTS[0] < height / before[1] < HEIGHTS[1]:
                found.append(f"{name} {view} is {height} high, and was {before[1]}")
        old, new = set(was[name]["words"]), set(now[name]["words"])
        found += [f"{name} lacks: {one}" for one in sorted(old - new)]
        found += [f"{name} has: {one}" for one in sorted(new - old)]
    return found


def test_every_page_is_as_it_was_and_keeps_to_itself(
    running: Product, browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context(base_url=running.market)
    screens = Screens(context, running.market, running.chain)
    console = walk(running, context, tmp_path, screens)
    context.close()
    assert screens.faults == []
    assert [said for said in console.said if "nothing-here" not in said] == []
    pages = {
        file.stem for file in TEMPLATES.glob("*.html") if "{% block main %}" in file.read_text()
    }
    assert screens.templates == pages - {"base"}
    for name, seen in screens.seen.items():
        for view, (width, _) in seen["sizes"].items():
            assert width == int(view.split()[1]), f"{name} {view} is {width} wide: it overflows"
    if writing():
        text = json.dumps(screens.seen, indent=1, sort_keys=True, ensure_ascii=False)
        PINNED.write_text(text + "\n", encoding="utf-8")
    assert differences(json.loads(PINNED.read_text("utf-8")), screens.seen) == [], REMEDY


def test_the_pictures_are_those_that_the_docs_show() -> None:
    there = {file.name for file in (ROOT / "docs" / "screenshots").glob("*")}
    shown = {
        name
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"screenshots/([\w-]+\.png)", page.read_text("utf-8"))
    }
    assert there == shown and there
