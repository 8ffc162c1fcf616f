"""What the chain shows of a channel: seen, unreadable, unfit or settled.  Pure."""

from __future__ import annotations

from dataclasses import replace

from adapter.core import before_block, exposure, lifecycle
from adapter.core.answers.funding import fund
from adapter.core.draft import Draft
from adapter.core.events import (
    ChannelUnfit,
    Expected,
    Settled,
    Sighted,
    Unread,
)
from adapter.core.state import (
    Channel,
    Sight,
)
from adapter.core.wish import Wish
from marketplace.domain.money.channel_stage import ChannelStage, after
from marketplace.domain.work.lease import EndReason


def sighted(draft: Draft, event: Sighted) -> None:
    """The channel as it stands: leases start, go on, or end with it."""
    channel = draft.state.channels.get(event.session_vk)
    if channel is None or channel.stage is ChannelStage.ENDED:
        return
    draft.state = draft.state.with_sight(event.session_vk, Sight(draft.now.boot_ms))
    seen = replace(
        channel,
        stage=after(channel.stage, event.stage),
        claimed=event.claimed,
        capacity=event.capacity,
        limit=before_block.limit(channel, event.limit),
        expire_at_wall_ms=event.expire_at_wall_ms,
    )
    seen = before_block.seen(seen, event.limit)
    seen = exposure.follow(seen, draft.own.rules, draft.now.boot_ms)
    if seen != channel:
        draft.put_channel(seen)
    if event.stage in (ChannelStage.CLOSING, ChannelStage.ENDED):
        if channel.stage is not event.stage and not channel.settling:
            draft.alarm("CHANNEL_CLOSING", f"channel {seen.session_vk.hex()[:16]} is {event.stage}")
        for lease in list(draft.state.on(event.session_vk)):
            lifecycle.stop(
                draft, lease, EndReason.CHANNEL_CLOSING, "the channel is closing or over"
            )
        lifecycle.settle_if_due(draft, event.session_vk)
        return
    for lease in list(draft.state.on(event.session_vk)):
        if lease.awaits_money:
            fund(draft, lease, seen)
    lifecycle.reconsider(draft, event.session_vk)


def expected(draft: Draft, event: Expected) -> None:
    """The open transaction was seen to wait for its block: its leases wait longer."""
    channel = draft.state.channels.get(event.session_vk)
    if channel is not None and channel.stage is ChannelStage.OPENING and not channel.expected:
        draft.put_channel(replace(channel, expected=True))


def unread(draft: Draft, event: Unread) -> None:
    """What the chain shows of a channel cannot be read: leases pause when that lasts (see
    ``blind``).
    """
    if event.session_vk not in draft.state.channels:
        return
    sight, now = draft.state.sight(event.session_vk), draft.now.boot_ms
    since = now if sight.unread_since_ms is None else sight.unread_since_ms
    draft.state = draft.state.with_sight(event.session_vk, replace(sight, unread_since_ms=since))
    known = draft.state.channels[event.session_vk]
    if now - since > draft.own.limits.unread_ms and known.stage is not ChannelStage.OPENING:
        name = event.session_vk.hex()[:16]
        draft.alarm(
            "CHANNEL_UNREAD",
            f"channel {name} cannot be read for {(now - since) // 1000} s, its leases are paused:"
            f" {event.code}: {event.message}",
        )


def unfit(draft: Draft, event: ChannelUnfit) -> None:
    """Nothing starts on it; what runs already pauses as on a channel that cannot be read."""
    leases = list(draft.state.on(event.session_vk))
    if any(lease.runs for lease in leases):
        unread(draft, Unread(event.session_vk, event.code, event.message))
    for lease in leases:
        if lease.wish is Wish.WAIT:
            why = f"{event.code}: {event.message}"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)


def settled(draft: Draft, event: Settled) -> None:
    """A transaction that ends the channel is on chain: its leases end, the market is told."""
    channel = draft.state.channels.get(event.session_vk)
    if channel is None:
        return
    told = channel.settled_tx == event.tx
    if told and channel.final >= event.final:
        return
    expected = max(channel.claimed, channel.due)
    channel = replace(
        channel,
        stage=after(channel.stage, ChannelStage.ENDED),
        settling=False,
        settled_tx=event.tx,
        final=event.final,
        final_wall_ms=draft.now.wall_ms if event.final else 0,
        claimed=expected if event.claimed is None else event.claimed,
    )
    draft.put_channel(channel)
    if told:
        return
    if channel.claimed < channel.due:
        lost = channel.due - channel.claimed
        draft.alarm(
            "VOUCHER_LOST", f"the channel ended with {lost} lovelace of a voucher unclaimed"
        )
    for lease in list(draft.state.on(event.session_vk)):
        lifecycle.stop(draft, lease, EndReason.CHANNEL_CLOSING, "the channel is over")
    tell_settled(draft, channel)


def tell_settled(draft: Draft, channel: Channel) -> None:
    """Tell the market of the settlement, for each lease that the channel paid."""
    for lease in channel.leases:
        draft.progress(lease, "SETTLED", tx=channel.settled_tx)
