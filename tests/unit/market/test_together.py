"""Groups: all are served, an error is everybody's, a cancelled one leaves no trace."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from marketplace.market.base.group_commit import GroupCommit

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Desk:
    """Serves groups while its gate is open."""

    def __init__(self) -> None:
        self.gate, self.busy = anyio.Event(), anyio.Event()
        self.groups: list[list[int]] = []

    async def work(self, group: list[int]) -> None:
        self.busy.set()
        await self.gate.wait()
        self.groups.append(group)
        if 13 in group:
            raise ValueError("13")


async def test_what_arrives_meanwhile_is_the_next_groups() -> None:
    desk = Desk()
    together = GroupCommit[int](3, desk.work)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(together.join, 0)
            await desk.busy.wait()
            for number in range(1, 6):
                tasks.start_soon(together.join, number)
            await anyio.wait_all_tasks_blocked()
            desk.gate.set()
        await together.join(6)
    assert desk.groups == [[0], [1, 2, 3], [4, 5], [6]]


async def test_an_error_is_everybodys_in_its_group_and_nobody_elses() -> None:
    desk = Desk()
    together = GroupCommit[int](2, desk.work)
    failed: list[int] = []

    async def join(number: int) -> None:
        try:
            await together.join(number)
        except ValueError:
            failed.append(number)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join, 0)
            await desk.busy.wait()
            for number in (1, 13, 2):
                tasks.start_soon(join, number)
            await anyio.wait_all_tasks_blocked()
            desk.gate.set()
    assert sorted(failed) == [1, 13]
    assert desk.groups == [[0], [1, 13], [2]]


async def test_whoever_is_cancelled_before_its_turn_was_never_there() -> None:
    desk = Desk()
    together = GroupCommit[int](8, desk.work)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(together.join, 0)
            await desk.busy.wait()
            with anyio.CancelScope() as scope:
                tasks.start_soon(together.join, 1)
                async with anyio.create_task_group() as inner:
                    inner.start_soon(together.join, 2)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            desk.gate.set()
    assert desk.groups == [[0], [1]]


async def test_a_leader_cancelled_before_the_work_hands_over() -> None:
    desk = Desk()
    together = GroupCommit[int](8, desk.work)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(together.join, 0)
                    await desk.busy.wait()
                    tasks.start_soon(together.join, 1)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            desk.gate.set()
    assert desk.groups == [[1]]


async def test_what_can_wait_is_gathered_before_the_group_is_closed() -> None:
    desk = Desk()
    desk.gate.set()
    together = GroupCommit[int](2, desk.work, gather_s=0.01)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(together.join, number)
    assert desk.groups == [[0, 1], [2]]


async def test_a_leader_cancelled_while_it_gathers_hands_over() -> None:
    desk = Desk()
    desk.gate.set()
    together = GroupCommit[int](8, desk.work, gather_s=0.2)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(together.join, 0)
                    await anyio.lowlevel.checkpoint()
                    tasks.start_soon(together.join, 1)
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
        await together.join(2)
    assert desk.groups == [[1], [2]]
