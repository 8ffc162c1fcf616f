"""When relays are looked at, and what a reading takes of it: by relays that answer as they like."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import pytest

from adapter.metering import relays
from adapter.metering.relays import Relays
from marketplace.chain.node.relay import Reading
from marketplace.domain.metering.meter import BRIDGE_NS
from marketplace.domain.metering.reading import Cause
from marketplace.domain.ouroboros.reading import Standing
from marketplace.domain.work.relay import RelayNeed

NEED = RelayNeed("preprod", 3001)
AT = ("127.0.0.1", 1)
Look = Callable[[], Awaitable[Standing]]


class Stage:
    """What every relay does when it is looked at, and how many are there."""

    def __init__(self, script: Look) -> None:
        self.script, self.open = script, 0

    def relay(self, *_: object) -> Scripted:
        return Scripted(self)


class Scripted:
    """In the place of a relay."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.open += 1

    async def __aenter__(self) -> Scripted:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stage.open -= 1

    async def look(self, _: int) -> Reading:
        return Reading(await self.stage.script())


Told = Callable[[Relays, anyio.abc.TaskGroup, Stage], Awaitable[None]]


def play(monkeypatch: pytest.MonkeyPatch, script: Look, told: Told) -> None:
    stage = Stage(script)
    monkeypatch.setattr(relays, "Relay", stage.relay)
    monkeypatch.setattr(relays, "AT_ONCE_S", 0.05)

    async def run() -> None:
        async with anyio.create_task_group() as group:
            known = Relays(lambda: 0)
            known.follow(group, "lease_1", AT, NEED)
            known.follow(group, "lease_1", AT, NEED)
            await told(known, group, stage)
            known.forget("lease_1")
            known.forget("lease_1")
        assert stage.open == 0

    anyio.run(run)


def test_each_look_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> Standing:
        return Standing.AT_TIP

    async def told(known: Relays, *_: object) -> None:
        assert known.take("lease_1") is None and known.take("another") is None
        await known.look()
        found = known.take("lease_1")
        assert found is not None and found.cause(served=False) is None
        assert known.take("lease_1") is None

    play(monkeypatch, script, told)


def test_one_that_answers_late_each_time_is_read_by_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a relay that is a little slow would never be billed, and its free time never end."""
    asked = 0

    async def script() -> Standing:
        nonlocal asked
        asked += 1
        await anyio.sleep(0.1)
        return Standing.LAGGING

    async def told(known: Relays, *_: object) -> None:
        for rounds in range(1, 4):
            await known.look()
            assert known.take("lease_1") is None
            await anyio.sleep(0.3)
            await known.look()
            found = known.take("lease_1")
            assert found is not None and found.cause(served=True) is Cause.LAGGING
            assert asked == rounds

    play(monkeypatch, script, told)


def test_what_was_found_long_ago_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "FRESH_S", 0.2)
    asked = 0

    async def script() -> Standing:
        nonlocal asked
        asked += 1
        await anyio.sleep(0.1 if asked == 1 else 0)
        return Standing.AT_TIP

    async def told(known: Relays, *_: object) -> None:
        await known.look()
        await anyio.sleep(0.6)
        assert known.take("lease_1") is None
        await known.look()
        assert known.take("lease_1") is not None and asked == 2

    play(monkeypatch, script, told)


def test_at_another_address_it_is_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script() -> Standing:
        return Standing.AT_TIP

    async def told(known: Relays, group: anyio.abc.TaskGroup, stage: Stage) -> None:
        await known.look()
        known.follow(group, "lease_1", ("127.0.0.1", 2), NEED)
        await anyio.sleep(0.05)
        assert stage.open == 1 and known.take("lease_1") is None

    play(monkeypatch, script, told)


def test_the_slowest_answer_is_within_a_gap_that_is_bridged() -> None:
    rounds_s = 1.0
    assert relays.WITHIN_S + rounds_s < BRIDGE_NS / 1e9
