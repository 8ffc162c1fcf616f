"""Rows for a spreadsheet: RFC 4180, and no cell that a program would take for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from marketplace.domain.units import LOVELACE_PER_ADA

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def written(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The file's text: *head*, then *rows*."""
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(head)
    for row in rows:
        out.writerow([_cell(value) for value in row])
    return text.getvalue()


def ada(lovelace: int) -> str:
    """``12.345678``: exact, six decimals."""
    return f"{lovelace // LOVELACE_PER_ADA}.{lovelace % LOVELACE_PER_ADA:06d}"


def time_of(ms: int) -> str:
    """``2026-11-22T04:05:06Z``."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _cell(value: object) -> object:
    """Strangers chose some of these words: none of them is a formula."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else value
