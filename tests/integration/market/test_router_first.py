"""A market lets nobody in before its router is there: who connects after a restart says its last
payment again, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import anyio

from marketplace.domain.errors import Fault
from marketplace.process.main import Config, running
from marketplace.router.running import RouterRun
from tests.fakes import until
from tests.integration.support.market import HOOK_KEY, fast


class Desk:
    """Of a router that nobody speaks to."""

    def heard_by(self, *_: object) -> None: ...


class Run:
    desk = Desk()

    async def run(self, candidates: object) -> None:
        await anyio.sleep_forever()

    def close(self) -> None: ...


def story(
    tmp_path: Path, opened: Callable[[], Awaitable[Any]], tell: Callable[[Any], Awaitable[None]]
) -> None:
    async def run() -> None:
        route = cast(Callable[[], Awaitable[RouterRun]], opened)
        config = Config(
            f"sqlite:///{tmp_path}/m.db", str(tmp_path / "blobs"), settings=fast(),
            hook_key=HOOK_KEY, route=route,
        )  # fmt: skip
        with anyio.fail_after(60):
            async with running(config) as market:
                await tell(market.market)

    anyio.run(run)


def test_the_market_is_open_once_its_router_is(tmp_path: Path) -> None:
    async def slowly() -> Run:
        await anyio.sleep(1)
        return Run()

    async def tell(market: Any) -> None:
        assert isinstance(market.router, Desk)

    story(tmp_path, slowly, tell)


def test_a_chain_that_is_away_does_not_keep_it_shut(tmp_path: Path) -> None:
    tries: list[None] = []
    back = anyio.Event()

    async def later() -> Run:
        tries.append(None)
        if len(tries) == 1:
            raise Fault("the chain is away")
        await back.wait()
        return Run()

    async def tell(market: Any) -> None:
        assert market.router is None and len(tries) == 1
        back.set()
        await until(lambda: isinstance(market.router, Desk))

    story(tmp_path, later, tell)
