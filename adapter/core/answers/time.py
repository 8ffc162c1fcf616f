"""What becomes of leases and channels because time goes by.  Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core import before_block, debt, exposure, lifecycle
from adapter.core.answers.funding import await_money
from adapter.core.draft import Draft
from adapter.core.state import (
    Channel,
    Lease,
    PauseCause,
)
from adapter.core.ticks import blind
from marketplace.domain.money.channel_stage import USABLE, ChannelStage
from marketplace.domain.work.lease import EndReason, LeaseState

GONE_MS: Final = 1_800_000
"""How long a lease is kept whose open transaction vanished: its payer may send the same bytes
again.
"""
QUOTE_MARGIN_MS: Final = 60_000
"""How long after a quote's expiry its devices are kept: a signature may be on its way."""


def passed(draft: Draft) -> None:
    """Deadlines of leases, exposure of channels, and what may be forgotten, as of now."""
    for id_ in list(draft.state.leases):
        lease = draft.state.leases.get(id_)
        if lease is not None:
            _age(draft, lease)
    unseen = {
        lease.channel.hex()[:16]
        for lease in draft.state.leases.values()
        if lease.runs and blind(draft.state, lease, draft.now, draft.own.limits)
    }
    if unseen:
        names = ", ".join(sorted(unseen))
        draft.alarm(
            "CHAIN_UNSEEN", f"not seen on the chain for too long, leases are paused: {names}"
        )
    for session_vk, known in list(draft.state.channels.items()):
        channel = _exposed(draft, known)
        if any(True for _ in draft.state.on(session_vk)):
            lifecycle.settle_if_due(draft, session_vk)
            continue
        unused = channel.stage in USABLE
        if unused and not channel.idle_since_wall_ms:
            draft.put_channel(replace(channel, idle_since_wall_ms=draft.now.wall_ms))
        elif _over_for_good(draft, channel):
            draft.forget(channel)
        lifecycle.settle_if_due(draft, session_vk)


def _exposed(draft: Draft, known: Channel) -> Channel:
    """The channel with its exposure as of now; the owner is told while it is starved."""
    channel = exposure.follow(known, draft.own.rules, draft.now.boot_ms)
    if channel is not known:
        draft.put_channel(channel)
    if channel.starved:
        draft.alarm("CLAIM_STARVED", exposure.words(channel, draft.own.rules))
    return channel


def _over_for_good(draft: Draft, channel: Channel) -> bool:
    """Whether nothing of a channel without leases can matter any more, on chain or to a reader."""
    now, limits = draft.now.wall_ms, draft.own.limits
    if channel.stage is ChannelStage.OPENING:  # nobody opened it: nothing was served on it
        return not channel.used and now - channel.idle_since_wall_ms >= limits.linger_ms
    young = channel.young
    if young is not None and young.void and not channel.settled_tx:
        return now - young.void_wall_ms >= limits.linger_ms
    return channel.final and now - channel.final_wall_ms >= limits.keep_ms


def _age(draft: Draft, lease: Lease) -> None:
    now, limits = draft.now, draft.own.limits
    if lease.state is LeaseState.OFFERED:
        if now.wall_ms > lease.terms.expires_at_ms + QUOTE_MARGIN_MS:
            lifecycle.stop(draft, lease, EndReason.QUOTE_EXPIRED)
        return
    if lease.awaits_money:
        await_money(draft, lease)
        return
    if lease.state is LeaseState.PAUSED:
        lease = lifecycle.count_pause(draft, lease)
        if lease.paused_ms > debt.pause_limit_ms(lease, draft.channel_of(lease)):
            why = f"no voucher for {lease.paused_ms} ms in all"
            lifecycle.stop(draft, lease, EndReason.UNPAID, why)
            return
        if _abandoned(draft, lease):
            why = "the transaction that opened the channel is gone, and did not come back"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
            return
        if _blockless(draft, lease):
            why = "OPEN_LATE: the allowance before the first block is used, and no block came"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
            return
        if exposure.given_up(draft.state, lease, now):
            why = "no claim of what is due came on chain, for too long"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
            return
    offline = draft.state.offline_since_ms
    if offline is not None and lease.state in (LeaseState.ACTIVE, LeaseState.PAUSED):
        window_ms = limits.resume_window_ms
        if lease.job.is_volume:  # a market that is away is no reason to lose what it holds
            window_ms = max(window_ms, draft.own.offer.volume_keep_ms)
        if now.boot_ms - offline > window_ms:
            why = f"the market was out of reach for {window_ms} ms"
            lifecycle.stop(draft, lease, EndReason.PROVIDER_LOST, why)
            return
    lifecycle.close_if_done(draft, lease)


def _blockless(draft: Draft, lease: Lease) -> bool:
    """Frozen for so long over an open that no block holds, that its devices are given free."""
    frozen_ms = lease.frozen_ms - lease.paused_ms
    late = before_block.given_up(draft.channel_of(lease), frozen_ms)
    return late and lease.pause is PauseCause.DEPTH


def _abandoned(draft: Draft, lease: Lease) -> bool:
    """Frozen over a channel that a rollback took away: its devices are not kept for ever."""
    channel = draft.channel_of(lease)
    gone = channel is not None and channel.limit <= 0
    frozen_ms = lease.frozen_ms - lease.paused_ms
    return gone and lease.pause is PauseCause.DEPTH and frozen_ms > GONE_MS
