"""Which files of tests the workers of pytest-xdist take, and when (``BY_FILE`` of the Makefile).

Whole files go to the workers, for a file's tests share what they started. Those that take longest
begin first, so that none is left over at the end, when there is nothing for the other workers. How
long a file takes is told by how long its tests are allowed to, where they say so.

The frameworks' tests are as one file: three members of Ray keep two cores busy, and of two such
clusters at once each looks like a slow product.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

USUAL_S: Final = 15
"""Of a test without a limit of its own; those that have one are mostly done in a fifteenth of it."""
TOGETHER: Final = "tests/e2e/frameworks/"


def scope(nodeid: str) -> str:
    """What the test goes to a worker with."""
    return TOGETHER if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]


class ByFile(LoadFileScheduling):
    """A file at a time, and :data:`TOGETHER` as one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """See above."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them by what goes together; within that they stay as they are."""
    allowed = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("timeout")
        allowed[scope(item.nodeid)] += mark.args[0] if mark else USUAL_S
    items.sort(key=lambda item: (-allowed[scope(item.nodeid)], scope(item.nodeid)))
