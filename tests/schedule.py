"""Which files of tests the workers of pytest-xdist take first (``BY_FILE`` of the Makefile).

Whole files go to the workers, for a file's tests share what they started. Those that take longest
begin first, so that none is left over at the end, when there is nothing for the other workers. How
long a file takes is told by how long its tests are allowed to, where they say so.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

USUAL_S: Final = 15
"""Of a test without a limit of its own; those that have one are mostly done in a fifteenth of it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them by file; within a file they stay as they are."""
    allowed = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("timeout")
        allowed[_file(item)] += mark.args[0] if mark else USUAL_S
    items.sort(key=lambda item: (-allowed[_file(item)], _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
