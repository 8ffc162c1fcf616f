"""A consumer's use cases: post, match, quote, sign, stop, resume.

Over 400 lines: one job's way from posting to signature, which is read as a whole.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from marketplace.domain.errors import Conflict, IllegalTransition, Malformed, NotFound
from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed, unit_ms
from marketplace.domain.work.job import JOB, JobEvent, JobSpec, JobState
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.market.accounts import priority, standing
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
    Channel,
    Job,
    Lease,
    OfferRecord,
    Record,
    Remembered,
)
from marketplace.market.context import MATCHER, TRIES, Market
from marketplace.market.core import decide
from marketplace.market.placement import starts
from marketplace.market.state.directory import Match, explained
from marketplace.matching import NoMatch

NO_MATCH: Final = "NO_MATCH"


@dataclass(frozen=True)
class Posting:
    """What comes with a new job: keys by which its channel can be named. Hex is decoded already."""

    spec: JobSpec
    session_vk: bytes
    consumer_vkh: bytes
    channels: tuple[bytes, ...] = ()
    spares: tuple[bytes, ...] = ()
    once: tuple[str, str] | None = None  # idempotency key and the hash of the question


def check_spec(spec: JobSpec) -> None:
    """Refuse what no market could run, before anything is asked for."""
    if spec.gang is not None:
        raise NotOffered("a gang is posted as one, by POST /v1/gangs", field="gang")
    check_shape(spec)


def check_shape(spec: JobSpec) -> None:
    """The same for one member of a gang."""
    if not spec.resources:
        raise Malformed("a job needs at least one resource block")
    spec.check_isolation()
    if spec.price.budget <= 0:
        raise OverBudget("the job's budget is zero")
    for block in spec.resources:
        need = block.gpu
        if need is not None and need.count.least > 1 and need.share != 1000:
            raise NotOffered("several devices are whole devices: share must be 1000", field="share")
        if need is None and block.cpu.least <= 0:
            raise Malformed("a resource block without devices needs cores")


async def post(market: Market, who: Caller, asked: Posting) -> Job:
    """A new job: matched and asked for at once where this process is the matcher.

    NothingMatches (with the reasons), OverBudget, Malformed, NotOffered, PriorityNotGranted,
    TooManyQueued, PaymentOwed, UnpaidWait, TooManyQuotes, Conflict.
    """
    check_spec(asked.spec)
    await priority.check(market, asked.spec, who.account)
    await _may_wait(market, asked.spec, who.account)
    await fresh_keys(market, asked, who.account)
    async with standing.admitted(market, who):
        for _ in range(TRIES):
            try:
                return await _post(market, who, asked)
            except Conflict:
                if who.key is None:
                    raise
                who = replace(who, key=await market.store.get(ApiKey, who.key.id))
    raise Conflict("the key's budget keeps changing")


async def _post(market: Market, who: Caller, asked: Posting) -> Job:
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
    )
    first = Change(puts=[market.event(job, "POSTED", {})])
    if who.key is not None:
        budget = asked.spec.price.budget
        first.sets.append(who.commit(budget))
        first.puts.append(audit(market, who, "budget.commit", who.key.id, _bound(job, budget)))
    if asked.once is not None:
        key, question = asked.once
        answer = {"id": job.id}
        first.puts.append(Remembered(who.account, key, question, 201, answer, now))
    if market.epoch:
        return await match(market, job, asked.spec, first, new=True)
    return await _leave_to_matcher(market, job, first)


async def _may_wait(market: Market, spec: JobSpec, account: str) -> None:
    """TooManyQueued where the job may have to wait and enough of its account's do already."""
    most = market.settings.queued_jobs
    waiting = (JobState.POSTED, JobState.QUEUED)
    if spec.policy.queue and await market.store.count(Job, account=account, state=waiting) >= most:
        raise TooManyQueued(f"{most} jobs of this account wait for a place", most=most)


def _bound(job: Job, budget: int) -> dict[str, object]:
    return {"job": job.id, "amount": budget}


async def fresh_keys(market: Market, asked: Posting, account: str) -> None:
    """Malformed, OtherPurse or Conflict unless every session key of *asked* is new, and for one channel, and what
    comes home goes to the account itself."""
    keys = (asked.session_vk, *asked.spares)
    if len(asked.consumer_vkh) != 28 or any(len(vk) != 32 for vk in (*keys, *asked.channels)):
        raise Malformed("session keys are 32 bytes, consumer_vkh is 28")
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


async def match(market: Market, job: Job, spec: JobSpec, change: Change, *, new: bool) -> Job:
    """Plan on this process's view and commit under the lock; what was planned is undone if not."""
    lease_id, avoid = market.ids.new("lease"), frozenset(job.avoid)
    doubtful = await starts.doubtful(market, job.account)
    found = market.directory.place(spec, job.account, avoid | doubtful, market.now, lease_id)
    if isinstance(found, NoMatch) and doubtful:  # better than none at all
        found = market.directory.place(spec, job.account, avoid, market.now, lease_id)
    try:
        if isinstance(found, NoMatch):
            return await _unmatched(market, job, spec, found, change, new=new)
        return await propose(market, job, spec, found, lease_id, change, new=new)
    except BaseException:
        market.directory.release(lease_id, market.now)
        raise


async def _unmatched(
    market: Market, job: Job, spec: JobSpec, no: NoMatch, change: Change, *, new: bool
) -> Job:
    """Wait if the job's policy says so, or if it made way for another; refuse a new job; end one that
    had a lease before."""
    why = explained(no)
    if decide.waits(job):
        event = JobEvent.WAIT
        job = replace(
            job,
            state=JOB.step(job.state, event),
            explain=why,
            updated_ms=market.now,
            message=str(no),
        )
        await _save_job(market, job, change, "QUEUED", why, new=new)
        market.directory.wait(job.id, spec, job.account, frozenset(job.avoid), market.now)
        return job
    if new:
        raise NothingMatches(str(no), explain=why)
    reason = EndReason.PROVIDER_LOST if job.retries else NO_MATCH
    if not job.retries and job.avoid:
        reason = EndReason.DECLINED
    job = replace(
        job, state=JOB.step(job.state, JobEvent.END), reason=reason, message=str(no), explain=why,
        updated_ms=market.now,
    )  # fmt: skip
    await market.free_budget(change, job, None)
    await _save_job(market, job, change, "ENDED", {"reason": str(reason)}, new=False)
    return job


async def _save_job(
    market: Market, job: Job, change: Change, kind: str, detail: dict[str, Any], *, new: bool
) -> None:
    (change.puts if new else change.sets).append(job)
    change.puts.append(market.event(job, kind, detail))
    change.topics.append(f"job:{job.id}")
    await market.store.apply(change)


async def propose(
    market: Market,
    job: Job,
    spec: JobSpec,
    found: Match,
    lease_id: str,
    change: Change,
    *,
    new: bool,
) -> Job:
    """Ask the adapter, in the same transaction as the lease itself."""
    session_vk = await _reusable(market, job, found)
    reused = bool(session_vk)
    if not reused:
        if not job.session_vk and job.spares:
            fresh, *rest = job.spares
            job = replace(job, session_vk=bytes.fromhex(fresh), spares=rest)
        if not job.session_vk:
            market.directory.release(lease_id, market.now)
            job = replace(job, needs="session_vk", updated_ms=market.now)
            await _save_job(market, job, change, "NEEDS", {"needs": "session_vk"}, new=new)
            return job
        session_vk = job.session_vk
    expires = market.now + await standing.quote_ttl_ms(market, job.account)
    terms = decide.terms_of(job, spec, found, lease_id, session_vk, expires)
    if job.explain:
        job = replace(job, explain={})
    job, lease = decide.proposed(job, found, terms, reused, market.now)
    change.puts.append(lease)
    (change.puts if new else change.sets).append(job)
    change.puts.append(market.event(job, "MATCHED", {"provider": lease.provider}))
    ask = wire.LeaseProposed(lease.id, spec, lease.terms)
    change.sends.append((f"adapter:{lease.provider}", ask))
    change.topics.append(f"job:{job.id}")
    change.fence = market.fence
    await market.store.apply(change)
    known = await standing.of(market, job.account)
    market.open_quotes.add(lease.id, job.account, standing.address_limited(known))
    return job


async def _reusable(market: Market, job: Job, found: Match) -> bytes:
    """An open channel of this consumer to the matched provider, with the same facts; or nothing."""
    if not job.channels:
        return b""
    offer = found.offer
    for channel in await market.store.find(
        Channel,
        session_vk=[bytes.fromhex(x) for x in job.channels],
        account=job.account,
        provider=offer.provider,
        state=USABLE,
    ):
        was = Terms.decode(channel.terms)
        same = (
            was.payout == offer.payout
            and was.adapter_vkh == offer.adapter_vkh
            and was.close_period_ms == offer.close_period_ms
            and was.fee_bps == offer.fee_bps
            and was.asset == offer.asset
            and was.consumer_vkh == job.consumer_vkh
        )
        if same and not channel.end_signature and not channel.settled_tx:
            return channel.session_vk
    return b""


async def rematch(market: Market, job_id: str) -> None:
    """Look again for a posted job that has no lease; nothing if somebody did already."""
    job = await market.store.get(Job, job_id)
    if job is None or job.state is not JobState.POSTED or job.lease or job.needs or job.gang:
        return  # the members of a gang are placed together or not at all: ``gangs``
    if decide.pausing(job, market.now):
        return  # the next sweep looks again
    if await standing.blocked(market, job.account):
        return
    try:
        await match(market, job, job.parsed, Change(), new=False)
    except OverBudget as over:
        ended = replace(
            job, state=JOB.step(job.state, JobEvent.END), reason=EndReason.CEILING,
            message=over.message, updated_ms=market.now,
        )  # fmt: skip
        change = Change()
        await market.free_budget(change, ended, None)
        await _save_job(market, ended, change, "ENDED", {"reason": ended.reason}, new=False)


async def queued_round(market: Market) -> int:
    """Try the fair queue; how many jobs were placed."""
    begun = market.directory.round(market.now, lambda: market.ids.new("lease"))
    for job_id, lease_id, found in begun:
        try:
            job = await market.store.get(Job, job_id)
            if (
                job is None
                or job.state is not JobState.QUEUED
                or await standing.blocked(market, job.account)
            ):
                market.directory.release(lease_id, market.now)
                continue
            await propose(market, job, job.parsed, found, lease_id, Change(), new=False)
        except Conflict:
            market.directory.release(lease_id, market.now)
    return len(begun)


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
    secrets: dict[str, bytes],
    remember: Callable[[Lease], list[Record]] = lambda _: [],
) -> Lease:
    """The consumer's signature: the lease is on. QuoteGone, TermsRefused, Malformed, Conflict.

    What *remember* gives is written in the same transaction.
    """
    lease, job = await owned_lease(market, who, lease_id)
    if lease.session_signature == session_signature and lease.state is not LeaseState.OFFERED:
        return lease  # said twice: the answer is the same
    if lease.state is not LeaseState.OFFERED or market.now >= lease.expires_ms:
        raise QuoteGone(f"the quote of {lease_id} is over ({lease.state.name})")
    SignedTerms(lease.terms, lease.adapter_signature, session_signature).verify()
    if not lease.reused and not re.fullmatch(r"[0-9a-f]{64}", channel_tx):
        raise Malformed("channel_tx is the open transaction's id in hex")
    wanted = set(job.parsed.secrets)
    if set(secrets) != wanted:
        raise Malformed(f"sealed secrets are needed for: {', '.join(sorted(wanted)) or 'nothing'}")
    sealed = {name: value.hex() for name, value in secrets.items()}
    waits = not (await standing.of(market, lease.account)).paid and market.settings.starts_in_turn
    offered = await market.store.get(OfferRecord, lease.offer)
    payout = offered.offer.payout_address if offered is not None else ""

    def extra(out: decide.Outcome) -> Change:
        agreed = {"ceiling": lease.ceiling, "channel": lease.session_vk.hex()}
        note = audit(market, who, "lease.sign", lease.id, {**agreed, "tx": channel_tx})
        kept = remember(out.lease)
        if out.lease.reused:
            return Change(puts=[note, *kept])
        puts: list[Record] = [
            note,
            *kept,
            Channel(
                lease.session_vk,
                lease.account,
                lease.provider,
                lease.terms,
                payout,
                market.now,
                channel_tx,
            ),
        ]
        return Change(puts=puts)

    try:
        out = await market.change(
            lease_id,
            lambda at, of: decide.signed(
                at, of, session_signature, channel_tx, sealed, market.now, waits
            ),
            extra,
        )
    except (Conflict, IllegalTransition):
        lease, _ = await market.lease(lease_id)
        if lease.session_signature == session_signature:
            return lease  # said twice at once
        raise
    if not waits:
        return out.lease
    await standing.turns(market, lease.account)
    lease, _ = await market.lease(lease_id)
    return lease


async def stop(market: Market, who: Caller, job_id: str, reason: str = "") -> Job:
    """End a job, whatever it is doing. Stopping twice is one stop."""
    job = await owned_job(market, who, job_id)
    return await stop_job(market, job, reason or EndReason.CANCELLED)


async def stop_job(market: Market, job: Job, reason: str) -> Job:
    """The same, by whoever may."""
    if job.lease and job.state is not JobState.ENDED:
        out = await market.change(
            job.lease, lambda lease, of: decide.stop(lease, of, reason, market.now)
        )
        return out.job
    if job.state in (JobState.POSTED, JobState.QUEUED):
        ended = replace(
            job, state=JOB.step(job.state, JobEvent.END), reason=reason, updated_ms=market.now,
            needs="",
        )  # fmt: skip
        change = Change(topics=[MATCHER])
        await market.free_budget(change, ended, None)
        await _save_job(market, ended, change, "ENDED", {"reason": reason}, new=False)
        market.directory.leave(job.id)
        return ended
    return job


async def decline(market: Market, who: Caller, lease_id: str) -> Job:
    """The consumer does not want this quote: the job ends."""
    lease, job = await owned_lease(market, who, lease_id)
    if lease.state not in decide.BEFORE_FUNDS:
        raise QuoteGone(f"the quote of {lease_id} is over ({lease.state.name})")
    return await stop_job(market, job, EndReason.CANCELLED)


async def resume(market: Market, who: Caller, job_id: str, session_vk: bytes) -> Job:
    """The fresh session key that a retry needs; the job is matched again."""
    for attempt in range(TRIES):
        job = await owned_job(market, who, job_id)
        if job.needs != "session_vk":
            if job.session_vk == session_vk and job.retries:
                return job  # said twice
            raise Conflict("the job does not wait for a session key")
        if len(session_vk) != 32 or await market.store.count(Channel, session_vk=session_vk):
            raise Conflict("a session key is 32 bytes, and fresh")
        job = replace(job, session_vk=session_vk, needs="", updated_ms=market.now)
        try:
            await market.store.apply(Change(sets=[job], topics=[MATCHER, f"job:{job.id}"]))
        except Conflict:  # its lost provider told something late
            if attempt == TRIES - 1:
                raise
            continue
        break
    if market.epoch:
        # The matcher's own round hears of the job too; whichever is second has nothing left to do.
        with contextlib.suppress(Conflict):
            await rematch(market, job_id)
    return await owned_job(market, who, job_id)


def dry_run(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """The price, the ceiling and the alternatives; nothing is reserved. NothingMatches."""
    check_spec(spec)
    found = market.directory.quote(spec, account, frozenset(), market.now)
    if isinstance(found, NoMatch):
        raise NothingMatches(str(found), explain=explained(found))
    return {**quoted(spec, found), "alternatives": _alternatives(market, spec, account, found)}


def quoted(spec: JobSpec, found: Match) -> dict[str, Any]:
    """What a match would cost, and where it is."""
    longest = owed(unit_ms(spec.policy.max_duration_ms, found.grant.units_milli), found.rate_micro)
    return {
        "offer": found.offer.id,
        "provider": found.offer.provider,
        "device": decide.device_words(found.offer, found.grant.gpus),
        "simulated": any(g.simulated for g in found.offer.host.gpus if g.uuid in found.grant.gpus),
        "resource": found.resource,
        "rate_micro": found.rate_micro,
        "units_milli": found.grant.units_milli,
        "block": found.block,
        "ceiling": min(spec.price.budget, longest + 1),
        "fee_bps": found.offer.fee_bps,
        "tick_ms": found.offer.tick_ms,
    }


def _alternatives(
    market: Market, spec: JobSpec, account: str, found: Match
) -> list[dict[str, Any]]:
    """The other offers, by way of the lease that this quote would become."""
    job = Job(
        "", account, "", spec.name, spec.kind, spec.to_wire(), bytes(28), [], JOB.initial, 0, 0, b""
    )
    terms = decide.terms_of(job, spec, found, "", bytes(32), market.now)
    _, lease = decide.proposed(job, found, terms, False, market.now)
    return market.directory.others(spec, account, lease, market.now)


def explain(market: Market, spec: JobSpec, account: str) -> dict[str, Any]:
    """The same as data, whichever way it goes."""
    try:
        return {"matches": True, "quote": dry_run(market, spec, account), "explain": None}
    except NothingMatches as no:
        return {"matches": False, "quote": None, "explain": no.fields["explain"]}
