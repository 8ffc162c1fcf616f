"""A consumer's use cases: post, match, quote, sign, stop, resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio

from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.units import most_owed
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JOB, JobState
from marketplace.domain.work.lease import EndReason
from marketplace.market.accounts import images, priority, standing
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import (
    NothingMatches,
    NotOffered,
    OtherPurse,
    OverBudget,
    QuoteGone,
    TooManyQueued,
)
from marketplace.market.base.ports import Change
from marketplace.market.base.records import (
    ApiKey,
    Job,
    Lease,
    OfferRecord,
    Record,
    Remembered,
    Standing,
)
from marketplace.market.context import MATCHER, TRIES, Market
from marketplace.market.core.ending import BEFORE_FUNDS
from marketplace.market.core.inputs import KeyBrought, Signed, Stop
from marketplace.market.core.outcome import Outcome
from marketplace.market.core.proposal import device_words, lease_of, terms_of
from marketplace.market.core.waiting import NO_MATCH
from marketplace.market.jobs.fees import fees_told, routed_told
from marketplace.market.lifecycle import routes
from marketplace.market.lifecycle.change import change_job, change_lease
from marketplace.market.placement import expected, reconciler, volumes
from marketplace.market.placement.matching import match
from marketplace.market.state.match import Match, explained
from marketplace.matching import NoMatch


@dataclass(frozen=True)
class Posting:
    """What comes with a new job: keys by which its channel can be named. Hex is decoded already."""

    spec: JobSpec
    session_vk: bytes
    consumer_vkh: bytes
    channels: tuple[bytes, ...] = ()
    spares: tuple[bytes, ...] = ()
    once: tuple[str, str] | None = None  # idempotency key and the hash of the question
    hop: bytes = b""  # to this market's router; empty: every lease goes directly


def check_spec(spec: JobSpec) -> None:
    """Refuse what no market could run, before anything is asked for."""
    if spec.gang is not None:
        raise NotOffered("a gang is posted as one, by POST /v1/gangs", field="gang")
    check_shape(spec)


def check_shape(spec: JobSpec) -> None:
    """Refuse what no market could run, of a job alone or of one member of a gang."""
    if not spec.resources:
        raise Malformed("a job needs at least one resource block")
    spec.check_isolation()
    spec.check_volume()
    spec.check_pool_keys()
    if spec.gang is not None and spec.volumes:
        raise NotOffered("a volume is mounted by one job at a time", field="volumes")
    if spec.price.budget <= 0:
        raise OverBudget("the job's budget is zero")
    for block in spec.resources:
        need = block.gpu
        if need is not None and need.count.least > 1 and need.share != 1000:
            raise NotOffered("several devices are whole devices: share must be 1000", field="share")
        if need is None and block.cpu.least <= 0 and not spec.is_volume:
            raise Malformed("a resource block without devices needs cores")


async def post(market: Market, who: Caller, asked: Posting) -> Job:
    """A new job: matched and asked for at once where this process is the matcher.

    NothingMatches (with the reasons), OverBudget, Malformed, NotOffered, ImagePrivate,
    PriorityNotGranted, TooManyQueued, PaymentOwed, UnpaidWait, TooManyQuotes, Conflict.
    """
    check_spec(asked.spec)
    await images.check(market, asked.spec.image, who.account)
    await priority.check(market, asked.spec, who.account)
    await may_wait(market, asked.spec, who.account)
    await fresh_keys(market, asked, who.account)
    async with standing.admitted(market, who) as known:
        for _ in range(TRIES):
            try:
                return await _post(market, who, known, asked)
            except Conflict:
                if who.key is None:
                    raise
                who = replace(who, key=await market.store.get(ApiKey, who.key.id))
    raise Conflict("the key's budget keeps changing")


async def _post(market: Market, who: Caller, known: Standing, asked: Posting) -> Job:
    now = market.now
    job = Job(
        id=market.ids.new("job"),
        account=who.account,
        api_key=who.key.id if who.key is not None else "",
        name=asked.spec.name,
        kind=asked.spec.kind,
        spec=asked.spec.to_wire(),
        consumer_vkh=asked.consumer_vkh,
        channels=[vk.hex() for vk in asked.channels],
        state=JOB.initial,
        created_ms=now,
        updated_ms=now,
        session_vk=asked.session_vk,
        spares=[vk.hex() for vk in asked.spares],
        priority=asked.spec.policy.priority,
        hop=asked.hop,
    )
    first = Change(puts=[market.event(job, "POSTED", {})])
    if who.key is not None:
        budget = asked.spec.price.budget
        first.sets.append(who.commit(budget, now))
        first.puts.append(audit(market, who, "budget.commit", who.key.id, _bound(job, budget)))
    if asked.once is not None:
        key, question = asked.once
        answer = {"id": job.id}
        first.puts.append(Remembered(who.account, key, question, 201, answer, now))
    if market.epoch:
        return await match(market, job, asked.spec, known, first, new=True)
    return await _leave_to_matcher(market, job, first)


async def may_wait(market: Market, spec: JobSpec, account: str, members: int = 1) -> None:
    """TooManyQueued where the job, or gang of *members*, may have to wait and enough of its
    account's do already.
    """
    if not spec.policy.queue:
        return
    most = market.settings.queued_jobs
    waiting = (JobState.POSTED, JobState.QUEUED)
    if await market.store.count(Job, account=account, state=waiting) + members > most:
        raise TooManyQueued(f"{most} jobs of this account wait for a place", most=most)


def _bound(job: Job, budget: int) -> dict[str, object]:
    return {"job": job.id, "amount": budget}


async def fresh_keys(market: Market, asked: Posting, account: str) -> None:
    """Malformed, OtherPurse or Conflict unless every session key of *asked* is new, and for one
    channel, and what comes home goes to the account itself.
    """
    keys = (asked.session_vk, *asked.spares)
    if len(asked.consumer_vkh) != 28 or any(len(vk) != 32 for vk in (*keys, *asked.channels)):
        raise Malformed("session keys are 32 bytes, consumer_vkh is 28")
    if asked.hop in keys:
        raise Malformed("a hop's key is no lease's")
    if asked.consumer_vkh.hex() != account:
        raise OtherPurse("consumer_vkh is not the key hash of the account that asks")
    if len(set(keys)) != len(keys) or set(keys) & set(asked.channels):
        raise Malformed("every session key is for one channel only")
    if await market.used.any_of(keys):
        raise Conflict("a session key has been used for a channel before")


async def _leave_to_matcher(market: Market, job: Job, first: Change) -> Job:
    """Another process matches: wait a little for what it says."""
    with market.bus.listening(f"job:{job.id}") as inbox:
        first.puts.append(job)
        first.topics += [MATCHER, f"job:{job.id}"]
        await market.store.apply(first)
        with anyio.move_on_after(6):
            while True:
                now = await market.store.get(Job, job.id)
                if now is not None and now.reason == NO_MATCH:
                    raise NothingMatches(now.message, explain=now.explain)
                if now is not None and (now.state is not JobState.POSTED or now.lease):
                    return now
                await inbox.wait(1)
    return await market.store.get(Job, job.id) or job


async def owned_job(market: Market, who: Caller, job_id: str) -> Job:
    """The caller's job; NotFound for anybody else's."""
    job = await market.store.get(Job, job_id)
    if job is None or job.account != who.account:
        raise NotFound(f"no job {job_id}")
    return job


async def owned_lease(market: Market, who: Caller, lease_id: str) -> tuple[Lease, Job]:
    """The caller's lease; NotFound for anybody else's."""
    lease, job = await market.lease(lease_id)
    if lease.account != who.account:
        raise NotFound(f"no lease {lease_id}")
    return lease, job


async def sign(
    market: Market,
    who: Caller,
    lease_id: str,
    session_signature: bytes,
    channel_tx: str,
    open_tx: bytes,
    secrets: dict[str, bytes],
    remember: Callable[[Lease], list[Record]] = lambda _: [],
) -> Lease:
    """The consumer's signature: the lease is on. QuoteGone, TermsRefused, Malformed, Conflict; and
    what the router says of a routed one.

    What *remember* gives is written in the same transaction.
    """
    lease, _ = await owned_lease(market, who, lease_id)
    known, offered = (
        await standing.of(market, lease.account),
        await market.store.get(OfferRecord, lease.offer),
    )
    waits = not known.paid and market.settings.starts_in_turn
    payout = offered.offer.payout_address if offered is not None else ""

    def extra(out: Outcome) -> Change:
        agreed = {"ceiling": lease.ceiling, "channel": lease.session_vk.hex()}
        note = audit(market, who, "lease.sign", lease.id, {**agreed, "tx": channel_tx})
        return Change(puts=[note, *(remember(out.lease) if out.lease is not None else [])])

    asked = Signed(session_signature, channel_tx, secrets, payout, waits, open_tx)
    await routes.admit(market, lease, asked)
    await change_lease(market, lease_id, asked, extra)
    if waits:
        await standing.turns(market, lease.account)
    lease, _ = await market.lease(lease_id)
    return lease


async def stop(market: Market, who: Caller, job_id: str, reason: str = "") -> Job:
    """End a job, whatever it is doing. Stopping twice is one stop."""
    job = await owned_job(market, who, job_id)
    return await stop_job(market, job, reason or EndReason.CANCELLED)


async def stop_job(market: Market, job: Job, reason: str) -> Job:
    """The same, by whoever may."""
    if job.state is JobState.ENDED:
        return job
    return (await change_job(market, job.id, Stop(reason))).job


async def decline(market: Market, who: Caller, lease_id: str) -> Job:
    """The consumer does not want this quote: the job ends."""
    lease, job = await owned_lease(market, who, lease_id)
    if lease.state not in BEFORE_FUNDS:
        raise QuoteGone(f"the quote of {lease_id} is over ({lease.state.name})")
    return await stop_job(market, job, EndReason.CANCELLED)


async def resume(market: Market, who: Caller, job_id: str, session_vk: bytes) -> Job:
    """The fresh session key that a retry needs; the job is matched again."""
    job = await owned_job(market, who, job_id)
    waits = job.needs == "session_vk"
    used = len(session_vk) != 32 or await market.used.any_of((session_vk,))
    if waits and used:
        raise Conflict("a session key is 32 bytes, and fresh")
    await change_job(market, job_id, KeyBrought(session_vk))
    if market.epoch:
        # The matcher's own round hears of the job too; whichever is second has nothing left to do.
        with contextlib.suppress(Conflict):
            if job.gang:
                await reconciler.one_gang(market, job.gang)
            else:
                await reconciler.one_job(market, job_id)
    return await owned_job(market, who, job_id)


async def dry_run(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """The price, the ceiling and the alternatives; nothing is reserved. NothingMatches."""
    check_spec(spec)
    place = await volumes.held(market, account, spec)
    if place.why:
        raise NothingMatches(place.why, explain=volumes.nowhere(place.why))
    spec = place.bound(spec)
    await expected.bring(market, spec.image)
    found = market.directory.quote(spec, account, frozenset(), market.now)
    if isinstance(found, NoMatch):
        raise NothingMatches(str(found), explain=explained(found))
    fees = await fees_told(market, found.offer.minimum, found.offer.asset, opens=True)
    alternatives = _alternatives(market, spec, account, found)
    answer = quoted(spec, found)
    answer["expected_start"] = await expected.told(market, spec.image, found.offer.id, account)
    routed = routed_told(market, found.offer, answer["ceiling"])
    return {**answer, "fees": fees, "routed": routed, "alternatives": alternatives}


def quoted(spec: JobSpec, found: Match) -> dict[str, Any]:
    """What a match would cost, and where it is."""
    longest = most_owed(spec.policy.max_duration_ms, found.grant.units_milli, found.rate_micro)
    return {
        "offer": found.offer.id,
        "provider": found.offer.provider,
        "device": device_words(found.offer, found.grant),
        "simulated": any(g.simulated for g in found.offer.host.gpus if g.uuid in found.grant.gpus),
        "resource": found.resource,
        "rate_micro": found.rate_micro,
        "units_milli": found.grant.units_milli,
        "block": found.block,
        "ceiling": min(spec.price.budget, longest),
        "fee_bps": found.offer.fee_bps,
        "minimum": found.offer.minimum,
        "allowance": found.offer.allowance,
        "tick_ms": found.offer.tick_ms,
    }


def _alternatives(
    market: Market, spec: JobSpec, account: str, found: Match
) -> list[dict[str, Any]]:
    """The other offers, by way of the lease that this quote would become."""
    job = Job(
        "", account, "", spec.name, spec.kind, spec.to_wire(), bytes(28), [], JOB.initial, 0, 0, b""
    )
    terms = terms_of(job, spec, found, "", bytes(32), market.now)
    lease = lease_of(job, found, terms, False, market.now)
    return market.directory.others(spec, account, lease, market.now)


async def explain(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """A job's quote, or why nothing matches it: as data either way, and nothing is kept."""
    try:
        return {"matches": True, "quote": await dry_run(market, spec, account), "explain": None}
    except NothingMatches as no:
        return {"matches": False, "quote": None, "explain": no.fields["explain"]}
