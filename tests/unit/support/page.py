"""The tables of ``docs/invoice.md``, as a program of another author would read them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[3] / "docs" / "invoice.md"


def table(*heads: str) -> list[dict[str, str]]:
    """The rows of the table whose first columns are *heads*; backquotes are taken off."""
    lines = iter(PAGE.read_text().splitlines())
    for line in lines:
        names = _cells(line)
        if line.startswith("| ") and names[: len(heads)] == list(heads):
            next(lines)  # the ruler
            rows: list[dict[str, str]] = []
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append(dict(zip(names, _cells(row), strict=True)))
            return rows
    raise AssertionError(f"docs/invoice.md has no table that begins with {heads}")


def _cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
