"""A running lease goes on: its provider is asked, its terms are held against the own book, the
channel is topped up by what it lacks, and both sign.

Repeatable at any step: what the book shows as signed is sent again, and a channel is topped up by
what it lacks then.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.jobs.core import renewing
from marketplace.client.jobs.core.agreeing import lacking
from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.jobs.runner import Runner
from marketplace.client.net.reading import read
from marketplace.client.net.renewed import RenewedAnswer
from marketplace.client.payer.channel_payer import ChannelPayer
from marketplace.client.payer.decide import LeaseBook
from marketplace.domain.errors import Refusal
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.units import most_owed

log = structlog.get_logger("tally.client")


@dataclass(frozen=True)
class Renewal:
    """What a provider signed, held against what was agreed: *before* and *after*, and *amount*, the
    lovelace that the channel lacks for it.
    """

    held: ChannelPayer
    before: Terms
    signed: SignedTerms
    amount: int

    @property
    def after(self) -> Terms:
        """The renewed terms."""
        return self.signed.terms


async def ask(runner: Runner, job: str, duration_ms: int, budget: int) -> Renewal:
    """What the provider of *job* says to *duration_ms* more, for at most *budget* lovelace more (0:
    what that costs); nothing is signed yet. This process then holds the job's channel.
    RenewalDeclined, RenewalUnanswered, RenewalRefused, QuoteRefused, ChannelHeld, and what the
    market refuses.
    """
    held, known = await lease_of(runner, job)
    if not budget:
        budget = most_owed(duration_ms, known.terms.units_milli, known.terms.rate_micro)
    body, path = {"duration_ms": duration_ms, "budget": budget}, f"/v1/leases/{known.terms.lease}"
    told = read(RenewedAnswer, await runner.http.post(f"{path}/renewal", body), "lease")
    signed = renewing.checked(known.terms, told, duration_ms, budget)
    return Renewal(held, known.terms, signed, await _lacking(runner, held, signed.terms))


async def lease_of(runner: Runner, job: str) -> tuple[ChannelPayer, LeaseBook]:
    """The channel that pays for *job*, held by this process from now on, and its lease there.
    QuoteRefused, ChannelHeld.
    """
    view = await runner.view(job)
    try:
        lease, session_vk = view["lease"], bytes.fromhex(view["channel"])
    except ValueError:
        raise QuoteRefused(f"{job}: its channel is named by no hex") from None
    held = runner.payers.held(session_vk)
    if held is None:
        held = await runner.payers.obtain(session_vk, runner.purse.session(session_vk))
        await runner.watch.resume(held)
    known = held.book.leases.get(lease)
    if known is None or known.terms.job != job:
        raise QuoteRefused(f"the book of channel {session_vk.hex()[:16]} has no such lease")
    return held, known


async def agree(runner: Runner, offered: Renewal) -> Terms:
    """Sign, pay in what the channel lacks, and tell the market: the terms that stand from now
    on.
    """
    held = offered.held
    with runner.payers.pinned(held.session_vk):
        return await _tell(runner, held, await held.renew(offered.signed), offered.amount)


async def told_again(runner: Runner, held: ChannelPayer, lease: str) -> bool:
    """A renewal was signed, and it is not known that the market heard of it: tell it again. False
    where it is too late for that, and the lease may be asked for anew.
    """
    signed = held.terms[lease]
    row = read(RenewedAnswer, await runner.http.get(f"/v1/leases/{lease}"), "lease")
    if row["terms"] == signed.body.hex():
        await held.renewal_told(lease)
        return True
    with runner.payers.pinned(held.session_vk):
        try:
            await _tell(runner, held, signed, await _lacking(runner, held, signed.terms))
        except Refusal as refusal:
            log.info("renewal_not_told", lease=lease, code=refusal.code, why=refusal.message)
            return False
    return True


async def _tell(runner: Runner, held: ChannelPayer, signed: SignedTerms, amount: int) -> Terms:
    terms = signed.terms
    if amount:
        at = OutRef(bytes.fromhex(held.facts.open_tx), held.facts.index)
        capacity = await runner.till.top_up(held.session_vk, at, amount, terms.asset)
        await held.topped_up(amount, capacity)
    assert signed.session_signature is not None
    body = {"session_signature": signed.session_signature.hex()}
    await runner.http.post(f"/v1/leases/{terms.lease}/renewal/sign", body)
    await held.renewal_told(terms.lease)
    return terms


async def _lacking(runner: Runner, held: ChannelPayer, terms: Terms) -> int:
    if held.book.capacity is None:
        await runner.watch.confirm(held)
    return lacking(held.book, held.final, terms)
