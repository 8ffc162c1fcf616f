"""A gang is never half placed and no end is lost, wherever the market dies."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Gang, Lease, OfferRecord
from marketplace.market.core.waiting import NO_MATCH
from tests.unit.support.gangs import DOES, HOSTS, MEMBERS, PATIENT, TOGETHER, World

Death = tuple[int, bool]
Happening = tuple[str, int, Death | None]
DEATH = st.none() | st.tuples(st.integers(0, 3), st.booleans())
"""At which commit from now, and whether that one was still written."""
EVENT = st.tuples(
    st.sampled_from(
        ("accepts", "signs", "starts", *DOES, "the market looks", "the gang is stopped")
    ),
    st.integers(0, 3),
    DEATH,
)


async def story(
    events: list[Happening],
    first: Death | None = None,
    elsewhere: bool = False,
    hosts: int = 4,
    together: JobSpec = TOGETHER,
) -> World:
    """Post *together* (with a death at *first*), let *events* happen, and wait until nothing
    happens any more.
    """
    world = World(together=together)
    await world.begin(hosts)
    await world.dying(world.post(elsewhere=elsewhere), first)
    for does, at, dies in events:
        match does:
            case "the market looks":
                work = world.look()
            case "the gang is stopped":
                work = world.stop_gang()
            case "a host comes":
                world.list_host(len(world.all(OfferRecord)) % len(HOSTS))
                work = world.refresh()
            case _:
                work = world.happens(does, at)
        await world.dying(work, dies)
    await world.settle()
    world.check_settled()
    return world


@given(st.lists(EVENT, max_size=14), DEATH, st.booleans(), st.integers(2, 4))
@settings(max_examples=80, deadline=None)
def test_wherever_it_dies_a_gang_is_whole_or_over(
    events: list[Happening], first: Death | None, elsewhere: bool, hosts: int
) -> None:
    anyio.run(story, events, first, elsewhere, hosts)


@given(
    st.lists(EVENT | st.tuples(st.just("a host comes"), st.just(0), st.none()), max_size=14),
    DEATH,
    st.booleans(),
    st.integers(1, 4),
)
@settings(max_examples=80, deadline=None)
def test_wherever_it_dies_a_gang_that_waits_is_placed_whole_or_holds_nothing(
    events: list[Happening], first: Death | None, elsewhere: bool, hosts: int
) -> None:
    anyio.run(story, events, first, elsewhere, hosts, PATIENT)


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_what_waits_is_placed_by_whoever_matches_once_a_host_comes(
    written: bool, placed: bool
) -> None:
    """It dies over its wait, then over its places."""
    events: list[Happening] = [
        ("the market looks", 0, (0, written)),
        ("a host comes", 0, None),
        ("the market looks", 0, (0, placed)),
    ]
    world = anyio.run(story, events, None, True, MEMBERS - 1, PATIENT)
    assert world.deaths == 2
    [gang] = world.all(Gang)
    assert (gang.state, gang.reason) == (GangState.WHOLE, "")
    assert {job.state for job in world.members(gang)} == {JobState.POSTED}
    assert (
        len(
            {
                lease.created_ms
                for lease in world.all(Lease)
                if lease.job in {job.id for job in world.members(gang)}
            }
        )
        == 1
    )


def test_what_has_no_budget_left_when_its_place_comes_ends_for_that_reason() -> None:
    async def spent() -> World:
        world = World(together=PATIENT)
        await world.begin(MEMBERS - 1)
        await world.post()
        [gang] = world.all(Gang)
        assert gang.state is GangState.WAITING
        members = [
            replace(job, spent_before=job.parsed.price.budget) for job in world.members(gang)
        ]
        await world.store.apply(Change(sets=[*members]))
        world.list_host(MEMBERS)
        await world.refresh()
        await world.settle()
        world.check_settled()
        return world

    world = anyio.run(spent)
    [gang] = world.all(Gang)
    assert (gang.state, gang.reason) == (GangState.ENDED, EndReason.CEILING)
    assert {job.reason for job in world.members(gang)} == {EndReason.CEILING}


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("commit", range(3))
@pytest.mark.parametrize(
    ("does", "after"),
    [
        ("declines", ()),
        ("lapses", ()),
        ("lapses", ("accepts",)),
        ("lapses", ("accepts", "signs")),
        ("fails", ("accepts", "signs", "starts")),
        ("is lost", ("accepts", "signs", "starts")),
        ("is preempted", ("accepts", "signs", "starts")),
        ("is stopped", ("accepts", "signs", "starts")),
    ],
)
def test_what_becomes_of_one_becomes_of_all_at_every_point_of_death(
    does: str, after: tuple[str, ...], commit: int, written: bool
) -> None:
    """It dies over the member's end, then over the ends of the others."""
    events: list[Happening] = [(step, at, None) for step in after for at in range(MEMBERS)]
    events += [(does, 1, (0, written)), (does, 1, None), ("the market looks", 0, (commit, written))]
    world = anyio.run(story, events)
    assert world.deaths == 2
    [gang] = world.all(Gang)
    assert (gang.state, gang.reason) == (GangState.ENDED, EndReason.MEMBER_ENDED)
    assert {job.state for job in world.members(gang)} == {JobState.ENDED}


@pytest.mark.parametrize("dies", [None, (0, False), (0, True), (1, False), (2, True)])
def test_a_stop_by_its_consumer_ends_all_for_that_reason(dies: Death | None) -> None:
    world = anyio.run(story, [("the gang is stopped", 0, dies)])
    [gang] = world.all(Gang)
    reasons = {job.reason for job in world.members(gang)}
    if dies == (0, False):  # nobody heard of it
        assert (gang.state, reasons) == (GangState.WHOLE, {""})
    else:
        assert (gang.state, reasons) == (GangState.ENDED, {EndReason.CANCELLED})


@pytest.mark.parametrize("written", [False, True])
def test_one_that_nobody_looked_at_is_placed_by_whoever_matches_next(written: bool) -> None:
    events: list[Happening] = [("the market looks", 0, (0, written))]
    world = anyio.run(story, events, None, True)
    [gang] = world.all(Gang)
    assert gang.state is GangState.WHOLE and world.deaths == 1
    assert len(world.all(Lease)) == MEMBERS + 1  # and the job alone


def test_where_not_all_have_a_place_none_has_and_whoever_matches_says_so() -> None:
    events: list[Happening] = [("the market looks", 0, (0, False))]
    world = anyio.run(story, events, None, True, MEMBERS - 1)
    [gang] = world.all(Gang)
    assert gang.state is GangState.ENDED and world.deaths == 1
    assert {job.reason for job in world.members(gang)} == {NO_MATCH}
    assert not {lease.job for lease in world.all(Lease)} & {job.id for job in world.members(gang)}


def test_what_has_no_budget_left_for_a_place_ends_for_that_reason() -> None:
    async def spent() -> World:
        world = World()
        await world.begin(4)
        await world.post(elsewhere=True)
        [gang] = world.all(Gang)
        members = [
            replace(job, spent_before=job.parsed.price.budget) for job in world.members(gang)
        ]
        await world.store.apply(Change(sets=[*members]))
        await world.settle()
        world.check_settled()
        return world

    world = anyio.run(spent)
    [gang] = world.all(Gang)
    assert (gang.state, gang.reason) == (GangState.ENDED, EndReason.CEILING)
    assert {(job.state, job.reason) for job in world.members(gang)} == {
        (JobState.ENDED, EndReason.CEILING)
    }
    assert not any(
        lease.job in {job.id for job in world.members(gang)} for lease in world.all(Lease)
    )
