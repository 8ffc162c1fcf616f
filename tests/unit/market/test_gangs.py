"""What becomes of a gang, by where its members stand; and what is wanted against what is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marketplace.domain.errors import Conflict
from marketplace.domain.work.gang import GANG, GangEvent, GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.errors import NothingMatches, OverBudget
from marketplace.market.base.records import Job
from marketplace.market.core.decide import decide
from marketplace.market.core.gang import decide_gang
from marketplace.market.core.inputs import AllMatched, Looked, Matched, Stop, Unmatched
from marketplace.market.core.outcome import Story
from marketplace.market.core.reconcile import End, Place, Replace, Wait, Wanted, reconcile, wanted
from marketplace.market.core.waiting import AGAIN_MS
from tests.unit.support.decided_gangs import (
    ASKED,
    BUSY,
    COMPLETED,
    DECLINED,
    FRESH,
    MISSED,
    QUEUED,
    RUNNING,
    STANDS,
    WAITS,
    gang,
    inputs,
    numbered,
)
from tests.unit.support.decisions import NOW, place

_S = GangState


def over(state: JobState, reason: str) -> Job:
    return replace(ASKED, state=state, reason=reason)


QUOTED, PAUSED = replace(ASKED, state=JobState.QUOTED), replace(ASKED, state=JobState.PAUSED)
FINISHING = over(JobState.ENDING, "COMPLETED")


@pytest.mark.parametrize(
    ("members", "ends"),
    [
        ([ASKED, ASKED, ASKED], False),
        ([ASKED, QUOTED, QUOTED], False),
        ([RUNNING, QUOTED, PAUSED], False),
        ([COMPLETED, RUNNING, RUNNING], False),
        ([FINISHING, RUNNING, COMPLETED], False),
        ([DECLINED, QUOTED, ASKED], True),
        ([DECLINED, DECLINED, DECLINED], True),
        ([FRESH, DECLINED, FRESH], True),
        ([over(JobState.ENDING, "FAILED"), RUNNING, COMPLETED], True),
        ([over(JobState.ENDING, "CANCELLED"), RUNNING, RUNNING], True),
        ([over(JobState.ENDED, "QUOTE_EXPIRED"), RUNNING, QUOTED], True),
        ([over(JobState.ENDING, "START_FAILED"), RUNNING, QUOTED], True),
        ([over(JobState.ENDED, "PREEMPTED"), RUNNING, RUNNING], True),
        ([over(JobState.ENDED, "PROVIDER_LOST"), COMPLETED, RUNNING], True),
    ],
)
def test_one_for_all(members: list[Job], ends: bool) -> None:
    for order in (members, members[::-1]):
        now = decide_gang(gang(_S.WHOLE), numbered(order), Looked(), NOW).gang
        told = (_S.ENDING, "MEMBER_ENDED") if ends else (_S.WHOLE, "")
        assert (now.state, now.reason) == told
        moves = reconcile(wanted(now), numbered(order), NOW)
        living = {job.id for job in numbered(order) if job.state.name not in ("ENDING", "ENDED")}
        assert {move.job.id for move in moves if isinstance(move, End)} == (
            living if ends else set()
        )
        assert len(moves) == (len(living) if ends else 0)


def matched(*names: str) -> AllMatched:
    return AllMatched(tuple(Matched(place(FRESH), name, NOW + 1000) for name in names))


def test_all_are_placed_at_once() -> None:
    out = decide_gang(gang(_S.WANTED), numbered([FRESH] * 3), matched("l1", "l2", "l3"), NOW)
    assert out.gang.state is _S.WHOLE
    assert [one.job.lease for one in out.members] == ["l1", "l2", "l3"]


@pytest.mark.parametrize(
    ("last", "refusal"),
    [
        (replace(FRESH, session_vk=b""), Conflict),
        (replace(FRESH, spent_before=FRESH.parsed.price.budget), OverBudget),
        (over(JobState.ENDED, "CANCELLED"), Conflict),
    ],
)
def test_where_one_cannot_be_placed_none_is(last: Job, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        decide_gang(gang(_S.WANTED), numbered([FRESH, FRESH, last]), matched("a", "b", "c"), NOW)


def test_without_a_place_for_all_it_is_refused_or_all_end_for_that_reason() -> None:
    members = numbered([FRESH, FRESH])
    with pytest.raises(NothingMatches):
        decide_gang(gang(_S.WANTED), members, Unmatched("none", {}, posting=True), NOW)
    out = decide_gang(gang(_S.WANTED), members, Unmatched("none", {"text": "none"}), NOW)
    assert out.gang.state is _S.ENDED
    assert {(one.job.state, one.job.reason) for one in out.members} == {
        (JobState.ENDED, "NO_MATCH")
    }


NO: Unmatched = Unmatched("1 of 3 members fit", {"text": "1 of 3 members fit", "members": 1})


def test_one_that_may_wait_waits_with_all_its_members_and_each_says_why() -> None:
    for asked in (NO, replace(NO, posting=True)):
        out = decide_gang(gang(_S.WANTED), numbered([WAITS] * 3), asked, NOW)
        assert out.gang.state is _S.WAITING
        for one in out.members:
            assert (one.job.state, one.job.lease) == (JobState.QUEUED, "")
            assert (one.job.message, one.job.explain["members"]) == ("1 of 3 members fit", 1)
            # It stands in no queue by itself: a member alone would be given a place.
            assert [type(effect) for effect in one.effects] == [Story]


def test_what_waits_is_placed_whole_or_waits_on() -> None:
    waits = numbered([QUEUED] * 3)
    out = decide_gang(gang(_S.WAITING), waits, matched("l1", "l2", "l3"), NOW)
    assert out.gang.state is _S.WHOLE
    assert [(one.job.state, one.job.lease) for one in out.members] == [
        (JobState.POSTED, "l1"), (JobState.POSTED, "l2"), (JobState.POSTED, "l3")
    ]  # fmt: skip
    again = decide_gang(gang(_S.WAITING), waits, NO, NOW)
    assert again.gang.state is _S.WAITING
    assert {one.job.state for one in again.members} == {JobState.QUEUED}
    for last in (over(JobState.ENDED, "CANCELLED"), replace(QUEUED, needs="session_vk")):
        with pytest.raises(Conflict):
            members = numbered([QUEUED, QUEUED, last])
            decide_gang(gang(_S.WAITING), members, matched("l1", "l2", "l3"), NOW)


def test_a_stop_or_one_members_end_ends_what_waits() -> None:
    waits = numbered([QUEUED] * 3)
    stopped = decide_gang(gang(_S.WAITING), waits, Stop("CANCELLED"), NOW).gang
    assert (stopped.state, stopped.reason) == (_S.ENDING, "CANCELLED")
    assert reconcile(wanted(stopped), waits, NOW) == tuple(End(one, "CANCELLED") for one in waits)
    looked = decide_gang(gang(_S.WAITING), waits, Looked(), NOW).gang
    assert looked == gang(_S.WAITING)
    assert reconcile(wanted(looked), waits, NOW) == (Wait(tuple(waits)),)
    members = numbered([over(JobState.ENDED, "CANCELLED"), QUEUED, QUEUED])
    broken = decide_gang(gang(_S.WAITING), members, Looked(), NOW).gang
    assert (broken.state, broken.reason) == (_S.ENDING, "MEMBER_ENDED")


def test_whose_place_is_still_taken_is_asked_again_and_the_others_keep_theirs() -> None:
    """The host of what has just ended may be clearing up, as for a job alone that waits."""
    members = numbered([BUSY, replace(WAITS, lease="lease_2", state=JobState.QUOTED)])
    now = decide_gang(gang(_S.WHOLE), members, Looked(), NOW).gang
    assert now.state is _S.WHOLE
    assert reconcile(wanted(now), members, NOW) == (Replace(members[0]),)
    later = [replace(members[0], not_before_ms=NOW + 1), members[1]]
    assert reconcile(wanted(now), later, NOW) == ()


def test_the_consumers_stop_wins_over_a_members_end_and_is_said_once() -> None:
    broken = decide_gang(gang(_S.WHOLE), [DECLINED, RUNNING], Looked(), NOW).gang
    stopped = decide_gang(broken, [DECLINED, RUNNING], Stop("CANCELLED"), NOW).gang
    assert (stopped.state, stopped.reason) == (_S.ENDING, "CANCELLED")
    assert decide_gang(stopped, [RUNNING], Stop("CANCELLED"), NOW).gang == stopped
    ended = gang(_S.ENDED)
    assert decide_gang(ended, [COMPLETED], Stop("CANCELLED"), NOW).gang == ended


def test_it_is_over_with_its_last_member() -> None:
    ended = over(JobState.ENDED, "MEMBER_ENDED")
    for state in (_S.WHOLE, _S.ENDING):
        assert decide_gang(gang(state), [COMPLETED, ended], Looked(), NOW).gang.state is _S.ENDED
    assert decide_gang(gang(_S.ENDING), [FINISHING, ended], Looked(), NOW).gang.state is _S.ENDING


@pytest.mark.parametrize("stands", STANDS)
@pytest.mark.parametrize("state", GangState)
def test_a_look_twice_is_a_look_once_and_never_leads_back(state: GangState, stands: str) -> None:
    members = numbered(STANDS[stands])
    once = decide_gang(gang(state), members, Looked(), NOW).gang
    assert decide_gang(once, members, Looked(), NOW).gang == once
    for asked in inputs().values():
        if isinstance(asked, (Stop, Looked)):
            now = decide_gang(gang(state), members, asked, NOW).gang
            assert list(GangState).index(now.state) >= list(GangState).index(state)
    assert not any(GANG.accepts(_S.ENDED, event) for event in GangEvent)


# ---- what is wanted against what is --------------------------------------------------------------

RUN, END = Wanted(True), Wanted(False, "CANCELLED")


def test_a_job_alone_is_a_gang_of_one() -> None:
    assert reconcile(RUN, [FRESH], NOW) == (Place((FRESH,)),)
    assert reconcile(RUN, [ASKED], NOW) == ()
    assert reconcile(END, [RUNNING], NOW) == (End(RUNNING, "CANCELLED"),)
    assert reconcile(wanted(COMPLETED), [COMPLETED], NOW) == ()


def test_places_are_for_all_or_for_none() -> None:
    assert reconcile(RUN, [FRESH, FRESH], NOW) == (Place((FRESH, FRESH)),)
    assert reconcile(RUN, [FRESH, ASKED], NOW) == ()


def test_who_waits_is_not_placed() -> None:
    assert reconcile(RUN, [QUEUED], NOW) == (Wait((QUEUED,)),)
    assert reconcile(RUN, [replace(FRESH, needs="session_vk")], NOW) == ()
    later = replace(FRESH, not_before_ms=NOW + 1)
    assert reconcile(RUN, [later], NOW) == ()
    assert reconcile(RUN, [later], NOW + 1) == (Place((later,)),)


def test_what_is_over_is_not_ended_again_and_who_was_declined_says_so() -> None:
    members = [COMPLETED, FINISHING, RUNNING, DECLINED]
    assert reconcile(END, members, NOW) == (End(RUNNING, "CANCELLED"), End(DECLINED, "DECLINED"))


# ---- what a cluster lost -------------------------------------------------------------------------

WAITS_FOR_KEY = replace(MISSED, needs="session_vk")


@pytest.mark.parametrize(
    ("members", "replaced"),
    [
        ([MISSED, RUNNING, RUNNING], [0]),
        ([MISSED, RUNNING, MISSED], [0, 2]),
        ([MISSED, MISSED, MISSED], [0, 1, 2]),
        ([MISSED, COMPLETED, FINISHING], [0]),
        ([WAITS_FOR_KEY, RUNNING, MISSED], [2]),
        ([replace(MISSED, not_before_ms=NOW + 1), RUNNING, RUNNING], []),
        ([replace(MISSED, not_before_ms=NOW), RUNNING, RUNNING], [0]),
        ([replace(QUOTED, retries=1), RUNNING, RUNNING], []),
        ([replace(RUNNING, retries=2), RUNNING, RUNNING], []),
    ],
)
def test_what_a_cluster_lost_is_placed_by_itself_and_the_others_live_on(
    members: list[Job], replaced: list[int]
) -> None:
    one = numbered(members)
    now = decide_gang(gang(_S.WHOLE), one, Looked(), NOW).gang
    assert (now.state, now.reason) == (_S.WHOLE, "")
    assert reconcile(wanted(now), one, NOW) == tuple(Replace(one[at]) for at in replaced)


@pytest.mark.parametrize("reason", ["PROVIDER_LOST", "QUOTE_EXPIRED", "GROUP_STALLED", "CEILING"])
def test_an_end_that_no_policy_tries_again_ends_a_cluster_too(reason: str) -> None:
    members = numbered([replace(over(JobState.ENDED, reason), retries=3), MISSED, RUNNING])
    now = decide_gang(gang(_S.WHOLE), members, Looked(), NOW).gang
    assert (now.state, now.reason) == (_S.ENDING, "MEMBER_ENDED")
    ends = reconcile(wanted(now), members, NOW)
    assert ends == tuple(End(one, "MEMBER_ENDED") for one in members[1:])


def test_what_finds_no_place_beside_the_others_is_looked_for_again_and_says_so_once() -> None:
    told = decide(MISSED, None, Unmatched("none", {"text": "none"}), NOW)
    assert (told.job.state, told.job.message) == (JobState.POSTED, "none")
    assert [type(one) for one in told.effects] == [Story]
    assert reconcile(RUN, [told.job, RUNNING], NOW) == ()
    later = NOW + AGAIN_MS
    assert reconcile(RUN, [told.job, RUNNING], later) == (Replace(told.job),)
    again = decide(told.job, None, Unmatched("none", {"text": "none"}), later)
    assert (again.effects, again.job.not_before_ms) == ((), later + AGAIN_MS)
