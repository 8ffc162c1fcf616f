"""What a cluster lost is placed again beside the others, apart from them, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.base.records import Gang, Job, Lease
from marketplace.market.core.ending import HOLDING
from marketplace.market.core.waiting import AGAIN_MS
from tests.unit.support.gangs import CLUSTER, DOES, MEMBERS, RULES, World

START = ("accepts", "signs", "starts")


async def running(hosts: int) -> World:
    """A cluster of which all run, one on each host."""
    world = World()
    await world.begin(hosts)
    await world.post_cluster()
    for does in START:
        for at in range(MEMBERS):
            await world.happens(does, at)
    return world


def living(world: World) -> list[Lease]:
    return [lease for lease in world.all(Lease) if lease.state in HOLDING]


def job_at(world: World, at: int) -> Job:
    return sorted(world.all(Job), key=lambda job: job.id)[at]


async def _replaced() -> World:
    world = await running(MEMBERS + 1)
    before = {lease.id for lease in living(world)}
    lost = job_at(world, 1)
    await world.happens("is lost", 1)
    await world.look()  # it has no key left for another channel
    assert job_at(world, 1).needs == "session_vk"
    await world.bring_keys()
    again = job_at(world, 1)
    assert again.lease not in (lost.lease, "") and again.retries == 1
    assert before - {lost.lease} < {lease.id for lease in living(world)}
    return world


def test_a_lost_member_is_quoted_anew_apart_from_the_others_which_live_on() -> None:
    async def go() -> None:
        world = await _replaced()
        assert len({lease.provider for lease in living(world)}) == MEMBERS
        for does in START:
            await world.happens(does, 1)
        await world.look()
        assert {job.state for job in world.all(Job)} == {JobState.RUNNING}
        [gang] = world.all(Gang)
        assert gang.state is GangState.WHOLE

    anyio.run(go)


def test_a_replacement_that_is_declined_is_looked_for_again_and_the_others_live_on() -> None:
    async def go() -> None:
        world = await _replaced()
        await world.happens("declines", 1)
        await world.look()
        [gang] = world.all(Gang)
        assert gang.state is GangState.WHOLE
        waits = job_at(world, 1)
        assert (waits.state, waits.lease) == (JobState.POSTED, "")
        assert len(living(world)) == MEMBERS - 1

    anyio.run(go)


def test_one_that_may_wait_waits_for_all_its_members_and_what_it_loses_stands_in_no_queue() -> None:
    """Not for as many as it may run on with: it is placed whole."""

    async def go() -> None:
        world = World()
        await world.begin(MEMBERS - 1)
        await world.post_cluster(replace(CLUSTER, policy=replace(CLUSTER.policy, queue=True)))
        await world.look()
        [gang] = world.all(Gang)
        assert gang.state is GangState.WAITING and not world.all(Lease)
        world.list_host(MEMBERS - 1)
        await world.refresh()
        await world.look()
        for does in START:
            for at in range(MEMBERS):
                await world.happens(does, at)
        assert {job.state for job in world.all(Job)} == {JobState.RUNNING}
        await world.happens("is lost", 0)
        await world.look()
        await world.bring_keys()
        waits = job_at(world, 0)
        assert (waits.state, waits.lease) == (JobState.POSTED, "")
        directory = world.market.directory
        assert not directory.waiting(waits.id) and not directory.waiting(waits.gang)
        assert [job.state for job in world.all(Job)].count(JobState.RUNNING) == MEMBERS - 1

    anyio.run(go)


def test_where_no_place_is_left_it_waits_and_has_the_next_one() -> None:
    async def go() -> None:
        world = await running(MEMBERS)
        await world.happens("is lost", 0)
        await world.look()
        await world.bring_keys()
        waits = job_at(world, 0)
        assert (waits.state, waits.lease) == (JobState.POSTED, "") and "avoided" in waits.explain[
            "reasons"
        ]
        assert not world.market.directory.waiting(waits.id), "the queue would not keep it apart"
        assert [job.state for job in world.all(Job)].count(JobState.RUNNING) == MEMBERS - 1
        world.list_host(MEMBERS, region="US")
        await world.refresh()
        world.clock.ms += AGAIN_MS
        await world.look()
        assert job_at(world, 0).message and not job_at(world, 0).needs, "in another region"
        world.list_host(MEMBERS + 1)
        await world.refresh()
        await world.look()
        assert not job_at(world, 0).needs, "a moment is not over"
        world.clock.ms += AGAIN_MS
        await world.look()
        await world.bring_keys()
        assert job_at(world, 0).lease
        assert len({lease.provider for lease in living(world)}) == MEMBERS

    anyio.run(go)


def test_one_that_is_lost_more_often_than_its_policy_says_ends_all() -> None:
    async def go() -> None:
        world = await running(MEMBERS)
        for at in range(3):
            await world.happens("is lost", 2)
            await world.look()
            await world.bring_keys()
            if at < 2:
                world.list_host(MEMBERS + at)
                await world.refresh()
                world.clock.ms += AGAIN_MS
                await world.look()
                await world.bring_keys()
                for does in START:
                    await world.happens(does, 2)
        await world.settle()
        [gang] = world.all(Gang)
        assert (gang.state, gang.reason) == (GangState.ENDED, EndReason.MEMBER_ENDED)
        assert job_at(world, 2).reason == EndReason.PROVIDER_LOST
        assert not living(world)

    anyio.run(go)


@pytest.mark.parametrize("does", ["fails", "is stopped"])
def test_any_other_end_ends_all(does: str) -> None:
    async def go() -> None:
        world = await running(MEMBERS + 1)
        await world.happens(does, 1)
        await world.settle()
        assert {job.state for job in world.all(Job)} == {JobState.ENDED}

    anyio.run(go)


LOST, UP = RULES.cluster_lost_ms, RULES.redial_ms


@pytest.mark.parametrize(
    ("away_ms", "up_ms", "lost"),
    [
        (LOST - 1, UP, False),
        (LOST, UP, True),
        (UP, UP, True),
        (2 * UP, UP - 1, False),  # adapters could not have found it again yet
        (RULES.resume_window_ms, 2 * RULES.resume_window_ms, False),  # as any other lease by then
    ],
)
def test_a_member_is_lost_once_its_provider_is_away_and_could_have_come_back(
    away_ms: int, up_ms: int, lost: bool
) -> None:
    async def go() -> None:
        world = await running(MEMBERS)
        lease = next(one for one in living(world) if one.job == job_at(world, 1).id)
        await world.away(lease, away_ms, up_ms)
        assert (lease.id not in {one.id for one in living(world)}) == lost
        assert len(living(world)) == MEMBERS - lost
        assert job_at(world, 1).retries == lost

    anyio.run(go)


def test_another_gangs_member_is_not_lost_so_soon() -> None:
    async def go() -> None:
        world = World()
        await world.begin(MEMBERS)
        await world.post()
        for does in START:
            for at in range(MEMBERS):
                await world.happens(does, at)
        before = living(world)
        await world.away(before[0], UP, UP)
        assert living(world) == before

    anyio.run(go)


EVENT = st.tuples(
    st.sampled_from((*START, *START, *DOES, "keys", "time", "the market dies", "is lost")),
    st.integers(0, MEMBERS - 1),
)


@given(st.lists(EVENT, max_size=24), st.integers(MEMBERS, MEMBERS + 1))
@settings(max_examples=60, deadline=None)
def test_members_are_apart_and_none_is_forgotten_whatever_happens(
    events: list[tuple[str, int]], hosts: int
) -> None:
    async def go() -> None:
        world = World()
        await world.begin(hosts)
        await world.post_cluster()
        for does, at in events:
            match does:
                case "keys":
                    await world.bring_keys()
                case "time":
                    world.clock.ms += AGAIN_MS
                case "the market dies":
                    await world.up()
                case _:
                    await world.happening(does, at)
            await world.look()
            _check(world)

    anyio.run(go)


def _check(world: World) -> None:
    held = living(world)
    assert len({lease.provider for lease in held}) == len(held), "two on one host"
    [gang] = world.all(Gang)
    for job in world.all(Job):
        over = job.state in (JobState.ENDING, JobState.ENDED)
        assert over or job.lease or job.retries or gang.state is not GangState.WHOLE
        if gang.state is GangState.ENDED:
            assert over
        assert not world.market.directory.waiting(job.id)
