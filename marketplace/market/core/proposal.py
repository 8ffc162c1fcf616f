"""A match becomes terms and a lease that an adapter is asked for.  Pure."""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.canonical import blake2b_224, blake2b_256
from marketplace.domain.metering.kinds import DISK
from marketplace.domain.money.route.route import Route
from marketplace.domain.money.route.terms import RoutedTerms
from marketplace.domain.money.terms import Terms, check_close_period
from marketplace.domain.protocol import wire
from marketplace.domain.supply.grant import Grant
from marketplace.domain.supply.offer import Offer
from marketplace.domain.units import most_owed
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JOB, JobEvent
from marketplace.domain.work.lease import LEASE
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.records import Job, Lease
from marketplace.market.base.routing import RouteMade, made_json
from marketplace.market.core.inputs import Matched
from marketplace.market.core.outcome import HoldQuote, Outcome, Release, Story, Tell
from marketplace.market.core.waiting import check_unplaced
from marketplace.market.state.match import Match


def matched(job: Job, asked: Matched, now: int) -> Outcome:
    """Ask the adapter; or the consumer first, where no session key is left for a fresh channel.

    OverBudget when nothing is left of the job's budget.
    """
    check_unplaced(job)
    session_vk, match = asked.channel, asked.match
    if not session_vk:
        job = with_key(job)
        if not job.session_vk:
            job = job.but(needs="session_vk", updated_ms=now)
            needs = Story("NEEDS", {"needs": "session_vk"})
            return Outcome(job, None, (needs, Release(asked.lease)))
        session_vk = job.session_vk
    spec = job.parsed
    terms = terms_of(job, spec, match, asked.lease, session_vk, asked.expires_ms)
    if asked.made is not None:  # what it reserves is all that the lease may cost
        terms = replace(terms, ceiling=Route.decode(asked.made.signed.body).reserve)
    lease = lease_of(job, match, terms, bool(asked.channel), now)
    if asked.made is not None:
        lease = over_route(lease, terms, asked.made)
    job = job.but(
        state=JOB.step(job.state, JobEvent.REMATCH), lease=lease.id, provider=lease.provider,
        updated_ms=now, needs="", reason="", explain={},
    )  # fmt: skip
    return Outcome(
        job,
        lease,
        (
            Story("MATCHED", {"provider": lease.provider}),
            Tell(lease.provider, proposed(lease, spec)),
            HoldQuote(asked.address),
        ),
    )


def with_key(job: Job) -> Job:
    """*job* with a fresh session key for its next lease, if it has one left."""
    if job.session_vk or not job.spares:
        return job
    fresh, *rest = job.spares
    return job.but(session_vk=bytes.fromhex(fresh), spares=rest)


def over_route(lease: Lease, terms: Terms, made: RouteMade) -> Lease:
    """*lease* of *terms* as one that is paid over the route that was *made* for it. Its consumer is
    named by the lease's own key alone: no hop's, and no wallet's.
    """
    mine = replace(terms, consumer_vkh=blake2b_224(terms.session_vk))
    routed = RoutedTerms(mine, blake2b_256(made.signed.body))
    return lease.but(terms=routed.encode(), hop=made.hop_in, route=made_json(made))


def proposed(lease: Lease, spec: JobSpec) -> wire.Message:
    """What its adapter is asked; of the hops of a routed lease it hears of its own."""
    if not lease.hop:
        return wire.LeaseProposed(lease.id, spec, lease.terms)
    made = lease.made
    signed = made.signed
    return wire.RouteProposed(
        lease.id, spec, lease.terms, signed.body, signed.signature, made.hop_out, made.salt_out
    )


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
    longest = most_owed(spec.policy.max_duration_ms, grant.units_milli, match.rate_micro)
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
        pause_limit_ms=offer.pause_limit(grant.resource),
        close_period_ms=offer.close_period_ms,
        fee_bps=offer.fee_bps,
        ceiling=ceiling,
        max_duration_ms=spec.policy.max_duration_ms,
        asset=offer.asset,
        work=spec.hash,
        devices=grant.hash,
        expires_at_ms=expires_at_ms,
    )


def lease_of(job: Job, match: Match, terms: Terms, reused: bool, now: int) -> Lease:
    """The lease that the adapter is asked for."""
    grant = match.grant
    devices = [g for g in match.offer.host.gpus if g.uuid in grant.gpus]
    return Lease(
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
        device=device_words(match.offer, grant),
        simulated=any(g.simulated for g in devices),
        reused=reused,
        created_ms=now,
        expires_ms=terms.expires_at_ms,
    )


def device_words(offer: Offer, grant: Grant) -> str:
    """``2 x NVIDIA H100``, the processor's model, or ``disk``: what a person reads."""
    if grant.resource == DISK.name:
        return DISK.name
    models = sorted(g.model for g in offer.host.gpus if g.uuid in grant.gpus)
    if not models:
        return offer.host.cpu.model
    return ", ".join(
        f"{models.count(m)} x {m}" if models.count(m) > 1 else m for m in dict.fromkeys(models)
    )
