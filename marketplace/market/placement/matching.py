"""A job is given a place: planned on this process's view, committed under the matcher's lock.

What was planned is given back if it does not come to a commit. Two looks at one job take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from marketplace.domain.errors import Conflict
from marketplace.domain.money.channel_stage import USABLE
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job import JobSpec
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Channel, Job, ReceiptRecord, Standing
from marketplace.market.context import Market
from marketplace.market.core.decide import decide
from marketplace.market.core.inputs import Matched, Unmatched
from marketplace.market.core.proposal import terms_of
from marketplace.market.core.standing import address_limited, quote_ttl_ms
from marketplace.market.lifecycle.change import Step, commit
from marketplace.market.lifecycle.routes import drop
from marketplace.market.placement import expected, routes, starts, volumes
from marketplace.market.state.match import NOTHING, Match, Spent, explained
from marketplace.matching import NoMatch


async def match(
    market: Market, job: Job, spec: JobSpec, known: Standing, change: Change, *, new: bool = False
) -> Job:
    """A place for *job*, or what becomes of it without one; *change* is written with either.
    *spec*: the job's, parsed. *known*: the standing of the job's account, as it was just read.

    NothingMatches for a *new* job that does not wait; OverBudget, Conflict.
    """
    place = await volumes.held(market, job.account, spec)
    why = place.why
    if place.channel and place.channel.hex() not in job.channels:
        why = "a volume is mounted by the purse that pays for it, and by no other"
    if why:
        return await _without(market, job, why, volumes.nowhere(why), NOTHING, change, new)
    spec = place.bound(spec)
    await expected.bring(market, spec.image)
    lease_id, spent = market.ids.new("lease"), await spent_by(market, job)
    found = await _place(market, job, spec, lease_id, spent)
    if not isinstance(found, NoMatch):
        try:
            return await propose(market, job, known, found, lease_id, change, new=new)
        except BelowMinimum:
            spent = await spent_by(market, job, routed=False)
            found = await _place(market, job, spec, lease_id, spent)
    if not isinstance(found, NoMatch):
        return await propose(market, job, known, found, lease_id, change, new=new)
    return await _without(market, job, str(found), explained(found), spent, change, new)


async def _without(
    market: Market,
    job: Job,
    why: str,
    explain: Mapping[str, Any],
    spent: Spent,
    change: Change,
    new: bool,
) -> Job:
    out = decide(job, None, Unmatched(why, explain, posting=new, spent=spent), market.now)
    await commit(market, [Step(None if new else job, None, out)], change)
    return out.job


async def _place(
    market: Market, job: Job, spec: JobSpec, lease_id: str, spent: Spent
) -> Match | NoMatch:
    avoid, place = frozenset(job.avoid), market.directory.place
    doubtful = await starts.doubtful(market, job.account)
    found = place(spec, job.account, avoid | doubtful, market.now, lease_id, spent)
    if isinstance(found, NoMatch) and doubtful:  # better than none at all
        found = place(spec, job.account, avoid, market.now, lease_id, spent)
    return found


class VolumeApart(Conflict):
    """The channel of a job's volumes is being ended, or its provider has other terms since."""

    code = "VOLUME_APART"
    remedy = "end the volume and make another, or take the files out by what still mounts it"


class BelowMinimum(Conflict):
    """A place that was found for a routed lease, which got no route, and is too small without."""

    code = "BELOW_MINIMUM"


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
    back where that fails. OverBudget, BelowMinimum, Conflict.
    """
    made = None
    try:
        channel = await _reusable(market, job, found.offer)
        asked = matched(market, known, found, lease_id, channel)
        if job.hop and not channel and not job.parsed.is_volume:
            until = routes.expires_ms(market, job, asked.expires_ms - market.now)
            made = await routes.make(market, job, found, lease_id, until)
            if made is not None:
                asked = replace(asked, expires_ms=until, made=made)
            elif _too_small(job, found):
                raise BelowMinimum(f"{lease_id} got no route, and is too small for a channel")
        out = decide(job, None, asked, market.now)
        await commit(market, [Step(None if new else job, None, out)], change)
    except BaseException:
        market.directory.release(lease_id, market.now)
        if made is not None:
            await drop(market, lease_id)
        raise
    return out.job


def _too_small(job: Job, found: Match) -> bool:
    """Whether the lease could not cost what its offer asks of one on a channel of its own."""
    return terms_of(job, job.parsed, found, "", bytes(32), 0).ceiling < found.offer.minimum


def matched(
    market: Market, known: Standing, found: Match, lease_id: str, channel: bytes = b""
) -> Matched:
    """What is decided about: *found*, and how long the quote for it stands for an account of which
    this is *known*.
    """
    expires = market.now + quote_ttl_ms(market.settings, known)
    return Matched(found, lease_id, expires, channel, address_limited(known))


async def spent_by(market: Market, job: Job, *, routed: bool = True) -> Spent:
    """What *job* is looked for with: what it cost before, and what each channel that it may reuse
    has brought its provider, by the receipts: never by what its consumer says. Where it may be paid
    over a hop (*routed*) no minimum is asked of it.
    """
    reachable = routes.reachable(market, job) if routed else []
    brought = {offer.provider: offer.minimum for offer in reachable if offer.minimum}
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
    kept = (await volumes.held(market, job.account, job.parsed)).channel
    for channel in await _usable(market, job):
        if kept and channel.session_vk != kept:
            continue  # volumes are opened by their own channel's key
        if channel.provider == offer.provider and _fits(channel, job, offer):
            return channel.session_vk
    if kept:
        raise VolumeApart(f"the channel that pays for the volumes of {job.id} takes no more jobs")
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
