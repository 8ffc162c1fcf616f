"""A job is given a place: planned on this process's view, committed under the matcher's lock.

What was planned is given back if it does not come to a commit. Two looks at one job take turns.
"""

from __future__ import annotations

from marketplace.domain.errors import Conflict
from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.job import JobState
from marketplace.market.accounts import standing
from marketplace.market.base.errors import OverBudget
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Job
from marketplace.market.context import Market, log
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import Exhausted, Matched, Unmatched
from marketplace.market.core.outcome import Outcome
from marketplace.market.core.standing import address_limited, quote_ttl_ms
from marketplace.market.core.waiting import pausing, unplaced
from marketplace.market.lifecycle.change import Step, change_job, commit
from marketplace.market.placement import starts
from marketplace.market.state.directory import Match, explained
from marketplace.matching import NoMatch


async def match(market: Market, job: Job, change: Change, *, new: bool = False) -> Job:
    """A place for *job*, or what becomes of it without one; *change* is written with either.

    NothingMatches for a *new* job that does not wait; OverBudget, Conflict.
    """
    spec, lease_id, avoid = job.parsed, market.ids.new("lease"), frozenset(job.avoid)
    doubtful = await starts.doubtful(market, job.account)
    found = market.directory.place(spec, job.account, avoid | doubtful, market.now, lease_id)
    if isinstance(found, NoMatch) and doubtful:  # better than none at all
        found = market.directory.place(spec, job.account, avoid, market.now, lease_id)
    if not isinstance(found, NoMatch):
        return await propose(market, job, found, lease_id, change, new=new)
    asked = Unmatched(str(found), explained(found), posting=new)
    out = decide(job, None, asked, market.now)
    await commit(market, [Step(None if new else job, None, out)], change)
    return out.job


async def propose(
    market: Market, job: Job, found: Match, lease_id: str, change: Change, *, new: bool = False
) -> Job:
    """Ask the adapter, in the same transaction as the lease itself; what *lease_id* holds is given back
    where that fails. OverBudget, Conflict.
    """
    try:
        out = await proposed(market, job, found, lease_id, await _reusable(market, job, found))
        await commit(market, [Step(None if new else job, None, out)], change)
    except BaseException:
        market.directory.release(lease_id, market.now)
        raise
    return out.job


async def proposed(
    market: Market, job: Job, found: Match, lease_id: str, channel: bytes = b""
) -> Outcome:
    """What asking the adapter comes to, decided only."""
    known = await standing.of(market, job.account)
    expires = market.now + quote_ttl_ms(market.settings, known)
    asked = Matched(found, lease_id, expires, channel, address_limited(known))
    return decide(job, None, asked, market.now)


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


# ---- again ---------------------------------------------------------------------------------------


async def rematch(market: Market, job_id: str) -> None:
    """Look again for a posted job that has no lease; nothing if somebody did already. Conflict."""
    async with market.looks.alone(job_id):
        job = await market.store.get(Job, job_id)
        if job is None or job.state is not JobState.POSTED or not unplaced(job) or job.gang:
            return  # the members of a gang are placed together or not at all: ``gangs``
        if pausing(job, market.now) or await standing.blocked(market, job.account):
            return  # the next sweep looks again
        try:
            await match(market, job, Change())
        except OverBudget as over:
            await change_job(market, job_id, Exhausted(over.message))


async def queued_round(market: Market) -> int:
    """Try the fair queue; how many jobs were placed."""
    begun = market.directory.round(market.now, lambda: market.ids.new("lease"))
    for job_id, lease_id, found in begun:
        async with market.looks.alone(job_id):
            await _begin(market, job_id, lease_id, found)
    return len(begun)


async def _begin(market: Market, job_id: str, lease_id: str, found: Match) -> None:
    job = await market.store.get(Job, job_id)
    if (
        job is None
        or job.state is not JobState.QUEUED
        or await standing.blocked(market, job.account)
    ):
        market.directory.release(lease_id, market.now)
        return
    try:
        await propose(market, job, found, lease_id, Change())
    except OverBudget as over:
        await change_job(market, job_id, Exhausted(over.message))
    except Conflict as error:  # somebody changed the job meanwhile; it is put into the queue again
        log.info("match", job=job_id, error=error.line())
