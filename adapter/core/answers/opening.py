"""An open transaction that its payer handed over: examined, served upon, or void.  Pure."""

from __future__ import annotations

from dataclasses import replace

from adapter.core import before_block, lifecycle
from adapter.core.admission import Declined
from adapter.core.answers.funding import fund
from adapter.core.draft import Draft
from adapter.core.events import Examine, OpenNotTaken, OpenTaken, OpenVoid
from adapter.core.state import Channel, Lease, Sight
from marketplace.domain.money.channel_stage import ChannelStage, after
from marketplace.domain.money.terms import Terms
from marketplace.domain.work.lease import EndReason


def handed(draft: Draft, lease: Lease, tx: bytes) -> None:
    """Bytes that came with the signed terms: worth a look only if an allowance is left."""
    marks = frozenset({lease.terms.consumer_vkh, bytes.fromhex(lease.channel_tx)})
    found = before_block.allowance(draft.state, draft.own, lease.terms, marks, draft.now)
    if isinstance(found, Declined):
        _waits(draft, lease.channel, found)
    else:
        draft.effects.append(Examine(lease.channel, tx))


def taken(draft: Draft, event: OpenTaken) -> None:
    """Its leases begin now, up to an allowance that is booked first."""
    channel = _unopened(draft, event.session_vk)
    if channel is None:
        return
    terms = Terms.decode(channel.terms)
    granted = before_block.allowance(draft.state, draft.own, terms, event.marks, draft.now)
    if isinstance(granted, Declined):
        _waits(draft, event.session_vk, granted)
        return
    channel = before_block.begin(channel, granted, event.marks)
    channel = replace(
        channel, stage=after(channel.stage, ChannelStage.OPEN), capacity=event.capacity
    )
    draft.put_channel(channel)
    draft.state = draft.state.with_sight(event.session_vk, Sight(draft.now.boot_ms))
    for lease in list(draft.state.on(event.session_vk)):
        if lease.awaits_money:
            fund(draft, lease, channel)


def not_taken(draft: Draft, event: OpenNotTaken) -> None:
    """It goes on as if nothing had been handed over."""
    if _unopened(draft, event.session_vk) is not None:
        _waits(draft, event.session_vk, Declined(event.code, event.message))


def void(draft: Draft, event: OpenVoid) -> None:
    """What was served on it is lost; its leases end. Should a rollback let it be included after
    all, it is finished like any channel whose end was undone.
    """
    channel = draft.state.channels.get(event.session_vk)
    if channel is None or channel.young is None or channel.young.void:
        return
    name = channel.session_vk.hex()[:16]
    draft.alarm("OPEN_VOID", f"channel {name}: {event.message}")
    channel = before_block.lose(draft, channel)
    stage = after(channel.stage, ChannelStage.ENDED)
    draft.put_channel(replace(channel, stage=stage, settling=False))
    for lease in list(draft.state.on(event.session_vk)):
        why = f"OPEN_VOID: {event.message}"
        lifecycle.stop(draft, lease, EndReason.CHANNEL_REFUSED, why)


def _unopened(draft: Draft, session_vk: bytes) -> Channel | None:
    channel = draft.state.channels.get(session_vk)
    return channel if channel is not None and channel.stage is ChannelStage.OPENING else None


def _waits(draft: Draft, session_vk: bytes, why: Declined) -> None:
    """Tell the consumer why its lease begins with a block, as those of before did."""
    for lease in draft.state.on(session_vk):
        if lease.awaits_money:
            draft.progress(
                lease.id, "OPEN_WAITS", durable=False, code=why.code, message=why.message
            )
