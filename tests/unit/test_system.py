"""Names only grow and never meet; the collector is as it was once a market has gone."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from marketplace.system import SystemIds, settled_memory


def test_names_grow_within_a_millisecond_and_from_one_to_the_next(monkeypatch: pytest.MonkeyPatch):
    ids, clock = SystemIds(), iter(range(10**18, 10**18 + 10**12, 250_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    made = [ids.new("job") for _ in range(4_000)]  # a thousand milliseconds, four names each
    assert made == sorted(set(made))
    assert {len(name) for name in made} == {len("job_") + 26}


def test_two_processes_names_never_meet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    starts = {SystemIds().new("job") for _ in range(2_000)}
    assert len(starts) == 2_000


@pytest.fixture
def unsettled() -> Iterator[None]:
    """As a process begins, and not as the tests' processes are (tests/conftest.py)."""
    settled = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*settled)
    gc.freeze()


@pytest.mark.usefixtures("unsettled")
def test_the_collector_is_as_it_was_after_the_block():
    before = gc.get_threshold()
    with pytest.raises(RuntimeError), settled_memory():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] > before[0]
        raise RuntimeError
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_where_it_is_settled_already_nothing_happens():
    """What was frozen is so still, but for what nobody held any more; and nothing of what came
    since is.
    """
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    assert frozen > 0
    since: list[list[int]] = [[] for _ in range(1000)]
    with settled_memory():
        assert gc.get_threshold() == threshold and 0 < gc.get_freeze_count() <= frozen
    assert gc.get_threshold() == threshold and 0 < gc.get_freeze_count() <= frozen
    assert len(since) == 1000


@pytest.mark.usefixtures("unsettled")
def test_a_market_in_somebody_elses_process_leaves_the_collector_alone():
    seen: list[tuple[int, int, int]] = []

    def work() -> None:
        with settled_memory():
            seen.append(gc.get_threshold())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert seen == [gc.get_threshold()]
