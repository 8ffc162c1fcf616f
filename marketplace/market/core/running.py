"""While the workload runs: what its adapter tells of it, notices, and an adapter that comes back.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.protocol import wire
from marketplace.domain.work.job_machine import JOB, JobEvent
from marketplace.domain.work.lease import LEASE, EndReason, LeaseEvent, LeaseState
from marketplace.market.base.records import Job, Lease
from marketplace.market.core import ending
from marketplace.market.core.inputs import (
    NoticeGiven,
    NoticeWithdrawn,
    Paused,
    Reconnected,
    Resumed,
    StageSeen,
    Started,
)
from marketplace.market.core.outcome import Outcome, Say, Story
from marketplace.market.core.proposal import proposed
from marketplace.market.core.starting import lease_signed
from marketplace.market.state.open_quotes import WAITS


def progressed(
    job: Job, lease: Lease, asked: Started | Paused | Resumed | StageSeen, now: int
) -> Outcome:
    """What the adapter tells of the workload; nothing for what does not follow on where it
    stands.
    """
    match asked:
        case Started() if lease.state is LeaseState.FUNDED:
            return _started(job, lease, now)
        case Paused(message, shown) if lease.state is LeaseState.ACTIVE:
            job = replace(job, message=message[:500])
            out = _step(job, lease, LeaseEvent.PAUSE, JobEvent.PAUSE, "PAUSED", now)
            return out.and_then(Story("PAUSED", {"message": message[:500]})) if shown else out
        case Resumed(shown) if lease.state is LeaseState.PAUSED:
            job = replace(job, message="")
            out = _step(job, lease, LeaseEvent.RESUME, JobEvent.RESUME, "RESUMED", now)
            return out.and_then(Story("RESUMED")) if shown else out
        case StageSeen(stage, detail, shown):
            out = Outcome(job, replace(lease, stage=stage))
            return out.and_then(Story(stage, detail)) if shown else out
        case _:
            return Outcome(job, lease)


def _started(job: Job, lease: Lease, now: int) -> Outcome:
    """The workload runs; the sealed secrets are of no more use here."""
    lease = replace(lease, started_ms=now, secrets={})
    out = _step(job, lease, LeaseEvent.STARTED, JobEvent.START, "STARTED", now)
    return out.and_then(Story("STARTED"))


def _step(
    job: Job, lease: Lease, event: LeaseEvent, of_job: JobEvent, stage: str, now: int
) -> Outcome:
    lease = replace(lease, state=LEASE.step(lease.state, event), stage=stage)
    return Outcome(replace(job, state=JOB.step(job.state, of_job), updated_ms=now), lease)


def noticed(job: Job, lease: Lease, asked: NoticeGiven | NoticeWithdrawn, now: int) -> Outcome:
    """A job of higher priority is to have this place: time to save work. Or it is not, after
    all.
    """
    if job.lease != lease.id or lease.state not in ending.LIVE:
        return Outcome(job, lease)
    match asked:
        case NoticeGiven(deadline_ms):
            message = "a job of higher priority takes this place; save your work"
            told = Story("NOTICE", {"reason": EndReason.PREEMPTED, "deadline_ms": deadline_ms})
        case NoticeWithdrawn():
            message, told = "", Story("NOTICE_WITHDRAWN")
    return Outcome(replace(job, message=message, updated_ms=now), lease, (told,))


def reconnected(job: Job, lease: Lease, asked: Reconnected, now: int) -> Outcome:
    """Both sides agree again on what runs: what is unsaid is said again, a ghost of either side
    ends.
    """
    match lease.state:
        case LeaseState.PROPOSED:
            again = proposed(lease, job.parsed)
        case LeaseState.OFFERED | LeaseState.ACTIVE | LeaseState.PAUSED if not asked.held:
            return ending.lost(job, lease, asked.owed, now)
        case LeaseState.FUNDED if lease.stage != WAITS:
            again = lease_signed(lease)
        case LeaseState.ENDING if asked.held and lease.stop_asked:
            again = wire.StopAsked(lease.id, lease.stop_asked)
        case LeaseState.ENDING if asked.held and lease.reason == EndReason.PROVIDER_LOST:
            again = wire.LeaseCancelled(lease.id, EndReason.PROVIDER_LOST)
        case LeaseState.ENDING if not asked.held and not lease.finished_ms:
            reason = lease.stop_asked or EndReason.PROVIDER_LOST
            return ending.finished(job, lease, reason, "", None, asked.owed, now)
        case _:
            return Outcome(job, lease)
    return Outcome(job, lease, (Say(lease.provider, again),))
