"""Every decision about jobs and leases, pure: records and an event in, changed records out.

The shell (``context``, ``jobs``, ``leases``, ``upkeep``) loads, calls one of these, applies the
outcome by compare-and-set, and only then acts on ``released`` and ``rematch``.
Over 400 lines: what can happen to a lease is read as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from marketplace.domain.money.terms import Terms, check_close_period
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Offer
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.job import JOB, JobEvent, JobSpec, JobState
from marketplace.domain.work.lease import LEASE, EndReason, LeaseEvent, LeaseState
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.records import Job, Lease
from marketplace.market.state.directory import Match
from marketplace.market.state.open_quotes import WAITS

LIVE: Final = (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED)
HOLDING: Final = (LeaseState.PROPOSED, LeaseState.OFFERED, *LIVE)
BEFORE_FUNDS: Final = (LeaseState.PROPOSED, LeaseState.OFFERED)
STILL_TAKEN: Final = ("DEVICE_BUSY", "NO_ROOM")
"""Declines that pass: a workload that has ended is removed from its host a moment later."""
BUSY_TRIES: Final = 5
BUSY_MS: Final = 1_000


@dataclass
class Outcome:
    """What changes, what is sent to the adapter, and what the shell does after the commit."""

    lease: Lease
    job: Job
    sends: list[wire.Message] = field(default_factory=list[wire.Message])
    kind: str = ""
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    released: bool = False
    rematch: bool = False


def terms_of(
    job: Job,
    spec: JobSpec,
    match: Match,
    lease: str,
    session_vk: bytes,
    expires_at_ms: int,
) -> Terms:
    """The terms of *match*; the ceiling is what is left of the budget, or the longest run's cost.

    Raises :class:`OverBudget` when nothing is left.
    """
    offer, grant = match.offer, match.grant
    check_close_period(offer.magic, offer.close_period_ms)
    longest = owed(unit_ms(spec.policy.max_duration_ms, grant.units_milli), match.rate_micro) + 1
    ceiling = min(spec.price.budget - job.spent_before, longest)
    if ceiling <= 0:
        raise OverBudget("nothing is left of the job's budget", budget=spec.price.budget)
    return Terms(
        magic=offer.magic,
        lease=lease,
        job=job.id,
        offer=offer.id,
        provider=offer.provider,
        adapter_vk=bytes.fromhex(offer.provider),
        adapter_vkh=offer.adapter_vkh,
        payout=offer.payout,
        session_vk=session_vk,
        consumer_vkh=job.consumer_vkh,
        resource=grant.resource,
        rate_micro=match.rate_micro,
        units_milli=grant.units_milli,
        tick_ms=offer.tick_ms,
        grace_ms=offer.grace_ms,
        pause_limit_ms=offer.pause_limit_ms,
        close_period_ms=offer.close_period_ms,
        fee_bps=offer.fee_bps,
        ceiling=ceiling,
        max_duration_ms=spec.policy.max_duration_ms,
        asset=offer.asset,
        work=spec.hash,
        devices=grant.hash,
        expires_at_ms=expires_at_ms,
    )


def proposed(job: Job, match: Match, terms: Terms, reused: bool, now: int) -> tuple[Job, Lease]:
    """The lease that the adapter is asked for, and the job that waits for its answer."""
    grant = match.grant
    devices = [g for g in match.offer.host.gpus if g.uuid in grant.gpus]
    lease = Lease(
        id=terms.lease,
        job=job.id,
        offer=match.offer.id,
        provider=match.offer.provider,
        account=job.account,
        session_vk=terms.session_vk,
        state=LEASE.initial,
        terms=terms.encode(),
        rate_micro=terms.rate_micro,
        ceiling=terms.ceiling,
        units_milli=terms.units_milli,
        resource=terms.resource,
        gpus=list(grant.gpus),
        share=grant.share,
        cpu_milli=grant.cpu_milli,
        memory_mib=grant.memory_mib,
        disk_mib=grant.disk_mib,
        block=match.block,
        device=device_words(match.offer, grant.gpus),
        simulated=any(g.simulated for g in devices),
        reused=reused,
        created_ms=now,
        expires_ms=terms.expires_at_ms,
    )
    state = JOB.step(job.state, JobEvent.REMATCH)
    job = job.but(
        state=state, lease=lease.id, provider=lease.provider, updated_ms=now, needs="", reason=""
    )
    return job, lease


def device_words(offer: Offer, gpus: tuple[str, ...]) -> str:
    """``2 x NVIDIA H100`` or the processor's model: what a person reads."""
    models = sorted(g.model for g in offer.host.gpus if g.uuid in gpus)
    if not models:
        return offer.host.cpu.model
    return ", ".join(
        f"{models.count(m)} x {m}" if models.count(m) > 1 else m for m in dict.fromkeys(models)
    )


def accepted(lease: Lease, job: Job, signature: bytes, now: int) -> Outcome:
    """The adapter signed: the consumer has a quote."""
    lease = replace(
        lease, state=LEASE.step(lease.state, LeaseEvent.ACCEPTED), adapter_signature=signature
    )
    job = replace(job, state=JOB.step(job.state, JobEvent.QUOTE), updated_ms=now)
    return Outcome(lease, job, kind="QUOTED")


def declined(lease: Lease, job: Job, code: str, message: str, now: int) -> Outcome:
    """The adapter did not want it: another provider is looked for.

    What is only still taken, by a lease that has just ended, is asked for again where the job waits.
    """
    out = _over(lease, job, LeaseEvent.DECLINED, EndReason.DECLINED, f"{code}: {message}", now)
    mark = f"busy:{lease.provider}"
    if code in STILL_TAKEN and waits(job) and job.avoid.count(mark) < BUSY_TRIES:
        out.job = replace(out.job, avoid=[*job.avoid, mark])
    return out


def waits(job: Job) -> bool:
    """Whether a job waits where it finds no place: as its policy says, or because it made way for another."""
    policy = job.parsed.policy
    again = job.retries > 0 and EndReason.PREEMPTED.lower() in policy.retry_on
    return policy.queue or again


def pausing(job: Job, now: int) -> bool:
    """Whether a provider said a moment ago that it is still clearing up for this job."""
    busy = bool(job.avoid) and job.avoid[-1].startswith("busy:")
    return busy and not job.lease and now < job.updated_ms + BUSY_MS


def unanswered(lease: Lease, job: Job, now: int) -> Outcome:
    """The adapter (or the market process that asked it) never answered."""
    gone = _over(lease, job, LeaseEvent.EXPIRED, EndReason.DECLINED, "no answer in time", now)
    gone.sends.append(wire.LeaseCancelled(lease.id, EndReason.QUOTE_EXPIRED))
    return gone


def _over(
    lease: Lease, job: Job, event: LeaseEvent, reason: str, message: str, now: int
) -> Outcome:
    """A lease that never came to be: the job goes back and avoids that provider."""
    lease = replace(
        lease, state=LEASE.step(lease.state, event), reason=reason, message=message[:500],
        ended_ms=now,
    )  # fmt: skip
    job = replace(
        job,
        state=JOB.step(job.state, JobEvent.REMATCH),
        avoid=[*job.avoid, lease.provider],
        updated_ms=now,
        lease="",
        provider="",
        message=message[:500],
    )
    detail = {"reason": reason, "message": message[:500], "provider": lease.provider}
    return Outcome(lease, job, kind="DECLINED", detail=detail, released=True, rematch=True)


def lapsed(lease: Lease, job: Job, now: int) -> Outcome:
    """The consumer did not sign in time. The job ends: its session key may be on chain already."""
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.EXPIRED),
        reason=EndReason.QUOTE_EXPIRED,
        ended_ms=now,
    )
    out = Outcome(lease, job, [wire.LeaseCancelled(lease.id, EndReason.QUOTE_EXPIRED)])
    return _job_ends(out, EndReason.QUOTE_EXPIRED, "the quote was not signed in time", now)


def signed(
    lease: Lease,
    job: Job,
    session_signature: bytes,
    channel_tx: str,
    secrets: dict[str, str],
    now: int,
    waits: bool = False,
) -> Outcome:
    """Both signed: the adapter may start as soon as it sees the channel; it is told later if the lease
    *waits* for its account's turn (``standing``)."""
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.SIGNED),
        session_signature=session_signature,
        channel_tx=channel_tx,
        secrets=secrets,
    )
    job = replace(
        job,
        state=JOB.step(job.state, JobEvent.SIGN),
        session_vk=job.session_vk if lease.reused else b"",
        updated_ms=now,
    )
    if waits:
        return Outcome(replace(lease, stage=WAITS), job, kind="SIGNED")
    return Outcome(lease, job, [lease_signed(lease)], kind="SIGNED")


def its_turn(lease: Lease, job: Job) -> Outcome:
    """What waited to be started is handed to its adapter."""
    if lease.state is not LeaseState.FUNDED or lease.stage != WAITS:
        return Outcome(lease, job)
    lease = replace(lease, stage="")
    return Outcome(lease, job, [lease_signed(lease)])


def never_started(lease: Lease, job: Job, reason: str, message: str, now: int) -> Outcome:
    """What waited to be started is not wanted any more."""
    if lease.state is not LeaseState.FUNDED or lease.stage != WAITS:
        return Outcome(lease, job)
    out = finished(lease, job, reason, message, None, 0, now)
    out.sends.append(wire.LeaseCancelled(lease.id, reason))
    return out


def lease_signed(lease: Lease) -> wire.LeaseSigned:
    """The message that lets the adapter start."""
    secrets = {name: bytes.fromhex(sealed) for name, sealed in lease.secrets.items()}
    return wire.LeaseSigned(lease.id, lease.signed, lease.channel_tx, secrets)


def stop(lease: Lease, job: Job, reason: str, now: int) -> Outcome:
    """The consumer, a limit or the operator wants it to end."""
    if lease.state in BEFORE_FUNDS:
        lease = replace(
            lease, state=LEASE.step(lease.state, LeaseEvent.STOP), reason=reason, ended_ms=now
        )
        out = Outcome(lease, job, [wire.LeaseCancelled(lease.id, reason)], kind="STOPPING")
        return _job_ends(out, reason, "", now)
    if lease.state is LeaseState.ENDING:
        if job.lease == lease.id and job.reason == EndReason.PREEMPTED != reason:
            # It is being ended for another job already; after this it does not begin again.
            return Outcome(lease, replace(job, reason=reason, updated_ms=now))
        return Outcome(lease, job)
    lease = replace(
        lease, state=LEASE.step(lease.state, LeaseEvent.STOP), stop_asked=reason, reason=reason
    )
    if JOB.accepts(job.state, JobEvent.STOP):
        job = replace(job, state=JOB.step(job.state, JobEvent.STOP), reason=reason, updated_ms=now)
    return Outcome(lease, job, [wire.StopAsked(lease.id, reason)], "STOPPING", {"reason": reason})


def noticed(lease: Lease, job: Job, deadline_ms: int, now: int) -> Outcome:
    """A job of higher priority is to have its place at *deadline_ms*: time to save work."""
    message = "a job of higher priority takes this place; save your work"
    job = replace(job, message=message, updated_ms=now)
    detail = {"reason": EndReason.PREEMPTED, "deadline_ms": deadline_ms}
    return Outcome(lease, job, kind="NOTICE", detail=detail)


def notice_withdrawn(lease: Lease, job: Job, now: int) -> Outcome:
    """It keeps its place after all."""
    if job.lease != lease.id or lease.state not in LIVE:
        return Outcome(lease, job)
    return Outcome(lease, replace(job, message="", updated_ms=now), kind="NOTICE_WITHDRAWN")


def preempted(lease: Lease, job: Job, now: int) -> Outcome:
    """The notice is over: what still runs is asked to end. It pays for what was delivered, no more."""
    if lease.state not in LIVE:
        return Outcome(lease, job)
    return stop(lease, job, EndReason.PREEMPTED, now)


def started(lease: Lease, job: Job, now: int) -> Outcome:
    """The workload runs; the sealed secrets are of no more use here."""
    if lease.state is not LeaseState.FUNDED:
        return Outcome(lease, job)
    lease = replace(
        lease, state=LEASE.step(lease.state, LeaseEvent.STARTED), started_ms=now, secrets={},
        stage="STARTED",
    )  # fmt: skip
    job = replace(job, state=JOB.step(job.state, JobEvent.START), updated_ms=now)
    return Outcome(lease, job, kind="STARTED")


def paused(lease: Lease, job: Job, message: str, now: int) -> Outcome:
    """No voucher, or a fault: nothing is billed."""
    if lease.state is not LeaseState.ACTIVE:
        return Outcome(lease, job)
    lease = replace(lease, state=LEASE.step(lease.state, LeaseEvent.PAUSE), stage="PAUSED")
    job = replace(
        job, state=JOB.step(job.state, JobEvent.PAUSE), message=message[:500], updated_ms=now
    )
    return Outcome(lease, job, kind="PAUSED", detail={"message": message[:500]})


def resumed(lease: Lease, job: Job, now: int) -> Outcome:
    """It goes on."""
    if lease.state is not LeaseState.PAUSED:
        return Outcome(lease, job)
    lease = replace(lease, state=LEASE.step(lease.state, LeaseEvent.RESUME), stage="RESUMED")
    job = replace(job, state=JOB.step(job.state, JobEvent.RESUME), message="", updated_ms=now)
    return Outcome(lease, job, kind="RESUMED")


def step_seen(lease: Lease, job: Job, stage: str, detail: dict[str, Any]) -> Outcome:
    """CHANNEL_SEEN, PULLING, STARTING, STOPPING: shown, nothing more."""
    return Outcome(replace(lease, stage=stage), job, kind=stage, detail=detail)


def finished(
    lease: Lease,
    job: Job,
    reason: str,
    message: str,
    exit_code: int | None,
    owed_now: int,
    now: int,
) -> Outcome:
    """The workload is gone; the last receipt and voucher are still due."""
    if not LEASE.accepts(lease.state, LeaseEvent.FINISHED) or lease.finished_ms:
        return Outcome(lease, job)
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.FINISHED),
        reason=reason,
        message=message[:500],
        exit_code=exit_code,
        finished_ms=now,
        stage="FINISHED",
        owed=owed_now,
        secrets={},
    )
    detail = {"reason": reason, "message": message[:500], "exit_code": exit_code}
    out = Outcome(lease, job, kind="FINISHED", detail=detail, released=True)
    if job.lease != lease.id:
        return out
    if reason == EndReason.PREEMPTED:
        reason = job.reason or reason  # its consumer may have ended it since
        again = reason == EndReason.PREEMPTED
    else:
        again = reason in (EndReason.PROVIDER_FAULT, EndReason.START_FAILED)
        again &= job.state is not JobState.ENDING  # what was to end does not begin again
    if again and retries(job, reason):
        return _retry(out, reason, owed_now, now)
    if JOB.accepts(job.state, JobEvent.STOP):
        job = replace(job, state=JOB.step(job.state, JobEvent.STOP))
    out.job = replace(
        job, reason=reason, message=message[:500], exit_code=exit_code, updated_ms=now
    )
    return out


def unstarted(lease: Lease, job: Job, latest: int, now: int) -> Outcome:
    """Signed before *latest* and still not started by an adapter that is there: it failed."""
    if job.lease == lease.id and job.updated_ms >= latest:
        return Outcome(lease, job)
    reason = EndReason.START_FAILED
    out = finished(lease, job, reason, "the provider did not start it in time", None, 0, now)
    out.sends.append(wire.LeaseCancelled(lease.id, reason))
    return out


def lost(lease: Lease, job: Job, owed_now: int, now: int) -> Outcome:
    """The provider is gone for longer than the resume window, or forgot the lease."""
    reason = EndReason.PROVIDER_LOST
    if lease.state in BEFORE_FUNDS:
        out = _over(lease, job, LeaseEvent.LOST, reason, "the provider is gone", now)
        if lease.state is LeaseState.OFFERED:  # shown to the consumer: its key may be on chain
            out.job = replace(out.job, session_vk=b"")
        return out
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
    out = Outcome(lease, job, kind="PROVIDER_LOST", detail={"reason": reason}, released=True)
    if job.lease != lease.id or job.state is JobState.ENDED:
        return out
    if job.state is not JobState.ENDING and retries(job, reason):
        return _retry(out, reason, owed_now, now)
    return _job_ends(out, reason, message, now)


def late(lease: Lease, job: Job, owed_now: int, now: int) -> Outcome:
    """What a provider delivered before it was lost, and could tell only when it came back: it counts
    as spent by a job that has gone on elsewhere."""
    more = owed_now - lease.owed
    if job.lease == lease.id or more <= 0:
        return Outcome(lease, job)
    job = replace(job, spent_before=job.spent_before + more, updated_ms=now)
    return Outcome(replace(lease, owed=owed_now), job)


def retries(job: Job, reason: str) -> bool:
    """Whether the job's policy wants another provider after *reason*."""
    policy = job.parsed.policy
    return reason.lower() in policy.retry_on and job.retries < policy.retry_max


def _retry(out: Outcome, reason: str, owed_now: int, now: int) -> Outcome:
    """Another provider, with what is left of the budget; after a preemption it may be the same."""
    job = out.job
    preempted = reason == EndReason.PREEMPTED
    out.job = replace(
        job,
        state=JOB.step(job.state, JobEvent.REMATCH),
        retries=job.retries + 1,
        avoid=job.avoid if preempted else [*job.avoid, out.lease.provider],
        spent_before=job.spent_before + owed_now,
        lease="",
        provider="",
        reason=reason if preempted else "",
        message=f"{reason}: looking for another place"
        if preempted
        else f"{reason}: looking for another provider",
        updated_ms=now,
    )
    out.rematch = True
    return out


def settled(lease: Lease, job: Job, tx: str, now: int) -> Outcome:
    """Nothing is due any more."""
    lease = replace(
        lease,
        state=LEASE.step(lease.state, LeaseEvent.SETTLED),
        settled_tx=tx or lease.settled_tx,
        ended_ms=now,
    )
    out = Outcome(lease, job, kind="SETTLED", detail={"tx": tx} if tx else {})
    if job.lease == lease.id and job.state is JobState.ENDING:
        return _job_ends(out, job.reason or lease.reason, job.message, now)
    return out


def _job_ends(out: Outcome, reason: str, message: str, now: int) -> Outcome:
    out.job = replace(
        out.job,
        state=JOB.step(out.job.state, JobEvent.END),
        reason=reason,
        message=message or out.job.message,
        updated_ms=now,
        needs="",
    )
    out.kind = out.kind or "ENDED"
    out.detail = out.detail or {"reason": reason}
    out.released = out.released or out.lease.finished_ms == 0
    return out
