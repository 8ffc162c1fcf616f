"""A job is given a place: planned on this process's view, committed under the matcher's lock.

What was planned is given back if it does not come to a commit. Two looks at one job take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Job, ReceiptRecord, Standing
from marketplace.market.context import Market
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import Matched, Unmatched
from marketplace.market.core.standing import address_limited, quote_ttl_ms
from marketplace.market.lifecycle.change import Step, commit
from marketplace.market.placement import starts
from marketplace.market.state.match import Match, Spent, explained
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
    spent, place = await spent_by(market, job), market.directory.place
    found = place(spec, job.account, avoid | doubtful, market.now, lease_id, spent)
    if isinstance(found, NoMatch) and doubtful:  # better than none at all
        found = place(spec, job.account, avoid, market.now, lease_id, spent)
    if not isinstance(found, NoMatch):
        return await propose(market, job, known, found, lease_id, change, new=new)
    asked = Unmatched(str(found), explained(found), posting=new, spent=spent)
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
        channel = await _reusable(market, job, found.offer)
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


async def spent_by(market: Market, job: Job) -> Spent:
    """What *job* is looked for with: what it cost before, and what each channel that it may reuse
    has brought its provider, by the receipts: never by what its consumer says.
    """
    brought: dict[str, int] = {}
    usable = await _usable(market, job)
    listed = {offer.provider: offer for _, offer in market.directory.offers()} if usable else {}
    for channel in usable:
        offer = listed.get(channel.provider)
        if offer is None or channel.provider in brought or not _fits(channel, job, offer):
            continue
        receipts = await market.store.find(
            ReceiptRecord, session_vk=channel.session_vk, order=("-seq",), limit=1
        )
        brought[channel.provider] = receipts[0].channel_owed if receipts else 0
    return Spent(job.spent_before, tuple(sorted(brought.items())))


async def _reusable(market: Market, job: Job, offer: Offer) -> bytes:
    """An open channel of this consumer to the *offer*'s provider, with the same facts; or none."""
    for channel in await _usable(market, job):
        if channel.provider == offer.provider and _fits(channel, job, offer):
            return channel.session_vk
    return b""


async def _usable(market: Market, job: Job) -> Sequence[Channel]:
    """The channels that the *job* brought and that stand open."""
    if not job.channels:
        return ()
    keys = [bytes.fromhex(x) for x in job.channels]
    return await market.store.find(Channel, session_vk=keys, account=job.account, state=USABLE)


def _fits(channel: Channel, job: Job, offer: Offer) -> bool:
    """Whether a lease of *job* at *offer* may be paid over *channel*."""
    was = Terms.decode(channel.terms)
    same = (
        was.payout == offer.payout
        and was.adapter_vkh == offer.adapter_vkh
        and was.close_period_ms == offer.close_period_ms
        and was.fee_bps == offer.fee_bps
        and was.asset == offer.asset
        and was.consumer_vkh == job.consumer_vkh
    )
    return same and not channel.end_signature and not channel.settled_tx
