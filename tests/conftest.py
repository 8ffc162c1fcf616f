"""What holds for every test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("tally", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tally")


def pytest_collection_finish() -> None:
    """What the tests import stays: the cycle collector, which would look through all of it for each
    few hundred new objects, leaves it alone and comes less often. It took two fifths of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True)
def logs_as_they_are() -> Iterator[None]:
    """A command that a test calls in this process points the logs at that test's stderr: it ends
    with it.
    """
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True, scope="module")
def nothing_left_open() -> Iterator[None]:
    """What a file leaves open is told of when it is collected: at that file's end, so that no later
    one is blamed.
    """
    yield
    gc.collect()
