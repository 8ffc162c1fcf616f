"""What is wanted against what is: places to be found, jobs to be ended.  Pure.

As in Nomad, nothing here remembers what was done: whoever was killed half way looks again and finds
what is left. A job alone and a gang differ in nothing but how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.base.records import Gang, Job
from marketplace.market.core.waiting import lost, pausing, unplaced

OVER: Final = (JobState.ENDING, JobState.ENDED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of jobs: a place for each (*run*), or an end for *reason*."""

    run: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Find a place for every one of *jobs*, or for none."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Find another place for *job*, which its cluster lost, beside the others."""

    job: Job


@dataclass(frozen=True, slots=True)
class Wait:
    """*jobs* stand in the fair queue as one, and have their places when its turn comes."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class End:
    """*job* is to end for *reason*."""

    job: Job
    reason: str


Move = Place | Replace | Wait | End


def wanted(of: Job | Gang) -> Wanted:
    """As its state says: a wish that was kept beside it could contradict it."""
    if isinstance(of, Gang):
        return Wanted(of.state not in (GangState.ENDING, GangState.ENDED), of.reason)
    return Wanted(of.state not in OVER, of.reason)


def reconcile(wish: Wanted, jobs: Sequence[Job], now: int) -> tuple[Move, ...]:
    """What brings *jobs* (one alone, or all members of a gang) from where they are to what is
    wanted.
    """
    if not wish.run:
        return tuple(End(job, _reason(job, wish)) for job in jobs if job.state not in OVER)
    if any(map(lost, jobs)):
        gone = (job for job in jobs if lost(job) and unplaced(job))
        return tuple(Replace(job) for job in gone if not pausing(job, now))
    if not all(map(unplaced, jobs)):
        return ()  # placed; or not all of a gang can be, so none is
    if any(job.state is JobState.QUEUED for job in jobs):
        return (Wait(tuple(jobs)),)
    if any(pausing(job, now) for job in jobs):
        return ()
    return (Place(tuple(jobs)),)


def _reason(job: Job, wish: Wanted) -> str:
    """The member that was declined says so."""
    declined = unplaced(job) and job.avoid and not lost(job)
    return EndReason.DECLINED if declined else wish.reason
