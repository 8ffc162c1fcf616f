"""Several questions to the chain's door at once; it limits how many are in flight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

from marketplace.domain.errors import TallyError

T = TypeVar("T")


async def at_once(ask: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """*ask* for each of *items*. A failure is raised as it is once all are done: a task group would
    wrap it in a group, which whoever waits out a door's faults does not catch.
    """
    failed: list[TallyError] = []

    async def one(item: T) -> None:
        try:
            await ask(item)
        except TallyError as error:
            failed.append(error)

    async with anyio.create_task_group() as group:
        for item in items:
            group.start_soon(one, item)
    if failed:
        raise failed[0]
