"""docs/security.md lists routing's threats: every row, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = 31


def rows() -> dict[int, list[str]]:
    page = (ROOT / "docs" / "security.md").read_text()
    section = page.partition("## Routing\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", section, re.MULTILINE)
    return {int(number): re.findall(r"`([^`]+\.py::\w+)`", tests) for number, tests in lines}


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {one.name for one in ast.parse(path.read_text()).body if isinstance(one, kinds)}


def test_every_row_names_tests_that_exist() -> None:
    found = rows()
    assert list(found) == list(range(1, ROWS + 1))
    for number, tests in found.items():
        assert tests, f"no test shows row {number}"
        for test in tests:
            path, _, name = test.partition("::")
            assert name in functions(ROOT / path), test
