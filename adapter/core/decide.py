"""The adapter's mind: ``decide(state, event, now, own) -> Outcome``.  Pure.

    market ──Heard──▶        ┌────────┐ ──▶ Send      to the market, by way of the journal
    chain ──Sighted─▶  state │ decide │ ──▶ Drive     the workload to the lease's wish
    host ──Measured─▶        └────────┘ ──▶ Settle    the channel on chain

The daemon puts a durable outcome on disk before it performs an effect; every effect may be
performed twice.  :func:`recover` names the effects that a state found in the journal still needs.

Long, because every event's answer is read here, from top to bottom, in one place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core import debt, exposure, lifecycle
from adapter.core.admission import Declined, check
from adapter.core.draft import Draft
from adapter.core.events import (
    ChannelUnfit,
    Collected,
    Drain,
    Drive,
    Effect,
    Event,
    Exited,
    Expected,
    Failed,
    Heard,
    LinkDown,
    LinkUp,
    Logged,
    Measured,
    Outcome,
    Passed,
    Preparing,
    Purse,
    Removed,
    Settle,
    Settled,
    Sighted,
    Started,
    Unread,
    Watch,
)
from adapter.core.state import (
    Channel,
    Lease,
    Now,
    Own,
    PauseCause,
    Sight,
    State,
    Wish,
)
from adapter.core.ticks import blind, exhausted, fold, pause_cause, receipt, take_voucher
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel_stage import USABLE, ChannelStage, after
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import DEVNET_MAGIC
from marketplace.domain.work.lease import EndReason, LeaseEvent, LeaseState

GONE_MS: Final = 1_800_000
"""How long a lease is kept whose open transaction vanished: its payer may send the same bytes
again.
"""
QUOTE_MARGIN_MS: Final = 60_000
"""How long after a quote's expiry its devices are kept: a signature may be on its way."""


def decide(state: State, event: Event, now: Now, own: Own) -> Outcome:
    """What becomes of *state* through *event*, and what is to be done."""
    draft = Draft(state, own, now)
    match event:
        case Heard(message):
            _heard(draft, message)
        case LinkUp():
            _link_up(draft)
        case LinkDown():
            _link_down(draft)
        case Sighted():
            _sighted(draft, event)
        case Unread():
            _unread(draft, event)
        case Expected():
            _expected(draft, event)
        case ChannelUnfit():
            _unfit(draft, event)
        case Settled():
            _settled(draft, event)
        case Drain(on):
            draft.state, draft.durable = replace(state, draining=on), True
            draft.send(wire.OfferPosted(own.offer, on), durable=False)
        case Passed():
            _passed(draft)
        case Purse(short):
            draft.state = replace(state, unable=short)
        case _:
            lease = state.leases.get(event.lease)
            if lease is not None:
                _of_lease(draft, lease, event)
    return draft.outcome()


def recover(state: State) -> tuple[Effect, ...]:
    """What a state from the journal still needs done: its effects may have been lost in a kill."""
    effects: list[Effect] = [
        Drive(lease.id)
        for lease in state.leases.values()
        if lease.wish is not Wish.WAIT and not lease.removed
    ]
    for channel in state.channels.values():
        if not channel.final:
            effects.append(Watch(channel.session_vk))
            if channel.settling:
                effects.append(Settle(channel.session_vk))
    return tuple(effects)


def wake(state: State, now: Now) -> State:
    """A state from the journal, as of *now*: the time that the adapter was away is nobody's
    pause.
    """
    leases: dict[str, Lease] = {}
    for lease in state.leases.values():
        if lease.pause is PauseCause.UNPAID:
            lease = replace(lease, pause=PauseCause.OFFLINE)
        leases[lease.id] = replace(
            lease, paused_at_ms=now.boot_ms, fault_since_ms=0, idle_since_ms=0,
            started_at_ms=min(lease.started_at_ms, now.boot_ms),
        )  # fmt: skip
    channels = {
        vk: replace(one, exposed_at_ms=max(1, now.boot_ms)) if one.exposed_at_ms else one
        for vk, one in state.channels.items()
    }  # a boot clock of another start says nothing; what was starved stays so
    return replace(
        state, leases=leases, channels=channels, offline_since_ms=now.boot_ms,
        awake_ms=now.boot_ms, sights={},
    )  # fmt: skip


def _of_lease(
    draft: Draft,
    lease: Lease,
    event: Preparing | Started | Failed | Measured | Exited | Collected | Removed | Logged,
) -> None:
    match event:
        case Preparing():
            lifecycle.preparing(draft, lease, event)
        case Started():
            lifecycle.started(draft, lease, event)
        case Failed():
            lifecycle.failed(draft, lease, event)
        case Measured():
            _measured(draft, lease, event)
        case Exited():
            lifecycle.exited(draft, lease, event)
        case Collected():
            lifecycle.collected(draft, lease, event)
        case Removed():
            lifecycle.removed(draft, lease)
        case Logged(_, offset):
            draft.put(replace(lease, log_offset=offset), durable=False)


# ---- the market ----------------------------------------------------------------------------------


def _heard(draft: Draft, message: wire.Message) -> None:
    match message:
        case wire.LeaseProposed():
            _proposed(draft, message)
        case wire.LeaseSigned():
            _signed(draft, message)
        case wire.VoucherSent(_, voucher):
            try:
                take_voucher(draft, voucher)
            except Refusal as refusal:
                draft.alarm(refusal.code, refusal.message)
                return
            lifecycle.reconsider(draft, voucher.session_vk)
        case wire.EndSent(end):
            _end(draft, end)
        case wire.LeaseCancelled(id_, reason) | wire.StopAsked(id_, reason):
            lease = draft.state.leases.get(id_)
            if lease is not None:
                lifecycle.stop(draft, lease, _reason(reason), reason)
        case _:
            pass  # blobs, commands and streams are the daemon's: they change nothing here


def _reason(text: str) -> EndReason:
    return EndReason(text) if text in EndReason.__members__ else EndReason.CANCELLED


def _proposed(draft: Draft, message: wire.LeaseProposed) -> None:
    known = draft.state.leases.get(message.lease)
    if known is not None and known.signed.body == message.terms:
        draft.send(wire.LeaseAccepted(known.id, known.signed))  # the market asks again
        return
    plan = check(draft.state, draft.own, message, draft.now)
    if isinstance(plan, Declined):
        draft.send(wire.LeaseDeclined(message.lease, plan.code, plan.message, plan.remedy))
        return
    signed = SignedTerms(message.terms, draft.own.signer.sign(message.terms))
    lease = Lease(message.lease, message.job, signed, plan.terms, plan.grant)
    draft.put(lease)
    draft.send(wire.LeaseAccepted(lease.id, signed))


def _signed(draft: Draft, message: wire.LeaseSigned) -> None:
    lease = draft.state.leases.get(message.lease)
    if lease is None and any(message.lease in c.leases for c in draft.state.channels.values()):
        return  # it ran and is over: what is said of it lies in the outbox
    if lease is None:
        draft.progress(
            message.lease, "FINISHED", reason=EndReason.QUOTE_EXPIRED.value,
            message="this adapter no longer holds the quote",
        )  # fmt: skip
        return
    if lease.state is not LeaseState.OFFERED:
        return
    try:
        message.terms.verify()
    except Refusal as refusal:
        draft.alarm(refusal.code, f"lease {lease.id}: {refusal.message}")
        return
    if message.terms.body != lease.signed.body:
        draft.alarm("TERMS_REFUSED", f"lease {lease.id}: other terms came back than were signed")
        return
    lease = replace(
        lifecycle.step(lease, LeaseEvent.SIGNED),
        signed=message.terms,
        secrets=message.secrets,
        channel_tx=message.channel_tx,
        signed_wall_ms=draft.now.wall_ms,
    )
    draft.put(lease)
    channel = draft.state.channels.get(lease.channel)
    if channel is None and not message.channel_tx:
        lifecycle.stop(
            draft, lease, EndReason.CHANNEL_REFUSED, "the channel to reuse is not known here"
        )
        return
    if channel is None:
        channel = Channel(lease.channel, message.terms.body, message.channel_tx)
    elif _other_channel(channel, lease, message.channel_tx):
        why = "its session key names another channel already"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
        return
    channel = replace(channel, leases=(*channel.leases, lease.id), idle_since_wall_ms=0)
    lifecycle.watch(draft, channel)
    if channel.stage is ChannelStage.OPEN:
        _fund(draft, lease, channel)
    elif channel.stage is not ChannelStage.OPENING:
        lifecycle.stop(draft, lease, EndReason.CHANNEL_CLOSING, "the channel is closing or over")


def _other_channel(known: Channel, lease: Lease, channel_tx: str) -> bool:
    """A session key is one channel's for ever: the same open transaction, the same constants."""
    differs = Terms.decode(known.terms).consts() != lease.terms.consts()
    return differs or bool(channel_tx and channel_tx != known.origin)


def _end(draft: Draft, end: End) -> None:
    channel = draft.state.channels.get(end.session_vk)
    if channel is None:
        return
    try:
        end.verify()
    except Refusal as refusal:
        draft.alarm(refusal.code, refusal.message)
        return
    if channel.settled_tx:
        _tell_settled(draft, channel)
        return
    draft.put_channel(replace(channel, end_asked=True))
    for lease in list(draft.state.on(end.session_vk)):
        lifecycle.stop(draft, lease, EndReason.CANCELLED, "the consumer ended the channel")
    lifecycle.settle_if_due(draft, end.session_vk)


def _link_up(draft: Draft) -> None:
    draft.state = replace(draft.state, offline_since_ms=None)
    for lease in list(draft.state.leases.values()):
        if lease.pause is PauseCause.OFFLINE:
            lease = lifecycle.count_pause(draft, lease)
            draft.put(replace(lease, pause=PauseCause.UNPAID), durable=False)
    draft.send(wire.OfferPosted(draft.own.offer, draft.state.draining), durable=False)
    draft.send(wire.LeasesHeld(sorted(draft.state.leases)), durable=False)
    _announce(draft)


def _announce(draft: Draft) -> None:
    """Tell running tenants of maintenance that may come before their lease is over."""
    for lease in [one for one in draft.state.leases.values() if one.runs]:
        left = lease.terms.max_duration_ms - (draft.now.boot_ms - lease.started_at_ms)
        for window in draft.own.offer.windows:
            if draft.now.wall_ms < window.end_ms and window.start_ms < draft.now.wall_ms + left:
                draft.progress(
                    lease.id, "MAINTENANCE", durable=False, message=window.notice or None,
                    start_ms=window.start_ms, end_ms=window.end_ms,
                )  # fmt: skip


def _link_down(draft: Draft) -> None:
    if draft.state.offline_since_ms is not None:
        return
    draft.state = replace(draft.state, offline_since_ms=draft.now.boot_ms)
    for lease in list(draft.state.leases.values()):
        if lease.pause is PauseCause.UNPAID:
            lease = lifecycle.count_pause(draft, lease)
            draft.put(replace(lease, pause=PauseCause.OFFLINE), durable=False)


# ---- the chain -----------------------------------------------------------------------------------


def _sighted(draft: Draft, event: Sighted) -> None:
    channel = draft.state.channels.get(event.session_vk)
    if channel is None or channel.stage is ChannelStage.ENDED:
        return
    draft.state = draft.state.with_sight(event.session_vk, Sight(draft.now.boot_ms))
    seen = replace(
        channel,
        stage=after(channel.stage, event.stage),
        claimed=event.claimed,
        capacity=event.capacity,
        limit=event.limit,
        expire_at_wall_ms=event.expire_at_wall_ms,
    )
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
            _fund(draft, lease, seen)
    lifecycle.reconsider(draft, event.session_vk)


def _fund(draft: Draft, lease: Lease, channel: Channel) -> None:
    """Start it if the channel carries it; wait while the open transaction, or the top-up of a
    channel that is used again, is too young.
    """
    left = _left(draft, lease, channel)
    if channel.starved:
        return  # until a claim lands; see _await for how long
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
    elif channel.owed + lease.terms.tick_owed() <= channel.limit:
        if debt.may_begin(draft.state, lease, draft.now):  # else when the rest is paid: see _await
            lifecycle.begin(draft, lease)


def _left(draft: Draft, lease: Lease, channel: Channel) -> int:
    """What the channel has for *lease*, beside those that were begun."""
    ahead = sum(
        one.terms.ceiling - one.owed
        for one in draft.state.on(channel.session_vk)
        if one.id != lease.id and one.signed_for and not one.exited
    )
    return channel.capacity - channel.owed - ahead


def _expected(draft: Draft, event: Expected) -> None:
    channel = draft.state.channels.get(event.session_vk)
    if channel is not None and channel.stage is ChannelStage.OPENING and not channel.expected:
        draft.put_channel(replace(channel, expected=True))


def _unread(draft: Draft, event: Unread) -> None:
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


def _unfit(draft: Draft, event: ChannelUnfit) -> None:
    """Nothing starts on it; what runs already pauses as on a channel that cannot be read."""
    leases = list(draft.state.on(event.session_vk))
    if any(lease.runs for lease in leases):
        _unread(draft, Unread(event.session_vk, event.code, event.message))
    for lease in leases:
        if lease.wish is Wish.WAIT:
            why = f"{event.code}: {event.message}"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)


def _settled(draft: Draft, event: Settled) -> None:
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
    _tell_settled(draft, channel)


def _tell_settled(draft: Draft, channel: Channel) -> None:
    for lease in channel.leases:
        draft.progress(lease, "SETTLED", tx=channel.settled_tx)


# ---- the host ------------------------------------------------------------------------------------


def _measured(draft: Draft, lease: Lease, event: Measured) -> None:
    if not lease.runs:
        return
    before = [meter.last.phase if meter.last else None for meter in lease.meters]
    lease = replace(lease, meters=fold(lease.meters, event.readings))
    lease = _idle(draft, _faulty(draft, lease), event)
    after = [meter.last.phase if meter.last else None for meter in lease.meters]
    # A first reading, or a change of phase, is where billing begins: a crash must not lose it.
    draft.put(lease, durable=before != after)
    if event.tick:
        lease = receipt(draft, lease)
    channel = draft.channel_of(lease)
    if channel is None:
        return
    if lease.reason is not None:
        lifecycle.harden(draft, lease, channel)
        return
    ended = _limit_met(draft, lease, channel)
    if ended is not None:
        lifecycle.stop(draft, lease, *ended)
        return
    cause = pause_cause(draft.state, lease, channel, draft.now, draft.own.limits)
    if cause is not None and lease.state is LeaseState.ACTIVE:
        lifecycle.pause(draft, lease, cause)


def _faulty(draft: Draft, lease: Lease) -> Lease:
    standing = any(meter.fault is not None for meter in lease.meters)
    since = (lease.fault_since_ms or draft.now.boot_ms) if standing else 0
    return replace(lease, fault_since_ms=since)


def _idle(draft: Draft, lease: Lease, event: Measured) -> Lease:
    below = lease.job.policy.idle_gpu_below * 10
    used = [r.evidence.util_permille for r in event.readings]
    if not below or not lease.devices or lease.state is not LeaseState.ACTIVE:
        return replace(lease, idle_since_ms=0)
    if not used or any(one is None for one in used):
        return lease
    idle = all(one is not None and one < below for one in used)
    return replace(lease, idle_since_ms=(lease.idle_since_ms or draft.now.boot_ms) if idle else 0)


def _limit_met(draft: Draft, lease: Lease, channel: Channel) -> tuple[EndReason, str] | None:
    """Why a running lease must end now, the provider's own fault first."""
    now, terms, limits = draft.now.boot_ms, lease.terms, draft.own.limits
    latched = [meter.latched for meter in lease.meters if meter.latched is not None]
    if latched:
        return EndReason.PROVIDER_FAULT, f"the device failed: {latched[0].value}"
    if lease.fault_since_ms and now - lease.fault_since_ms > limits.fault_grace_ms:
        return EndReason.PROVIDER_FAULT, "the device's fault outlasted the grace period"
    ran = now - lease.started_at_ms - lease.frozen_ms
    if ran + terms.tick_ms >= terms.max_duration_ms:
        return EndReason.MAX_DURATION, f"{terms.max_duration_ms} ms were agreed"
    if exhausted(lease, channel):
        return EndReason.CEILING, f"{lease.owed} of {terms.ceiling} lovelace are used"
    idle_for = lease.job.policy.idle_for_ms
    if lease.idle_since_ms and now - lease.idle_since_ms >= idle_for:
        return EndReason.IDLE, f"below {lease.job.policy.idle_gpu_below} % for {idle_for} ms"
    return None


# ---- time ----------------------------------------------------------------------------------------


def _passed(draft: Draft) -> None:
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
        return channel.last is None and now - channel.idle_since_wall_ms >= limits.linger_ms
    return channel.final and now - channel.final_wall_ms >= limits.keep_ms


def _age(draft: Draft, lease: Lease) -> None:
    now, limits = draft.now, draft.own.limits
    if lease.state is LeaseState.OFFERED:
        if now.wall_ms > lease.terms.expires_at_ms + QUOTE_MARGIN_MS:
            lifecycle.stop(draft, lease, EndReason.QUOTE_EXPIRED)
        return
    if lease.awaits_money:
        _await(draft, lease)
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
        if exposure.given_up(draft.state, lease, now):
            why = "no claim of what is due came on chain, for too long"
            lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
            return
    offline = draft.state.offline_since_ms
    if offline is not None and lease.state in (LeaseState.ACTIVE, LeaseState.PAUSED):
        if now.boot_ms - offline > limits.resume_window_ms:
            why = f"the market was out of reach for {limits.resume_window_ms} ms"
            lifecycle.stop(draft, lease, EndReason.PROVIDER_LOST, why)
            return
    lifecycle.close_if_done(draft, lease)


def _await(draft: Draft, lease: Lease) -> None:
    """Signed, and waiting for its channel, its money or its draft: not for ever, and only a moment
    while nothing is seen of the money of somebody who never paid.
    """
    channel, limits = draft.channel_of(lease), draft.own.limits
    if channel is not None and channel.stage is ChannelStage.OPEN:
        _fund(draft, lease, channel)
        lease = draft.state.leases.get(lease.id, lease)
    if not lease.awaits_money:
        return
    seen = channel is not None and (
        channel.expected
        or channel.paid > 0
        or (
            channel.stage is ChannelStage.OPEN
            and _left(draft, lease, channel) >= lease.terms.ceiling
        )
    )
    unseen = limits.fund_wait_ms if draft.own.offer.magic == DEVNET_MAGIC else limits.fund_blind_ms
    most = limits.fund_seen_ms if seen else unseen
    if draft.now.wall_ms - lease.signed_wall_ms > most:
        why = f"no channel that carries the ceiling within {most} ms"
        if (
            channel is not None
            and channel.stage is ChannelStage.OPEN
            and not debt.may_begin(draft.state, lease, draft.now)
        ):
            why = f"what runs here did not pay enough for one more lease within {most} ms"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)


def _abandoned(draft: Draft, lease: Lease) -> bool:
    """Frozen over a channel that a rollback took away: its devices are not kept for ever."""
    channel = draft.channel_of(lease)
    gone = channel is not None and channel.limit <= 0
    frozen_ms = lease.frozen_ms - lease.paused_ms
    return gone and lease.pause is PauseCause.DEPTH and frozen_ms > GONE_MS
