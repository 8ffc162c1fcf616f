"""What becomes of a job that has no lease: it waits, looks again, or ends.  Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.domain.errors import Conflict
from marketplace.domain.work.job_machine import JOB, JobEvent, JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.base.errors import NothingMatches
from marketplace.market.base.records import Job, Lease
from marketplace.market.core.inputs import Exhausted, KeyBrought, RoomBegun, Stop, Unmatched
from marketplace.market.core.outcome import (
    Enqueue,
    FreeBudget,
    LeaveQueue,
    Outcome,
    Rematch,
    Story,
    WakeMatcher,
)

NO_MATCH: Final = "NO_MATCH"
AGAIN_MS: Final = 3_000
"""So long a cluster's member that was lost waits for the next look for a place."""


def waits(job: Job) -> bool:
    """Whether a job waits where it finds no place: as its policy says, or because it made way for
    another.
    """
    policy = job.parsed.policy
    again = job.retries > 0 and EndReason.PREEMPTED.lower() in policy.retry_on
    return policy.queue or again


def lost(job: Job) -> bool:
    """Whether it is a cluster's member that lost its place, or one of a gang that waits whose place
    was not free yet, and has or looks for another: no other gang's is ever given a second one.
    """
    return bool(job.gang and (job.retries or job.busy))


def pausing(job: Job, now: int) -> bool:
    """Whether a provider said a moment ago that it is still clearing up for this job, or there was
    no place for it.
    """
    return not job.lease and now < job.not_before_ms


def unplaced(job: Job) -> bool:
    """Whether it wants a place: it has no lease and waits for nothing else."""
    return job.state in (JobState.POSTED, JobState.QUEUED) and not job.lease and not job.needs


def check_unplaced(job: Job) -> None:
    """Conflict for a job that wants no place (any more)."""
    if not unplaced(job):
        raise Conflict(f"{job.id} wants no place now ({job.state.name})", job=job.id)


def unmatched(job: Job, asked: Unmatched, now: int) -> Outcome:
    """Wait if the job's policy says so, or if it made way for another; refuse a new job; end one
    that had a lease before. NothingMatches where somebody waits for the answer.

    What a cluster lost stands in no queue, which would not place it beside the others: it is looked
    for again in a moment. The members of a gang stand in it as one, by its name.
    """
    check_unplaced(job)
    why, explain = asked.why, dict(asked.explain)
    if lost(job):
        told = () if job.explain else (Story("QUEUED", explain),)
        again = now + AGAIN_MS
        job = replace(job, explain=explain, message=why, not_before_ms=again, updated_ms=now)
        return Outcome(job, None, told)
    if waits(job):
        state = JOB.step(job.state, JobEvent.WAIT)
        job = replace(job, state=state, explain=explain, updated_ms=now, message=why)
        line = () if job.gang else (Enqueue(asked.spent),)
        return Outcome(job, None, (Story("QUEUED", explain), *line))
    if asked.posting:
        raise NothingMatches(why, explain=explain)
    reason: str = EndReason.PROVIDER_LOST if job.retries else NO_MATCH
    if not job.retries and job.avoid:
        reason = EndReason.DECLINED
    return _over(replace(job, explain=explain), reason, why, now)


def exhausted(job: Job, asked: Exhausted, now: int) -> Outcome:
    """End it: no place can be paid for any more."""
    check_unplaced(job)
    return _over(job, EndReason.CEILING, asked.message, now)


def key_brought(job: Job, lease: Lease | None, asked: KeyBrought, now: int) -> Outcome:
    """The job goes on with the key that it waited for; nothing where it has it already.
    Conflict.
    """
    if job.needs != "session_vk":
        if job.session_vk == asked.session_vk and job.retries:
            return Outcome(job, lease)
        raise Conflict("the job does not wait for a session key")
    job = replace(job, session_vk=asked.session_vk, needs="", updated_ms=now)
    return Outcome(job, lease, (Rematch(job.id),))


def room_begun(job: Job, lease: Lease | None, asked: RoomBegun, now: int) -> Outcome:
    """Tell the job; only one that stands in the queue is made room for. Conflict."""
    if job.state is not JobState.QUEUED:
        raise Conflict(f"{job.id} does not wait in the queue", job=job.id)
    job = replace(job, message="room is being made for this job", updated_ms=now)
    return Outcome(job, lease, (Story("ROOM", asked.detail),))


def stop(job: Job, asked: Stop, now: int) -> Outcome:
    """End what has no lease; nothing for what is over."""
    if job.state not in (JobState.POSTED, JobState.QUEUED):
        return Outcome(job, None)
    return _over(job, asked.reason, job.message, now).and_then(LeaveQueue(), WakeMatcher())


def _over(job: Job, reason: str, message: str, now: int) -> Outcome:
    """A job ends that has no lease."""
    state = JOB.step(job.state, JobEvent.END)
    job = replace(
        job, state=state, reason=reason, message=message, updated_ms=now, needs=""
    )  # fmt: skip
    return Outcome(
        job, None, (Story("ENDED", {"reason": str(reason)}), FreeBudget(job.spent_before))
    )
