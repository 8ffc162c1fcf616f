"""How a lease ends, what becomes of its job, and when nothing is due any more.  Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.domain.protocol import wire
from marketplace.domain.units import owed as owed_for
from marketplace.domain.units import unit_ms
from marketplace.domain.work.job_machine import JOB, JobEvent, JobState
from marketplace.domain.work.lease import LEASE, EndReason, LeaseEvent, LeaseState
from marketplace.market.base.records import Job, Lease
from marketplace.market.base.routing import Sums
from marketplace.market.core.inputs import Accounted, Exited, LateReceipt
from marketplace.market.core.outcome import (
    FreeBudget,
    Lapse,
    Outcome,
    Release,
    Rematch,
    Remember,
    Story,
    Tell,
)
from marketplace.market.state.open_quotes import unfunded

LIVE: Final = (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED)
BEFORE_FUNDS: Final = (LeaseState.PROPOSED, LeaseState.OFFERED)
HOLDING: Final = (*BEFORE_FUNDS, *LIVE)
LATE_MS: Final = 5_000  # after a lease's end; then its last receipt counts as not answered
_ENDS: Final = frozenset(r.value for r in EndReason)
_WORDS: Final = {
    "CRASHED": EndReason.FAILED,
    "STOPPED": EndReason.CANCELLED,
    "LOST": EndReason.PROVIDER_FAULT,
}


# ---- before it began -----------------------------------------------------------------------------


def never_was(
    job: Job, lease: Lease, event: LeaseEvent, reason: str, message: str, now: int
) -> Outcome:
    """A lease that never came to be: the job goes back and avoids that provider."""
    message = message[:500]
    state = LEASE.step(lease.state, event)
    job = replace(
        job,
        state=JOB.step(job.state, JobEvent.REMATCH),
        avoid=[*job.avoid, lease.provider],
        updated_ms=now,
        lease="",
        provider="",
        message=message,
    )
    detail = {"reason": reason, "message": message, "provider": lease.provider}
    return Outcome(
        job,
        replace(lease, state=state, reason=reason, message=message, ended_ms=now),
        (Story("DECLINED", detail), Release(lease.id), Rematch(job.id)),
    )


# ---- asked to ------------------------------------------------------------------------------------


def stop(job: Job, lease: Lease, reason: str, now: int) -> Outcome:
    """The consumer, a limit or the operator wants it to end."""
    if lease.state in BEFORE_FUNDS:
        state = LEASE.step(lease.state, LeaseEvent.STOP)
        gone = replace(lease, state=state, reason=reason, ended_ms=now)
        out = job_over(Outcome(job, gone), reason, "", now, "STOPPING")
        return out.and_then(Tell(lease.provider, wire.LeaseCancelled(lease.id, reason)))
    if lease.state is LeaseState.ENDING:
        if job.lease == lease.id and job.reason == EndReason.PREEMPTED != reason:
            # It is being ended for another job already; after this it does not begin again.
            return Outcome(replace(job, reason=reason, updated_ms=now), lease)
        return Outcome(job, lease)
    if lease.state is LeaseState.ENDED:
        return Outcome(job, lease)
    state = LEASE.step(lease.state, LeaseEvent.STOP)
    lease = replace(lease, state=state, stop_asked=reason, reason=reason)
    if JOB.accepts(job.state, JobEvent.STOP):
        job = replace(job, state=JOB.step(job.state, JobEvent.STOP), reason=reason, updated_ms=now)
    told = Tell(lease.provider, wire.StopAsked(lease.id, reason))
    return Outcome(job, lease, (Story("STOPPING", {"reason": reason}), told))


def notice_over(job: Job, lease: Lease, now: int) -> Outcome:
    """The notice is over: what still runs is asked to end. It pays for what was delivered, no
    more.
    """
    if lease.state not in LIVE:
        return Outcome(job, lease)
    return stop(job, lease, EndReason.PREEMPTED, now)


# ---- over ----------------------------------------------------------------------------------------


def end_reason(word: str, lease: Lease) -> str:
    """The adapter's word for the end as an ``EndReason``; the one that was asked for wins."""
    if lease.stop_asked and word in ("", "STOPPED", EndReason.CANCELLED):
        return lease.stop_asked
    if word == EndReason.PREEMPTED != lease.stop_asked:
        return EndReason.PROVIDER_FAULT  # only the market preempts
    if word in _ENDS:
        return word
    return _WORDS.get(word, EndReason.FAILED)


def exited(job: Job, lease: Lease, asked: Exited, now: int) -> Outcome:
    """The workload is gone. An end for want of payment is held against its consumer, and so is a
    channel that was never there, unless it is a router's.
    """
    reason = end_reason(asked.word, lease)
    if reason == EndReason.UNPAID and not asked.unpaid:
        reason = EndReason.PROVIDER_FAULT  # its word alone is held against nobody
    out = finished(job, lease, reason, asked.message, asked.exit_code, asked.owed, now)
    if out.lease == lease:
        return out
    if reason == EndReason.UNPAID:
        return out.and_then(Remember(Lapse.ENDED_UNPAID))
    if reason == EndReason.CHANNEL_REFUSED and unfunded(lease) and not lease.hop:
        return out.and_then(Remember(Lapse.LET_LAPSE))
    return out


def finished(
    job: Job,
    lease: Lease,
    reason: str,
    message: str,
    exit_code: int | None,
    owed_now: int,
    now: int,
) -> Outcome:
    """The workload is gone; the last receipt and voucher are still due."""
    if not LEASE.accepts(lease.state, LeaseEvent.FINISHED) or lease.finished_ms:
        return Outcome(job, lease)
    message = message[:500]
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.FINISHED),
        reason=reason,
        message=message,
        exit_code=exit_code,
        finished_ms=now,
        stage="FINISHED",
        owed=owed_now,
        secrets={},
    )
    told = Story("FINISHED", {"reason": reason, "message": message, "exit_code": exit_code})
    out = Outcome(job, lease, (told, Release(lease.id)))
    if job.lease != lease.id:
        return out
    if reason == EndReason.PREEMPTED:
        reason = job.reason or reason  # its consumer may have ended it since
        again = reason == EndReason.PREEMPTED
    else:
        again = reason in (EndReason.PROVIDER_FAULT, EndReason.START_FAILED)
        again &= job.state is not JobState.ENDING  # what was to end does not begin again
    if again and retries(job, reason):
        return _retry(out, lease, reason, owed_now, now)
    if JOB.accepts(job.state, JobEvent.STOP):
        job = replace(job, state=JOB.step(job.state, JobEvent.STOP))
    job = replace(job, reason=reason, message=message, exit_code=exit_code, updated_ms=now)
    return replace(out, job=job)


def lost(job: Job, lease: Lease, owed_now: int, now: int) -> Outcome:
    """The provider is gone for longer than the resume window, or forgot the lease."""
    reason = EndReason.PROVIDER_LOST
    if lease.state in BEFORE_FUNDS:
        out = never_was(job, lease, LeaseEvent.LOST, reason, "the provider is gone", now)
        if lease.state is LeaseState.OFFERED:  # shown to the consumer: its key may be on chain
            return replace(out, job=replace(out.job, session_vk=b""))
        return out
    if lease.state not in LIVE:
        return Outcome(job, lease)
    message = "the provider did not come back in time"
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.LOST),
        reason=reason,
        message=message,
        finished_ms=now,
        owed=owed_now,
        secrets={},
    )
    out = Outcome(job, lease, (Story("PROVIDER_LOST", {"reason": reason}), Release(lease.id)))
    if job.lease != lease.id or job.state is JobState.ENDED:
        return out
    if job.state is not JobState.ENDING and retries(job, reason):
        return _retry(out, lease, reason, owed_now, now)
    return job_over(out, reason, message, now, "")


def late_receipt(job: Job, lease: Lease, asked: LateReceipt, now: int) -> Outcome:
    """What came late counts as spent by a job that has gone on elsewhere."""
    more = asked.owed - lease.owed
    if job.lease == lease.id or more <= 0:
        return Outcome(job, lease)
    job = replace(job, spent_before=job.spent_before + more, updated_ms=now)
    return Outcome(job, replace(lease, owed=asked.owed))


def retries(job: Job, reason: str) -> bool:
    """Whether the job's policy wants another provider after *reason*."""
    policy = job.parsed.policy
    return reason.lower() in policy.retry_on and job.retries < policy.retry_max


def _retry(out: Outcome, lease: Lease, reason: str, owed_now: int, now: int) -> Outcome:
    """Another provider, with what is left of the budget; after a preemption it may be the same."""
    job = out.job
    preempted = reason == EndReason.PREEMPTED
    job = replace(
        job,
        state=JOB.step(job.state, JobEvent.REMATCH),
        retries=job.retries + 1,
        avoid=job.avoid if preempted else [*job.avoid, lease.provider],
        spent_before=job.spent_before + owed_now,
        lease="",
        provider="",
        reason=reason if preempted else "",
        message=f"{reason}: looking for another {'place' if preempted else 'provider'}",
        updated_ms=now,
    )
    return replace(out, job=job).and_then(Rematch(job.id))


# ---- nothing is due any more ---------------------------------------------------------------------


def accounted(job: Job, lease: Lease, asked: Accounted, now: int) -> Outcome:
    """End a lease whose workload is gone when nothing is due any more.

    Due are: the last receipt's voucher, and (once the consumer sent its End) the adapter's Finish.
    Without an End the channel is left open for reuse after a short grace. A routed lease waits for
    what is due over its hop, and for nothing else.
    """
    if lease.state is not LeaseState.ENDING or not lease.finished_ms:
        return Outcome(job, lease)
    channel, age, rules = asked.channel, now - lease.finished_ms, asked.rules
    if lease.hop:
        return _routed(job, lease, asked, now)
    if channel is None or channel.settled_tx:
        return settled(job, lease, asked.lease_owed, channel.settled_tx if channel else "", now)
    ends = bool(channel.end_signature)  # then the adapter will finish it, or the settler claim it
    if not asked.lease_owed:
        waits, late = ends and age < rules.lost_grace_ms, ()
    else:
        covered = asked.answered is not None and asked.answered >= asked.channel_owed
        late = (Remember(Lapse.ANSWERS_LATE),) if not covered and age >= LATE_MS else ()
        waits = not covered and age < rules.unpaid_grace_ms
        waits |= age < (rules.lost_grace_ms if ends else rules.end_grace_ms)
    if waits:
        return Outcome(job, lease, late)
    return settled(job, lease, asked.lease_owed, "", now).and_then(*late)


def _routed(job: Job, lease: Lease, asked: Accounted, now: int) -> Outcome:
    """Of its consumer is asked what :func:`lacks` says; a market whose router is away asks none."""
    age = now - lease.finished_ms
    short = asked.routed is not None and lacks(lease, asked.routed)
    covered = asked.routed is not None and asked.routed.received >= asked.lease_owed
    late = (Remember(Lapse.ANSWERS_LATE),) if short and age >= LATE_MS else ()
    if asked.lease_owed and not covered and age < asked.rules.unpaid_grace_ms:
        return Outcome(job, lease, late)
    return settled(job, lease, asked.lease_owed, "", now).and_then(*late)


def lacks(lease: Lease, sums: Sums) -> bool:
    """Whether its consumer paid less than it has to: what is owed, but no more than one tick beyond
    what the provider has confirmed. What the router does not pass on is held against nobody else.
    """
    terms = lease.agreed
    tick = owed_for(unit_ms(terms.tick_ms, terms.units_milli), terms.rate_micro)
    return sums.received < min(sums.owed, sums.confirmed + tick, terms.ceiling)


def settled(job: Job, lease: Lease, owed: int, tx: str, now: int) -> Outcome:
    """The lease ends for good, and its job with it."""
    state = LEASE.step(lease.state, LeaseEvent.SETTLED)
    lease = replace(lease, state=state, settled_tx=tx or lease.settled_tx, ended_ms=now, owed=owed)
    out = Outcome(job, lease, (Story("SETTLED", {"tx": tx} if tx else {}),))
    if job.lease == lease.id and job.state is JobState.ENDING:
        return job_over(out, job.reason or lease.reason, job.message, now, "")
    return out


def job_over(out: Outcome, reason: str, message: str, now: int, kind: str = "ENDED") -> Outcome:
    """The job ends; *kind* tells its story where nothing else does.

    A lease whose workload never ran gives its devices back with it.
    """
    lease = out.lease
    job = replace(
        out.job,
        state=JOB.step(out.job.state, JobEvent.END),
        reason=reason,
        message=message or out.job.message,
        updated_ms=now,
        needs="",
    )
    out = replace(out, job=job)
    if kind:
        out = out.and_then(Story(kind, {"reason": reason}))
    if lease is not None and not lease.finished_ms:
        out = out.and_then(Release(lease.id))
    return out.and_then(FreeBudget(job.spent_before + (lease.owed if lease is not None else 0)))
