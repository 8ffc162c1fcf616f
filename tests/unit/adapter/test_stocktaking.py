"""The market is told of images when it matters, and the owner's rule is followed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import pytest

from adapter.core.shelving import Shelving, Stock
from adapter.core.workload import RuntimeFault
from adapter.daemon import stocktaking
from adapter.daemon.ports import Market
from adapter.daemon.stocktaking import Stocktaking, differs
from marketplace.domain.protocol import wire

NOW = Stock(b"\1" * 8, 2000, 100, 70_000_000, 3, 900)


@dataclass
class FakeLink:
    up: bool = True
    sent: list[wire.Message] = field(default_factory=list[wire.Message])

    def send(self, message: wire.Message, number: int | None = None) -> None:
        self.sent.append(message)


@dataclass
class FakeStore:
    now: Stock = NOW
    changes: int = 1
    read: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    kept: list[Shelving] = field(default_factory=list[Shelving])
    popular: list[str] = field(default_factory=list[str])
    away: bool = False

    def stock(self) -> Stock:
        if self.away:
            raise RuntimeFault("no Docker answers")
        return self.now

    def found(self) -> list[tuple[str, list[str]]]:
        found, self.read = self.read, []
        return found

    def evict(self, rule: Shelving) -> list[str]:
        self.kept.append(rule)
        return []

    def fetch(self, rule: Shelving) -> str:
        return self.popular.pop() if self.popular else ""


def taking(link: FakeLink, store: FakeStore, **more: Any) -> Stocktaking:
    rule, busy = more.get("rule", Shelving()), more.get("busy", lambda: False)
    return Stocktaking(cast(Market, link), store, rule, busy)


def test_the_market_hears_what_differs_and_nothing_twice() -> None:
    link, store = FakeLink(), FakeStore()

    async def run() -> None:
        one = taking(link, store)
        await one.step()
        store.changes += 1
        await one.step()
        assert link.sent == [wire.StockTold(NOW.held, 2000, 100, 70_000_000)]
        store.now, store.changes = replace(NOW, start_ms=2100), store.changes + 1  # a twentieth
        await one.step()
        assert len(link.sent) == 1
        store.now, store.changes = replace(NOW, start_ms=4000), store.changes + 1
        store.read = [("lease", ["{}"])]
        await one.step()
        assert link.sent[1:] == [
            wire.ManifestTold("lease", ["{}"]), wire.StockTold(NOW.held, 4000, 100, 70_000_000),
        ]  # fmt: skip
        assert one.status()["images"] == 3

    anyio.run(run)


def test_nothing_is_lost_while_the_market_is_away_or_docker_is() -> None:
    link, store = FakeLink(up=False), FakeStore(read=[("lease", ["{}"])])

    async def run() -> None:
        one = taking(link, store)
        await one.step()
        assert link.sent == [] and store.read
        link.up, store.changes, store.away = True, store.changes + 1, True
        with pytest.raises(RuntimeFault):  # logged by whoever goes on, and tried again
            await one.step()
        store.away, store.changes = False, store.changes + 1
        await one.step()
        assert [type(one) for one in link.sent] == [wire.ManifestTold, wire.StockTold]

    anyio.run(run)


def test_images_are_fetched_ahead_by_the_owners_rule_and_not_while_a_lease_starts() -> None:
    store = FakeStore(popular=["b", "a"])
    busy = True

    async def run() -> None:
        nonlocal busy
        await taking(FakeLink(), store).ahead()  # by default none is
        one = taking(FakeLink(), store, rule=Shelving(ahead=2), busy=lambda: busy)
        await one.ahead()
        assert store.popular == ["b", "a"]
        busy = False
        for _ in range(3):
            await one.ahead()
        assert store.popular == []

    anyio.run(run)


def test_what_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    link, store = FakeLink(), FakeStore(away=True)

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(taking(link, store).run)
            await anyio.wait_all_tasks_blocked()
            store.away, store.changes = False, 2
            with anyio.fail_after(30):
                while not link.sent:  # noqa: ASYNC110  a list, no event
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert store.kept == [Shelving()]

    monkeypatch.setattr(stocktaking, "STEP_S", 0.01)
    anyio.run(run)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (NOW, False),
        (replace(NOW, images=9, mib=9), False),
        (replace(NOW, held=b"\2" * 8), True),
        (replace(NOW, bytes_s=76_000_000), False),
        (replace(NOW, bytes_s=80_000_000), True),
        (replace(NOW, pull_ms=0), True),
    ],
)
def test_what_counts_is_what_is_held_or_a_tenth(other: Stock, told: bool) -> None:
    assert differs(NOW, other) is told
