"""Connections that wait for their next request, and what waits for its reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from marketplace.domain.protocol import flow
from marketplace.hub import streams
from marketplace.hub.streams import MOST_IDLE, Stream, Streams

PART = bytes(1 << 16)


@dataclass(eq=False)
class Kept:
    """A connection; ``closed`` once it was hung up."""

    alive: bool = True
    closed: bool = False

    def hang_up(self) -> None:
        self.closed = True


def run(story: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Streams())

    anyio.run(main)


def test_the_one_that_was_used_last_is_taken_of_its_own_port_alone() -> None:
    async def story(kept: Streams) -> None:
        first, second, other = Kept(), Kept(), Kept()
        kept.keep("lease", 80, first)
        kept.keep("lease", 80, second)
        kept.keep("lease", 81, other)
        assert kept.take("another", 80) is None
        assert [kept.take("lease", 80) for _ in range(3)] == [second, first, None]
        assert kept.take("lease", 81) is other
        assert not any(one.closed for one in (first, second, other))

    run(story)


def test_a_lease_keeps_few_and_none_that_is_over() -> None:
    async def story(kept: Streams) -> None:
        made = [Kept() for _ in range(MOST_IDLE + 3)]
        for one in made:
            kept.keep("lease", 80, one)
        assert [one.closed for one in made] == [True] * 3 + [False] * MOST_IDLE
        for one in made[3:-1]:
            one.alive = False
        assert kept.take("lease", 80) is made[-1]
        assert all(one.closed for one in made[:-1]) and not made[-1].closed
        assert kept.take("lease", 80) is None

    run(story)


def test_what_nobody_asks_for_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(kept: Streams) -> None:
        early, late = Kept(), Kept()
        kept.keep("one", 80, early)
        monkeypatch.setattr(streams, "IDLE_S", 1000.0)
        kept.keep("two", 80, late)
        kept.sweep()
        assert early.closed and not late.closed
        assert kept.take("two", 80) is late

    monkeypatch.setattr(streams, "IDLE_S", 0.0)
    run(story)


def test_an_adapter_that_sends_more_than_its_window_loses_the_connection() -> None:
    async def story(_: Streams) -> None:
        stream = Stream("lease", "provider", flows=True)
        for _turn in range(2 * flow.WINDOW // len(PART)):
            await stream.put(PART)
        assert stream.over and stream.error
        assert flow.WINDOW <= stream.unread < flow.WINDOW + flow.cost(PART)
        read = 0
        while (got := await stream.get())[0]:  # what came in time is still read
            read += flow.cost(got[0])
        assert read >= flow.WINDOW and not stream.unread

    run(story)


def test_an_adapter_without_windows_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: Streams) -> None:
        stream = Stream("lease", "provider", flows=False)
        while stream.unread < streams.MOST_WAITING:
            await stream.put(PART)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.put, PART)
            await anyio.wait_all_tasks_blocked()
            assert await stream.get() == (PART, None)  # its reader takes some: there is room again
        assert not stream.over
        monkeypatch.setattr(streams, "SLOW_S", 0.01)
        await stream.put(PART)
        await stream.put(PART)
        assert stream.over

    run(story)


def test_of_one_provider_another_ends_nothing() -> None:
    async def story(kept: Streams) -> None:
        stream = kept.live["s"] = Stream("lease", "honest", flows=True)
        kept.closed("s", "liar", "")
        kept.gone("liar")
        assert kept.of("s", "liar") is None and kept.of("s", "honest") is stream
        assert not stream.over
        kept.gone("honest")
        assert stream.over and stream.error and not kept.live
        assert await stream.get() == (b"", None)

    run(story)
