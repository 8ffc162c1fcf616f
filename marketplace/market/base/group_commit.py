"""What comes at the same time is done at the same time: one commit for many changes, one query for
many questions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


@dataclass(eq=False)
class _Seat(Generic[T]):
    item: T
    woken: anyio.Event = field(default_factory=anyio.Event)
    leads: bool = False
    error: Exception | None = None


class GroupCommit(Generic[T]):
    """Whoever finds nobody at work takes up to *most* of what waits and works for all of it.

    What arrives meanwhile is the next group, led by its first. Where what comes can wait a little,
    the first of a group waits *gather_s* for others to join it. An error of *work* is everybody's
    in the group. Whoever is cancelled before its group's turn leaves no trace.
    """

    def __init__(
        self, most: int, work: Callable[[list[T]], Awaitable[None]], gather_s: float = 0.0
    ) -> None:
        self._most, self._work, self._gather_s = most, work, gather_s
        self._waiting: list[_Seat[T]] = []
        self._busy = False

    async def join(self, item: T) -> None:
        """Returns when *item* has been worked on."""
        seat = _Seat(item)
        self._waiting.append(seat)
        if self._busy:
            try:
                await seat.woken.wait()
            except BaseException:
                self._leave(seat)
                raise
        else:
            self._busy = seat.leads = True
        if seat.leads:
            await self._lead(seat)
        if seat.error is not None:
            raise seat.error

    async def _lead(self, mine: _Seat[T]) -> None:
        if self._gather_s:
            try:
                await anyio.sleep(self._gather_s)
            except BaseException:
                self._leave(mine)
                raise
        group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            await self._work([seat.item for seat in group])
        except Exception as error:  # noqa: BLE001 (everybody in the group raises it)
            for seat in group:
                seat.error = error
        except BaseException:  # cancelled before the work began: the others go first next time
            self._waiting = [seat for seat in group if seat is not mine] + self._waiting
            self._pass_on()
            raise
        for seat in group:
            seat.woken.set()
        self._pass_on()

    def _leave(self, seat: _Seat[T]) -> None:
        if seat in self._waiting:
            self._waiting.remove(seat)
        if seat.leads:
            self._pass_on()

    def _pass_on(self) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].woken.set()
