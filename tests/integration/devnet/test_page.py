"""docs/devnet.md tells every route, control and field of the status that the devnet has, and none
that it has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.devnet import Devnet
from contracts.devnet.face.app import API, application
from tests.requires import need_devnet

PAGE = Path(__file__).resolve().parents[3] / "docs" / "devnet.md"


@pytest.fixture(scope="module")
def devnet() -> Iterator[Devnet]:
    need_devnet()
    with Devnet() as one:
        yield one


def bare(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def spelt(pattern: str) -> list[str]:
    """Every path of a pattern: ``/a[/b[/c], /d]`` is /a, /a/b, /a/b/c and /a/d."""
    start = pattern.find("[")
    if start < 0:
        return [pattern]
    assert pattern.endswith("]"), pattern
    head, inside = pattern[:start], pattern[start + 1 : -1]
    return [head, *(head + one for part in parted(inside) for one in spelt(part))]


def parted(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [one.strip() for one in parts]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [one for one in section.splitlines() if one.startswith("| `")]
    return [[cell.strip() for cell in one.strip("|").split("|")] for one in lines]


def told() -> set[str]:
    """Every route of the page."""
    found: set[str] = set()
    for part, served in rows("Routes"):
        heads = [one for text in re.findall(r"`([^`]+)`", part) for one in spelt(text)]
        if served.startswith("all"):
            found.update(heads)
            continue
        (head,) = heads
        listed = served.partition(";")[0]
        found.update({head} if listed.startswith("alone") else ())
        found.update(head + one for text in re.findall(r"`([^`]+)`", listed) for one in spelt(text))
    return {bare(one) for one in found}


def paths(devnet: Devnet) -> dict[str, Any]:
    return application(devnet).openapi()["paths"]


def test_the_page_tells_every_route(devnet: Devnet) -> None:
    served = {
        bare(one.removeprefix(API)) or "/" for one in paths(devnet) if one.startswith(f"{API}/")
    }
    # "latest" stands for a block's name as well as for itself.
    found = {one if one in served else one.replace("latest", "{}") for one in told()}
    assert found == served


def test_the_page_tells_every_control(devnet: Devnet) -> None:
    served = {
        f"{method.upper()} {path.removeprefix('/devnet/')}"
        for path, methods in paths(devnet).items()
        if path.startswith("/devnet/")
        for method in methods
    }
    assert {control.strip("`") for control, *_ in rows("Controls")} == served


def test_the_page_tells_every_field(devnet: Devnet) -> None:
    bodies = {"GET status": devnet.status(), "GET audit": devnet.audit()}
    for control, _, what in rows("Controls"):
        if (body := bodies.get(control.strip("`"))) is not None:
            assert set(re.findall(r"`(\w+)`", what)) == set(body)


def test_every_path_served_is_of_one_of_the_two(devnet: Devnet) -> None:
    assert {one.split("/")[1] for one in paths(devnet)} == {"api", "devnet"}
