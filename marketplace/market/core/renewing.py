"""A lease that runs shall go on: its adapter is asked, its consumer signs, or nothing changes.
Pure.

The terms that stand stay until both signed others; so whoever does not answer leaves the lease as
it is, to end when it was to end.
"""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.money.renewal import renewed
from marketplace.domain.money.terms import SignedTerms, TermsRefused
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.errors import NotRenewable, QuoteGone
from marketplace.market.base.records import Job, Lease
from marketplace.market.core.inputs import Accepted, Declined, RenewalAsked, RenewalSigned
from marketplace.market.core.outcome import Outcome, Say, Story, Tell

SERVED = (LeaseState.ACTIVE, LeaseState.PAUSED)


def is_asked(lease: Lease) -> bool:
    """Whether what its adapter says now is about a renewal."""
    return bool(lease.renewal) and lease.state in SERVED


def asked(job: Job, lease: Lease, wanted: RenewalAsked, now: int) -> Outcome:
    """Ask the adapter for longer terms; a question that still stands is asked again as it was.
    NotRenewable.
    """
    if lease.state not in SERVED or lease.stop_asked:
        raise NotRenewable(f"{lease.id} is {lease.state.name}: only what is served is renewed")
    if lease.hop:
        raise NotRenewable(f"{lease.id} is paid over a route, and those are not renewed")
    stands = lease.renewal and SignedTerms(lease.renewal, b"").terms.expires_at_ms > now
    if not stands:
        terms = renewed(lease.agreed, wanted.duration_ms, wanted.budget, wanted.expires_ms)
        lease = replace(lease, renewal=terms.encode(), renewal_signature=b"", renewal_refused="")
    question = wire.LeaseProposed(lease.id, job.parsed, lease.renewal)
    return Outcome(replace(job, updated_ms=now), lease, (Say(lease.provider, question),))


def accepted(job: Job, lease: Lease, answer: Accepted, now: int) -> Outcome:
    """The adapter signed: its consumer may. TermsRefused for others than were asked for."""
    if answer.terms == lease.terms or lease.renewal_signature:
        return Outcome(job, lease)
    if answer.terms != lease.renewal:
        raise TermsRefused("these are not the terms that were asked for")
    terms = SignedTerms(answer.terms, answer.signature).verify_adapter()
    lease = replace(lease, renewal_signature=answer.signature)
    facts = {"max_duration_ms": terms.max_duration_ms, "ceiling": terms.ceiling}
    return Outcome(replace(job, updated_ms=now), lease, (Story("RENEWAL_QUOTED", facts),))


def declined(job: Job, lease: Lease, answer: Declined, now: int) -> Outcome:
    """The adapter will not: the lease ends when it was to end, and its consumer knows by now."""
    said = f"{answer.code}: {answer.message}"[:500]
    lease = replace(lease, renewal=b"", renewal_signature=b"", renewal_refused=said)
    facts = {"code": answer.code, "message": answer.message[:500]}
    return Outcome(replace(job, updated_ms=now), lease, (Story("RENEWAL_DECLINED", facts),))


def signed(job: Job, lease: Lease, answer: RenewalSigned, now: int) -> Outcome:
    """Both signed: the new terms stand, and the adapter is told by the outbox. The same signature
    again changes nothing. QuoteGone, TermsRefused.
    """
    if lease.session_signature == answer.session_signature:
        return Outcome(job, lease)
    if not lease.renewal_signature or lease.state not in SERVED:
        raise QuoteGone(f"no renewal of {lease.id} waits for a signature ({lease.state.name})")
    both = SignedTerms(lease.renewal, lease.renewal_signature, answer.session_signature)
    terms = both.verify()
    if now >= terms.expires_at_ms:
        raise QuoteGone(f"the renewal of {lease.id} was to be signed until {terms.expires_at_ms}")
    lease = replace(
        lease,
        terms=both.body,
        adapter_signature=both.adapter_signature,
        session_signature=answer.session_signature,
        ceiling=terms.ceiling,
        renewal=b"",
        renewal_signature=b"",
    )
    told = wire.LeaseSigned(lease.id, both, "", {})
    return Outcome(replace(job, updated_ms=now), lease, (Tell(lease.provider, told),))
