"""With ``--dist loadfile`` whole files go to the workers: those that take longest begin first, so
that none is left over at the end, when there is nothing for the other workers (``BY_FILE`` of the
Makefile). How long a file takes is told by how long its tests are allowed to, where they say so.
"""

from __future__ import annotations

from collections import Counter

import pytest

USUAL_S = 15
"""Of a test without a limit of its own; those that have one are mostly done in a fifteenth of it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them by file; within a file they stay as they are."""
    allowed = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("timeout")
        allowed[item.nodeid.partition("::")[0]] += mark.args[0] if mark else USUAL_S
    items.sort(key=lambda item: -allowed[item.nodeid.partition("::")[0]])
