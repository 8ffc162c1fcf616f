"""A job is given a place: planned on this process's view, committed under the matcher's lock.

What was planned is given back if it does not come to a commit. Two looks at one job take turns.
"""

from __future__ import annotations

from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Job, Standing
from marketplace.market.context import Market
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import Matched, Unmatched
from marketplace.market.core.standing import address_limited, quote_ttl_ms
from marketplace.market.lifecycle.change import Step, commit
from marketplace.market.placement import starts
from marketplace.market.state.directory import Match, explained
from marketplace.matching import NoMatch


async def match(
    market: Market, job: Job, spec: JobSpec, known: Standing, change: Change, *, new: bool = False
) -> Job:
    """A place for *job*, or what becomes of it without one; *change* is written with either.
    *spec*: the job's, parsed. *known*: the standing of the job's account, as it was just read.

    NothingMatches for a *new* job that does not wait; OverBudget, Conflict.
    """
    lease_id, avoid = market.ids.new("lease"), frozenset(job.avoid)
    doubtful = await starts.doubtful(market, job.account)
    found = market.directory.place(spec, job.account, avoid | doubtful, market.now, lease_id)
    if isinstance(found, NoMatch) and doubtful:  # better than none at all
        found = market.directory.place(spec, job.account, avoid, market.now, lease_id)
    if not isinstance(found, NoMatch):
        return await propose(market, job, known, found, lease_id, change, new=new)
    asked = Unmatched(str(found), explained(found), posting=new)
    out = decide(job, None, asked, market.now)
    await commit(market, [Step(None if new else job, None, out)], change)
    return out.job


async def propose(
    market: Market,
    job: Job,
    known: Standing,
    found: Match,
    lease_id: str,
    change: Change,
    *,
    new: bool = False,
) -> Job:
    """Ask the adapter, in the same transaction as the lease itself; what *lease_id* holds is given
    back where that fails. OverBudget, Conflict.
    """
    try:
        channel = await _reusable(market, job, found)
        asked = matched(market, known, found, lease_id, channel)
        out = decide(job, None, asked, market.now)
        await commit(market, [Step(None if new else job, None, out)], change)
    except BaseException:
        market.directory.release(lease_id, market.now)
        raise
    return out.job


def matched(
    market: Market, known: Standing, found: Match, lease_id: str, channel: bytes = b""
) -> Matched:
    """What is decided about: *found*, and how long the quote for it stands for an account of which
    this is *known*.
    """
    expires = market.now + quote_ttl_ms(market.settings, known)
    return Matched(found, lease_id, expires, channel, address_limited(known))


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
