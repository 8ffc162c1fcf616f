"""The market's mind: ``decide(job, lease, asked, now) -> Outcome``.  Pure.

    consumer ─▶             ┌────────┐ ──▶ Tell, Say   an adapter, by the outbox or at once
    adapter ──▶  job, lease │ decide │ ──▶ Rematch     whoever places jobs
    time ─────▶             └────────┘ ──▶ Remember, FreeBudget, Release …

Every pair of a state and an input is answered by a change, by nothing at all, or by a Refusal with
a code.  :mod:`marketplace.market.lifecycle.change` writes an outcome before it performs its
effects.
"""

from __future__ import annotations

from marketplace.domain.errors import NotFound
from marketplace.market.base.records import Job, Lease
from marketplace.market.core import ending, proposal, renewing, running, starting, waiting
from marketplace.market.core.inputs import (
    Accepted,
    Accounted,
    Declined,
    Exhausted,
    Exited,
    Input,
    KeyBrought,
    LateReceipt,
    Matched,
    NoticeGiven,
    NoticeOver,
    NoticeWithdrawn,
    Passed,
    Paused,
    ProviderLost,
    Reconnected,
    RenewalAsked,
    RenewalSigned,
    Resumed,
    RoomBegun,
    Signed,
    StageSeen,
    Started,
    Stop,
    TurnCame,
    TurnMissed,
    Unmatched,
)
from marketplace.market.core.outcome import Outcome


def decide(job: Job, lease: Lease | None, asked: Input, now: int) -> Outcome:
    """What becomes of *job* and *lease* through *asked*, and what is to be done.

    *lease* is the one that the input is about; an input about a job without one is given None.
    """
    match asked:
        case Matched():
            return proposal.matched(job, asked, now)
        case Unmatched():
            return waiting.unmatched(job, asked, now)
        case Exhausted():
            return waiting.exhausted(job, asked, now)
        case KeyBrought():
            return waiting.key_brought(job, lease, asked, now)
        case RoomBegun():
            return waiting.room_begun(job, lease, asked, now)
        case Stop() if lease is None:
            return waiting.stop(job, asked, now)
        case _ if lease is None:
            raise NotFound(f"{job.id} has no lease", job=job.id)
        case Accepted() | Declined() if renewing.is_asked(lease):
            return _of_renewal(job, lease, asked, now)
        case RenewalAsked() | RenewalSigned():
            return _of_renewal(job, lease, asked, now)
        case Accepted() | Declined() | Signed() | TurnCame() | TurnMissed() | Passed():
            return _before_start(job, lease, asked, now)
        case _:
            return _of_lease(job, lease, asked, now)


def _of_renewal(
    job: Job,
    lease: Lease,
    asked: RenewalAsked | RenewalSigned | Accepted | Declined,
    now: int,
) -> Outcome:
    match asked:
        case RenewalAsked():
            return renewing.asked(job, lease, asked, now)
        case Accepted():
            return renewing.accepted(job, lease, asked, now)
        case Declined():
            return renewing.declined(job, lease, asked, now)
        case RenewalSigned():
            return renewing.signed(job, lease, asked, now)


def _before_start(
    job: Job,
    lease: Lease,
    asked: Accepted | Declined | Signed | TurnCame | TurnMissed | Passed,
    now: int,
) -> Outcome:
    match asked:
        case Accepted():
            return starting.accepted(job, lease, asked, now)
        case Declined():
            return starting.declined(job, lease, asked, now)
        case Signed():
            return starting.signed(job, lease, asked, now)
        case TurnCame():
            return starting.turn_came(job, lease, now)
        case TurnMissed():
            return starting.turn_missed(job, lease, now)
        case Passed():
            return starting.passed(job, lease, asked, now)


def _of_lease(job: Job, lease: Lease, asked: Input, now: int) -> Outcome:
    match asked:
        case Started() | Paused() | Resumed() | StageSeen():
            return running.progressed(job, lease, asked, now)
        case NoticeGiven() | NoticeWithdrawn():
            return running.noticed(job, lease, asked, now)
        case Reconnected():
            return running.reconnected(job, lease, asked, now)
        case NoticeOver():
            return ending.notice_over(job, lease, now)
        case Stop():
            return ending.stop(job, lease, asked.reason, now)
        case Exited():
            return ending.exited(job, lease, asked, now)
        case ProviderLost():
            return ending.lost(job, lease, asked.owed, now)
        case LateReceipt():
            return ending.late_receipt(job, lease, asked, now)
        case Accounted():
            return ending.accounted(job, lease, asked, now)
        case _:
            raise TypeError(f"{type(asked).__name__} is about no lease")
