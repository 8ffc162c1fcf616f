"""docs/features.md names what exists: commands with their options, routes, pages, files, keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from marketplace.cli.commands.completion import known
from marketplace.cli.main import COMMANDS
from marketplace.console import account_pages, api_page, pages, supply_pages, work_pages
from marketplace.gateway import port_paths
from marketplace.process import reference

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "features.md"
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (yes|no|later) \| (.+) \|$")
ROWS = [m.groups() for line in PAGE.read_text("utf-8").splitlines() if (m := ROW.match(line))]
NAMED = re.compile(r"`([^`]+)`|\[[^\]]+\]\(([^)]+)\)")
PROBES = {"/metrics", "/readyz", "/openapi.json"}
JOB_KEYS = (ROOT / "docs" / "jobs.md").read_text("utf-8")
OWNER_KEYS = (ROOT / "docs" / "provider.md").read_text("utf-8")
LEFT_MOST = 10


def addresses() -> set[str]:
    """Of every page, route and probe."""
    routers = (pages, supply_pages, account_pages, work_pages, api_page, port_paths)
    shown = {getattr(route, "path", "") for one in routers for route in one.router.routes}
    return shown | set(reference.schema()["paths"]) | PROBES


ADDRESSES = addresses()


def lacking(name: str) -> str:
    """Why *name* is nothing that exists; empty if it is."""
    if name.startswith("tally "):
        return _command(name.split()[1:])
    if name.startswith("make "):
        return "" if f"\n{name[5:]}:" in (ROOT / "Makefile").read_text() else "no target"
    if name.startswith("/"):
        return "" if name in ADDRESSES else "no page or route"
    if re.search(r"\.(md|py|js|yaml)$", name):
        return "" if (ROOT / name).is_file() or (ROOT / "docs" / name).is_file() else "no file"
    if name.startswith("[["):
        return "" if name in OWNER_KEYS else "no section of the adapter's configuration"
    known_key = all(f"`{part}`" in JOB_KEYS for part in name.split("."))
    return "" if known_key or name in OWNER_KEYS else "no key of a job file"


def _command(words: list[str]) -> str:
    name, *rest = words
    if name not in COMMANDS:
        return "no command"
    found = known(name)
    options = found.options
    if rest and not rest[0].startswith("-"):
        sub = rest.pop(0)
        if sub not in found.below:
            return "no subcommand"
        options = found.below[sub]
    return "" if set(rest) <= set(options) else f"has only {options}"


def test_the_page_has_the_seventy_rows_in_order() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 71))


@pytest.mark.parametrize(("number", "feature", "has", "where"), ROWS, ids=[r[0] for r in ROWS])
def test_what_a_row_names_exists(number: str, feature: str, has: str, where: str) -> None:
    names = [one or link for one, link in NAMED.findall(where)]
    assert [(name, why) for name in names if (why := lacking(name))] == []
    assert names or has != "yes", f"row {number}, {feature}, says where nothing"


def test_a_name_that_does_not_exist_is_found() -> None:
    for name in (
        "tally jobs", "tally job fly", "tally job run --wings", "/v1/wings", "/wings", "wings.md",
        "[[wings]]", "policy.wings", "make wings",
    ):  # fmt: skip
        assert lacking(name), name


def test_few_rows_are_left_and_each_no_has_its_reason() -> None:
    left = [(number, where) for number, _, has, where in ROWS if has == "no"]
    assert len(left) <= LEFT_MOST, [number for number, _ in left]
    assert [number for number, where in left if len(where) < 40] == []
