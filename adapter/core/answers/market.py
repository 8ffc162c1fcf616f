"""What the market says: proposals, signatures, vouchers, ends, and the link itself.  Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from adapter.core import direct_ports, lifecycle
from adapter.core.admission import Declined, check
from adapter.core.answers import cluster, opening, renewal, route
from adapter.core.answers.chain import tell_settled
from adapter.core.answers.funding import fund
from adapter.core.draft import Draft
from adapter.core.state import (
    Channel,
    Lease,
    PauseCause,
)
from adapter.core.ticks import take_voucher
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.work.lease import EndReason, LeaseEvent, LeaseState

_TX: Final = re.compile("[0-9a-f]{64}")


def heard(draft: Draft, message: wire.Message) -> None:
    """A message of the market; what concerns blobs, commands and streams changes nothing here."""
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
        case wire.HopOpened():
            route.opened(draft, message)
        case wire.RouteProposed():
            route.proposed(draft, message)
        case wire.HopPaid():
            route.paid(draft, message)
        case wire.OrderSent():
            cluster.ordered(draft, message)
        case wire.EndSent(end):
            _end(draft, end)
        case wire.KeepSent(keep):
            _keep(draft, keep)
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
    if known is not None and known.state in renewal.SERVED:
        renewal.proposed(draft, known, message)
        return
    plan = check(draft.state, draft.own, message, draft.now)
    if isinstance(plan, Declined):
        draft.send(wire.LeaseDeclined(message.lease, plan.code, plan.message, plan.remedy))
        return
    signed = SignedTerms(message.terms, draft.own.signer.sign(message.terms))
    lease = Lease(
        message.lease, message.job, signed, plan.terms, plan.grant,
        direct=direct_ports.allotted(draft.state, draft.own, message.job),
    )  # fmt: skip
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
        renewal.signed(draft, lease, message)
        return
    if lease.routed is not None:
        route.both_signed(draft, lease, message)
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
    if channel is None and not _TX.fullmatch(message.channel_tx):
        lifecycle.stop(
            draft, lease, EndReason.CHANNEL_REFUSED, "its open transaction is no transaction's id"
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
    if message.open_tx and channel.stage is ChannelStage.OPENING:
        opening.handed(draft, lease, message.open_tx)
    if channel.stage is ChannelStage.OPEN:
        fund(draft, lease, channel)
    elif channel.stage is not ChannelStage.OPENING:
        lifecycle.stop(draft, lease, EndReason.CHANNEL_CLOSING, "the channel is closing or over")


def _other_channel(known: Channel, lease: Lease, channel_tx: str) -> bool:
    """A session key is one channel's for ever: the same open transaction, the same constants."""
    differs = known.agreed.consts() != lease.terms.consts()
    return known.hop is not None or differs or bool(channel_tx and channel_tx != known.origin)


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
        tell_settled(draft, channel)
        return
    draft.put_channel(replace(channel, end_asked=True))
    for lease in list(draft.state.on(end.session_vk)):
        lifecycle.stop(draft, lease, EndReason.CANCELLED, "the consumer ended the channel")
    lifecycle.settle_if_due(draft, end.session_vk)


def _keep(draft: Draft, keep: Keep) -> None:
    """The longest that was ever ordered stands: an old order that comes again changes nothing."""
    channel = draft.state.channels.get(keep.session_vk)
    if channel is None or keep.keep_ms <= channel.keep_ms:
        return
    try:
        keep.verify()
    except Refusal as refusal:
        draft.alarm(refusal.code, refusal.message)
        return
    draft.put_channel(replace(channel, keep_ms=keep.keep_ms))


def link_up(draft: Draft, orders: bool) -> None:
    """The market hears us again: pauses count as unpaid, and it is told what we offer and hold."""
    draft.state = replace(draft.state, offline_since_ms=None, orders=orders)
    for lease in list(draft.state.leases.values()):
        if lease.pause is PauseCause.OFFLINE:
            lease = lifecycle.count_pause(draft, lease)
            draft.put(replace(lease, pause=PauseCause.UNPAID), durable=False)
    draft.send(wire.OfferPosted(draft.own.offer, draft.state.draining), durable=False)
    draft.send(wire.LeasesHeld(sorted(draft.state.leases)), durable=False)
    route.said_again(draft)
    cluster.said_again(draft)
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


def link_down(draft: Draft) -> None:
    """The market does not hear us: from now on a pause is nobody's debt."""
    if draft.state.offline_since_ms is not None:
        return
    draft.state = replace(draft.state, offline_since_ms=draft.now.boot_ms)
    for lease in list(draft.state.leases.values()):
        if lease.pause is PauseCause.UNPAID:
            lease = lifecycle.count_pause(draft, lease)
            draft.put(replace(lease, pause=PauseCause.OFFLINE), durable=False)
