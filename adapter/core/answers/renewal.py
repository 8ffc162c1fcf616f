"""A lease that shall go on: asked for and signed while it runs. Pure.

Whoever asks sees no other price than the one agreed to, and the owner is bound by nothing before
signing: a price that has risen, a drain or a window of maintenance is a no, and the lease ends when
it would have ended. What was signed here stands until its quote is over, and one that comes signed
a little later is taken: it lay in the market's outbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from adapter.core.draft import Draft
from adapter.core.events import Watch
from adapter.core.state import Lease
from adapter.core.ticks import LATE_MS, ran_ms
from marketplace.domain.errors import Refusal
from marketplace.domain.metering.kinds import KINDS
from marketplace.domain.money import renewal
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import LeaseState

SERVED: Final = (LeaseState.ACTIVE, LeaseState.PAUSED)
Rule = tuple[bool, str, str]


def proposed(draft: Draft, lease: Lease, message: wire.LeaseProposed) -> None:
    """Sign the terms by which *lease* would go on, or say why it will end."""
    known = lease.renewal
    if known is not None and known.body == message.terms:
        draft.send(wire.LeaseAccepted(lease.id, known))  # the market asks again
        return
    try:
        terms = Terms.decode(message.terms)
        renewal.check(lease.terms, terms)
    except Refusal as refusal:
        draft.send(wire.LeaseDeclined(lease.id, refusal.code, refusal.message, refusal.remedy))
        return
    for holds, code, why in _rules(draft, lease, terms):
        if not holds:
            draft.send(wire.LeaseDeclined(lease.id, code, why))
            return
    offered = SignedTerms(message.terms, draft.own.signer.sign(message.terms))
    draft.put(replace(lease, renewal=offered))
    draft.send(wire.LeaseAccepted(lease.id, offered))


def _rules(draft: Draft, lease: Lease, terms: Terms) -> Iterator[Rule]:
    """The owner would take this lease today, for as long as it would then still run."""
    own, now = draft.own, draft.now
    left_ms = terms.max_duration_ms - ran_ms(lease, now)
    yield lease.routed is None, "RENEWAL_ROUTED", "a lease that a router pays is not renewed"
    yield lease.reason is None, "LEASE_ENDING", f"it ends: {lease.reason}"
    yield not draft.state.draining, "DRAINING", "the adapter drains: nothing is renewed"
    yield now.wall_ms < terms.expires_at_ms, "QUOTE_EXPIRED", "the renewal's quote has expired"
    yield (
        left_ms <= own.limits.max_lease_ms,
        "TOO_LONG",
        f"leases last at most {own.limits.max_lease_ms} ms from now on here",
    )
    for window in own.offer.windows:
        clear = now.wall_ms + left_ms < window.start_ms or now.wall_ms >= window.end_ms
        yield clear, "MAINTENANCE", f"maintenance from {window.start_ms}: {window.notice}"
    for model in _models(draft, lease):
        rate = own.offer.rate(terms.resource, model)
        yield rate > 0, "PRICE_MISSING", f"{model or terms.resource} has no price any more"
        yield terms.rate_micro >= rate, "PRICE_BELOW", f"{model or terms.resource} is {rate} now"


def _models(draft: Draft, lease: Lease) -> list[str]:
    """What is priced: each of its devices' models, or nothing but its resource."""
    if not KINDS[lease.terms.resource].devices:
        return [""]
    found = [draft.own.offer.host.gpu(uuid) for uuid in lease.devices]
    return sorted({gpu.model for gpu in found if gpu is not None})


def signed(draft: Draft, lease: Lease, message: wire.LeaseSigned) -> None:
    """Both signed: it runs for longer."""
    offered = lease.renewal
    if offered is None or offered.body != message.terms.body or lease.state not in SERVED:
        return  # taken already, or over meanwhile: its end is told by the lease itself
    try:
        terms = message.terms.verify()
    except Refusal as refusal:
        draft.alarm(refusal.code, f"renewal of lease {lease.id}: {refusal.message}")
        return
    if draft.now.wall_ms > terms.expires_at_ms + LATE_MS:
        draft.alarm("RENEWAL_LATE", f"lease {lease.id}: its renewal came long after its expiry")
        return
    draft.put(replace(lease, signed=message.terms, terms=terms, renewal=None))
    draft.effects.append(Watch(lease.channel))  # its consumer pays in what the new time lacks
    draft.progress(
        lease.id, "RENEWED", max_duration_ms=terms.max_duration_ms, ceiling=terms.ceiling
    )
