"""Whether a signed lease's channel carries it: start it, wait, or give it up.  Pure."""

from __future__ import annotations

from adapter.core import debt, lifecycle, routed
from adapter.core.draft import Draft
from adapter.core.state import (
    Channel,
    Lease,
)
from adapter.core.ticks import too_young
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.work.lease import EndReason


def fund(draft: Draft, lease: Lease, channel: Channel) -> None:
    """Start it if the channel carries it; wait while the open transaction, or the top-up of a
    channel that is used again, is too young.
    """
    if lease.routed is not None:
        _over_a_hop(draft, lease, channel)
        return
    left = left_for(draft, lease, channel)
    if channel.starved:
        return  # until a claim lands; see await_money for how long
    if lease.terms.ceiling > left and not lease.channel_tx:
        return  # its top-up is on its way: see _age for how long
    if lease.terms.ceiling > left:
        lifecycle.stop(
            draft, lease, EndReason.CHANNEL_REFUSED,
            f"{left} lovelace are left on the channel, the ceiling is {lease.terms.ceiling}",
        )  # fmt: skip
    elif debt.waits_ms(draft.state, lease.terms.consumer_vkh, draft.now) > 0:
        why = "another lease of this consumer ended unpaid"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
    elif channel.owed + lease.terms.tick_owed() <= channel.limit and not too_young(
        draft.state, lease, channel
    ):
        if debt.may_begin(
            draft.state, lease, draft.now
        ):  # else when the rest is paid: see await_money
            lifecycle.begin(draft, lease)


def _over_a_hop(draft: Draft, lease: Lease, channel: Channel) -> None:
    """Start it once its router has committed itself, and the hop is deep enough: what it keeps for
    the lease was booked when the terms were signed.
    """
    deep = not too_young(draft.state, lease, channel)
    if routed.committed(lease, channel) and deep and not channel.starved:
        lifecycle.begin(draft, lease)


def left_for(draft: Draft, lease: Lease, channel: Channel) -> int:
    """What the channel has for *lease*, beside those that were begun."""
    ahead = sum(
        one.terms.ceiling - one.owed
        for one in draft.state.on(channel.session_vk)
        if one.id != lease.id and one.signed_for and not one.exited
    )
    return channel.capacity - channel.owed - ahead


def await_money(draft: Draft, lease: Lease) -> None:
    """Signed, and waiting for its channel, its money or its draft: not for ever, and only a moment
    while nothing is seen of the money of somebody who never paid.
    """
    channel, limits = draft.channel_of(lease), draft.own.limits
    if channel is not None and channel.stage is ChannelStage.OPEN:
        fund(draft, lease, channel)
        lease = draft.state.leases.get(lease.id, lease)
    if not lease.awaits_money:
        return
    seen = channel is not None and _seen(draft, lease, channel)
    unseen = limits.fund_wait_ms if draft.own.offer.magic == DEVNET_MAGIC else limits.fund_blind_ms
    most = limits.fund_seen_ms if seen else unseen
    if draft.now.wall_ms - lease.signed_wall_ms > most:
        why = f"no channel that carries the ceiling within {most} ms"
        if lease.routed is not None:
            why = f"its router did not sign for it, or its hop was not seen, within {most} ms"
        elif (
            channel is not None
            and channel.stage is ChannelStage.OPEN
            and not debt.may_begin(draft.state, lease, draft.now)
        ):
            why = f"what runs here did not pay enough for one more lease within {most} ms"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)


def _seen(draft: Draft, lease: Lease, channel: Channel) -> bool:
    """Whether the money of *lease* is there, or on its way: then it may take its time."""
    if lease.routed is not None:
        return routed.committed(lease, channel)
    carries = left_for(draft, lease, channel) >= lease.terms.ceiling
    opened = channel.stage is ChannelStage.OPEN
    return channel.expected or channel.paid > 0 or (opened and carries)
