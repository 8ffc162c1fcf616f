"""What becomes of a gang and, where it concerns all of them at once, of its members.  Pure.

Placing is one decision about all members, or none. What happens to one of them afterwards is
decided for its job, as for any other; the gang looks how its members stand. A cluster's member that
its policy has tried again stays one of it: it is placed anew by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from marketplace.domain.errors import Conflict
from marketplace.domain.work.gang import GANG, GangEvent, GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.base.records import Gang, Job
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import AllMatched, GangInput, Looked, Stop, Unmatched
from marketplace.market.core.outcome import Outcome
from marketplace.market.core.reconcile import OVER
from marketplace.market.core.waiting import lost, unplaced


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """A gang as it is now, and what becomes of each of its *members*; none where they stay as they
    are.
    """

    gang: Gang
    members: tuple[Outcome, ...] = ()


def decide_gang(gang: Gang, members: Sequence[Job], asked: GangInput, now: int) -> GangOutcome:
    """What becomes of *gang* and its *members* (in their order) through *asked*.

    NothingMatches where somebody waits for the answer; OverBudget; Conflict for a member that wants
    no place; IllegalTransition.
    """
    match asked:
        case AllMatched():
            return _placed(gang, members, asked, now)
        case Unmatched():
            outs = tuple(decide(job, None, asked, now) for job in members)
            wait = all(out.job.state is JobState.QUEUED for out in outs)
            return GangOutcome(_step(gang, GangEvent.WAIT if wait else GangEvent.REFUSE), outs)
        case Stop():
            return GangOutcome(_stopped(gang, asked))
        case Looked():
            return GangOutcome(_looked(gang, members))


def _placed(gang: Gang, members: Sequence[Job], asked: AllMatched, now: int) -> GangOutcome:
    outs = tuple(
        decide(job, None, match, now) for job, match in zip(members, asked.members, strict=True)
    )
    lacking = next((out.job for out in outs if out.lease is None), None)
    if lacking is not None:
        raise Conflict(f"{lacking.id} has no session key, so no member is placed")
    return GangOutcome(_step(gang, GangEvent.PLACE), outs)


def _stopped(gang: Gang, asked: Stop) -> Gang:
    """Twice is once, and what is over stays so."""
    if not GANG.accepts(gang.state, GangEvent.STOP):
        return gang
    return replace(_step(gang, GangEvent.STOP), reason=asked.reason)


def _looked(gang: Gang, members: Sequence[Job]) -> Gang:
    """Not whole any more, or over, as its members stand."""
    broken = any(_fell(gang, job) for job in members)
    if broken and GANG.accepts(gang.state, GangEvent.BREAK):
        gang = replace(_step(gang, GangEvent.BREAK), reason=EndReason.MEMBER_ENDED)
    over = all(job.state is JobState.ENDED for job in members)
    if over and GANG.accepts(gang.state, GangEvent.FINISH):
        gang = _step(gang, GangEvent.FINISH)
    return gang


def _fell(gang: Gang, job: Job) -> bool:
    """Whether the gang is not whole for this member's sake; one that completed is no failure, and
    one that a cluster lost is replaced.
    """
    if job.state in OVER:
        return job.reason != EndReason.COMPLETED
    return gang.state is GangState.WHOLE and unplaced(job) and not lost(job)


def _step(gang: Gang, event: GangEvent) -> Gang:
    return replace(gang, state=GANG.step(gang.state, event))
