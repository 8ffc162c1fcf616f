"""What the market says of leases that a router pays: hops, proposals and payments.  Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from adapter.core import direct_ports, lifecycle, routed
from adapter.core.admission import Declined
from adapter.core.answers.funding import fund
from adapter.core.draft import Draft
from adapter.core.events import Watch
from adapter.core.hop import MOST_HOPS, Hop
from adapter.core.route_admission import check
from adapter.core.state import Channel, Lease
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.channel import Consts
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.route import payee
from marketplace.domain.money.route.hop import HopForked, Payment
from marketplace.domain.money.route.leaves import unpack
from marketplace.domain.money.route.statement import Statement
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.protocol.hop_frames import payment_of
from marketplace.domain.work.lease import EndReason, LeaseEvent

_TX: Final = re.compile("[0-9a-f]{64}")
_MOST_INDEX: Final = 65_535


class HopUnknown(Refusal):
    """A payment over a channel that is no router's hop to this adapter, or that is over."""

    code = "HOP_UNKNOWN"
    remedy = "say which hops are open, and pay over one of them"


def opened(draft: Draft, said: wire.HopOpened) -> None:
    """A router has a hop to us, it says: we look for it. Nothing is believed but what the chain
    then shows.
    """
    known = draft.state.channels.get(said.session_vk)
    if known is not None and known.hop is not None and _same(known, said):
        draft.effects.append(Watch(said.session_vk))
        return
    why = _not_followed(draft, known, said)
    if why:
        draft.alarm("HOP_REFUSED", f"hop {said.session_vk.hex()[:16]} is not followed: {why}")
        return
    offer = draft.own.offer
    consts = Consts(
        said.session_vk, offer.adapter_vkh, offer.payout, said.owner, offer.close_period_ms,
        offer.fee_bps,
    )  # fmt: skip
    hop = Hop(consts, offer.magic, offer.asset, said.index)
    lifecycle.watch(draft, Channel(said.session_vk, b"", said.tx, hop=hop))


def _same(known: Channel, said: wire.HopOpened) -> bool:
    hop = known.hop
    here = hop is not None and (hop.owner, known.origin, hop.index)
    return here == (said.owner, said.tx, said.index)


def _not_followed(draft: Draft, known: Channel | None, said: wire.HopOpened) -> str:
    """Why a hop is not looked for; empty if it is."""
    state = draft.state
    lengths = (len(said.session_vk), len(said.owner))
    if lengths != (32, 28) or not _TX.fullmatch(said.tx) or not 0 <= said.index <= _MOST_INDEX:
        return "its key, owner or output is none"
    if said.session_vk in state.past.keys:
        return "its key was used and is over"
    if routed.named(state, said.session_vk) or (known and known.hop is None):
        return "its key is a lease's"
    if known is not None and (known.used or known.stage is not ChannelStage.OPENING):
        return "its key names another hop already"
    others = (one for vk, one in state.channels.items() if one.hop and vk != said.session_vk)
    if sum(one.stage is not ChannelStage.ENDED for one in others) >= MOST_HOPS:
        return f"{MOST_HOPS} hops are followed already"
    return ""


def proposed(draft: Draft, asked: wire.RouteProposed) -> None:
    """Its terms are signed once its reserve is booked; the same question has the same answer."""
    known = draft.state.leases.get(asked.lease)
    if known is not None and known.routed is not None and known.signed.body == asked.terms:
        draft.send(wire.LeaseAccepted(known.id, known.signed))
        return
    plan = check(draft.state, draft.own, asked, draft.now)
    if isinstance(plan, Declined):
        draft.send(wire.LeaseDeclined(asked.lease, plan.code, plan.message, plan.remedy))
        if asked.hop in draft.state.channels:
            draft.effects.append(Watch(asked.hop))  # what is not seen may be there by now
        return
    routed.kept(draft, plan.hop, plan.book)
    signed = SignedTerms(asked.terms, draft.own.signer.sign(asked.terms))
    lease = Lease(
        asked.lease, asked.job, signed, plan.terms, plan.grant, routed=plan.routed,
        direct=direct_ports.allotted(draft.state, draft.own, asked.job),
    )  # fmt: skip
    draft.send(wire.LeaseAccepted(draft.put(lease).id, signed))


def both_signed(draft: Draft, lease: Lease, message: wire.LeaseSigned) -> None:
    """The consumer agreed, and its router booked the lease: it begins once that has signed, too."""
    signed = message.terms
    if signed.body != lease.signed.body:
        draft.alarm("TERMS_REFUSED", f"lease {lease.id}: other terms came back than were signed")
        return
    try:
        either(signed).verify()
    except Refusal as refusal:
        draft.alarm(refusal.code, f"lease {lease.id}: {refusal.message}")
        return
    lease = replace(
        lifecycle.step(lease, LeaseEvent.SIGNED),
        signed=signed,
        secrets=message.secrets,
        signed_wall_ms=draft.now.wall_ms,
    )
    draft.put(lease)
    channel = draft.channel_of(lease)
    if channel is None or channel.stage is not ChannelStage.OPEN:
        why = "the router's hop is closing or over"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_CLOSING, why)
        return
    channel = replace(channel, leases=(*channel.leases, lease.id), idle_since_wall_ms=0)
    lifecycle.watch(draft, channel)
    fund(draft, lease, channel)


def paid(draft: Draft, message: wire.HopPaid) -> None:
    """A payment that holds is on disk before its Paid leaves; one that does not changes nothing,
    and is asked for with all its leaves.
    """
    vk = message.voucher.session_vk
    channel, n = draft.state.channels.get(vk), 0
    try:
        if channel is None or channel.hop is None or channel.stage is ChannelStage.ENDED:
            raise HopUnknown("no hop of that key is followed here")
        if channel.hop.fork is not None:
            raise HopForked("its payments contradicted each other before")
        payment = payment_of(message, channel.hop.last)
        n = payment.signed.statement.n
        _taken(draft, channel, payment)
    except Refusal as refusal:
        if not _partial(message):
            draft.alarm(refusal.code, f"payment over hop {vk.hex()[:16]}: {refusal.message}")
        draft.send(wire.HopRefused(vk, n, refusal.code, refusal.message), durable=False)


def _partial(message: wire.HopPaid) -> bool:
    """Whether it says less than all of its leaves: then one that came before may be missing."""
    try:
        return len(unpack(message.leaves)) < Statement.decode(message.statement).count
    except Malformed:
        return False


def _taken(draft: Draft, channel: Channel, payment: Payment) -> None:
    hop = channel.hop
    assert hop is not None
    book = hop.book(channel.capacity)
    try:
        done = payee.decide(book, payment, draft.own.signer)
    except HopForked:
        forked = draft.put_channel(replace(channel, hop=replace(hop, fork=payment)))
        _stopped(draft, forked)
        raise
    if done.state == book:
        return  # known, or older
    channel = routed.kept(draft, channel, done.state)
    routed.say(draft, done.effects)
    for lease in list(draft.state.on(channel.session_vk)):
        left = tuple(total for total in lease.unpaid if total > routed.signed(lease, channel))
        if left != lease.unpaid:
            lease = draft.put(replace(lease, unpaid=left))
        if lease.awaits_money and channel.stage is ChannelStage.OPEN:
            fund(draft, lease, channel)
    lifecycle.reconsider(draft, channel.session_vk)


def _stopped(draft: Draft, channel: Channel) -> None:
    """A hop that contradicted itself pays nothing more: its leases end, and what is due is taken
    with its end.
    """
    draft.put_channel(replace(channel, end_asked=True))
    for lease in list(draft.state.on(channel.session_vk)):
        why = "HOP_FORKED: its router signed two payments that contradict each other"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)
    lifecycle.settle_if_due(draft, channel.session_vk)


def said_again(draft: Draft) -> None:
    """The market hears us again: what was paid for leases that go on, the same bytes."""
    going = {lease.id for lease in draft.state.leases.values() if lease.routed is not None}
    for channel in draft.state.channels.values():
        if channel.hop is None or not going:
            continue
        mine = {t: one for t, one in channel.hop.leases.items() if one.lease in going}
        book = replace(channel.hop.book(channel.capacity), leases=mine)
        routed.say(draft, payee.resume(book, draft.own.signer), durable=False)
