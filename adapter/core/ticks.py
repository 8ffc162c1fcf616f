"""Readings to receipts, vouchers to trust: the arithmetic of a tick, without IO.

A receipt's total never exceeds the terms' ceiling, what the channel can pay at its depth, what a
hop keeps for the lease, nor the lease's own time: what was delivered beyond is the adapter's gift,
so it stops in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from adapter.core import clusters, debt, routed
from adapter.core.debt import TICKS_BEYOND
from adapter.core.draft import Draft
from adapter.core.state import Channel, Lease, Limits, Now, PauseCause, State
from marketplace.domain.metering.meter import Meter, integrate
from marketplace.domain.metering.reading import Reading
from marketplace.domain.metering.usage import usage
from marketplace.domain.money.receipt import GENESIS, Lost, Receipt, SignedReceipt, most_unit_ms
from marketplace.domain.money.voucher import Voucher, VoucherRefused
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed

NS_PER_MS: Final = 1_000_000
LATE_MS: Final = 600_000
"""How long after its expiry a renewal that was signed in time may come."""


def fold(meters: Iterable[Meter], readings: Iterable[Reading]) -> tuple[Meter, ...]:
    """The meters after *readings*, each by its own device."""
    by_device = {reading.device: reading for reading in readings}
    return tuple(
        integrate(meter, by_device[meter.device]) if meter.device in by_device else meter
        for meter in meters
    )


def affordable(lease: Lease, channel: Channel) -> int:
    """The largest unit_ms whose price neither the ceiling nor the channel's limit forbids."""
    money = max(0, routed.room(lease, channel, channel.limit))
    return ((money + 1) * 1_000_000_000 - 1) // lease.terms.rate_micro


def receipt(draft: Draft, lease: Lease, final: bool = False) -> Lease:
    """The next receipt, if there is something to say; the lease and its channel after it. Of a
    member that waits for its cluster none states more than the last did.
    """
    channel = draft.channel_of(lease)
    if channel is None or (lease.last is not None and lease.last.final):
        return lease
    terms, totals = lease.terms, usage(lease.meters)
    before = lease.last.unit_ms_total if lease.last else 0
    t0 = lease.last.t1_ms if lease.last else 0
    t1 = max(t0, _elapsed_ms(lease.meters, lease), sum(lease.lost_before.values()))
    lost = lost_since(lease, t1 - t0)
    fits = most_unit_ms(t0, t1, sum(part.ms for part in lost), terms.units_milli, before)
    units = max(before, min(totals.unit_ms(terms.resource), affordable(lease, channel), fits))
    units = before if clusters.waits(lease) else units
    if units == before and not final:
        return lease
    lease_owed = owed(units, terms.rate_micro)
    chain = channel.last if lease.routed is None else lease.last
    chain_owed = chain.channel_owed if chain else 0
    body = Receipt(
        session_vk=terms.session_vk,
        lease=lease.id,
        seq=chain.seq + 1 if chain else 1,
        t0_ms=t0,
        t1_ms=t1,
        wall_ms=draft.now.wall_ms,
        device=terms.devices,
        resource=terms.resource,
        unit_ms_total=units,
        lease_owed=lease_owed,
        channel_owed=chain_owed + lease_owed - lease.owed,
        lost=lost,
        readings=totals.root,
        previous=chain.hash if chain else GENESIS,
        final=final,
    )
    signed = SignedReceipt.sign(body, draft.own.signer)
    waits = body.channel_owed > routed.signed(lease, channel)
    unpaid = (*lease.unpaid, body.channel_owed) if waits else lease.unpaid
    draft.ticks.append(signed)
    draft.send(wire.ReceiptSent(lease.id, signed))
    if lease.routed is None:
        draft.put_channel(replace(channel, last=body))
    else:
        routed.owes(draft, lease, lease_owed)
    told = {part.cause: lease.lost_told.get(part.cause, 0) + part.ms for part in lost}
    lost_told = {**lease.lost_told, **told}
    return draft.put(replace(lease, last=body, unpaid=unpaid, lost_told=lost_told))


def lost_since(lease: Lease, room_ms: int) -> tuple[Lost, ...]:
    """What the last receipt had not told of :func:`lost_total`, *room_ms* at most: what several
    devices' readings are apart, or a reboot left without a time, is told later or never."""
    found: list[Lost] = []
    for cause, ms in sorted(lost_total(lease).items()):
        fresh = min(ms - lease.lost_told.get(cause, 0), room_ms)
        if fresh > 0:
            found.append(Lost(cause, fresh))
            room_ms -= fresh
    return tuple(found)


def lost_total(lease: Lease) -> dict[str, int]:
    """Unbilled milliseconds by cause since the lease began: before the start, then the meters'.

    Each device counts by its weight, as in the bill: one of two that was lost for a second is half
    a second of the lease, and what was billed and what was lost are never more than its time.
    """
    weights = sum(meter.weight for meter in lease.meters)
    heavy: dict[str, int] = {}
    for meter in lease.meters:
        for cause, ns in meter.lost_ns:
            heavy[cause.value] = heavy.get(cause.value, 0) + ns * meter.weight
    lost = dict(lease.lost_before)
    for cause, weight_ns in heavy.items():
        lost[cause] = lost.get(cause, 0) + weight_ns // (weights * NS_PER_MS)
    return lost


def _elapsed_ms(meters: tuple[Meter, ...], lease: Lease) -> int:
    """Boot time since the lease began, at its newest reading of the same boot."""
    marks = [
        meter.last.at_ns
        for meter in meters
        if meter.last is not None and meter.last.boot_id == lease.boot_id
    ]
    return (max(marks) - lease.begun_ns) // NS_PER_MS if marks else 0


def ran_ms(lease: Lease, now: Now) -> int:
    """How long it ran of what was agreed: without its pauses, and without what it waited for its
    cluster.
    """
    return now.boot_ms - lease.started_at_ms - lease.frozen_ms - clusters.waited_ms(lease)


def overdue(state: State, lease: Lease, channel: Channel) -> bool:
    """True when the lease was served as far as it may be beyond the last voucher, or its consumer
    with all of its leases was: of one that waits for its cluster, which costs nothing, only what it
    owes itself is asked for.
    """
    if len(lease.unpaid) >= TICKS_BEYOND:
        return True
    return not clusters.waits(lease) and debt.beyond(state, lease)


def too_young(state: State, lease: Lease, channel: Channel) -> bool:
    """True when another tick, beside one of each other lease that runs on it, would rely on more
    than the channel's depth allows yet.
    """
    beside = sum(
        one.terms.tick_owed() for one in state.on(channel.session_vk)
        if one.id != lease.id and one.signed_for and not one.exited and one.pause is None
    )  # fmt: skip
    return channel.limit < channel.capacity and (
        channel.relied + beside + lease.terms.tick_owed() > channel.limit
    )


def exhausted(lease: Lease, channel: Channel) -> bool:
    """True when another full tick does not fit under the ceiling or into the channel, or into what
    a hop keeps for it.
    """
    return lease.owed + lease.terms.tick_owed() > routed.room(lease, channel, channel.capacity)


def awaits_money(state: State, session_vk: bytes, now: Now) -> bool:
    """Whether a signed lease waits for that channel, or for more money in it: a renewed one runs on
    what its consumer is paying in meanwhile. (One who does not is looked for no longer than a
    renewal's signature.)
    """
    channel = state.channels.get(session_vk)
    return any(
        one.awaits_money
        or (
            channel is not None
            and one.runs
            and one.routed is None
            and one.terms.ceiling - one.owed > channel.capacity - channel.owed
            and now.wall_ms <= one.terms.expires_at_ms + LATE_MS
        )
        for one in state.on(session_vk)
    )


def take_voucher(draft: Draft, voucher: Voucher) -> Channel | None:
    """The channel after a greater voucher; None for a repeated or lower one, which is void.

    :class:`VoucherRefused` for one that is forged, of a channel that is not ours, or above what
    the channel can pay: it changes nothing and resumes nothing.
    """
    channel = draft.state.channels.get(voucher.session_vk)
    if channel is None:
        raise VoucherRefused("the voucher is for a channel that does not pay this adapter")
    if channel.hop is not None:
        raise VoucherRefused("the voucher is a hop's: it comes with the statement of what it pays")
    if voucher.cumulative <= channel.paid:
        return None
    if voucher.cumulative > channel.capacity:
        raise VoucherRefused(
            f"{voucher.cumulative} lovelace is above the channel's capacity of {channel.capacity}"
        )
    voucher.verify()
    channel = draft.put_channel(replace(channel, voucher=voucher))
    for lease in draft.state.on(voucher.session_vk):
        unpaid = tuple(total for total in lease.unpaid if total > channel.paid)
        if unpaid != lease.unpaid:
            draft.put(replace(lease, unpaid=unpaid))
    return channel


def blind(state: State, lease: Lease, now: Now, limits: Limits) -> bool:
    """True when what was seen of the lease's channel is relied upon no longer, whatever other
    channels do: the chain said nothing of it for half the time that a Close takes, or shows for
    *unread_ms* something that cannot be read, which no honest step does.
    """
    return unseen(state, lease.channel, lease.terms.close_period_ms, now, limits)


def unseen(state: State, session_vk: bytes, close_period_ms: int, now: Now, limits: Limits) -> bool:
    """The same of a channel that closes within *close_period_ms*."""
    sight = state.sight(session_vk)
    if sight.unread_since_ms is not None and now.boot_ms - sight.unread_since_ms > limits.unread_ms:
        return True
    return (now.boot_ms - sight.seen_ms) * 2 > close_period_ms


def pause_cause(
    state: State, lease: Lease, channel: Channel, now: Now, limits: Limits
) -> PauseCause | None:
    """Why the workload must be frozen now, or None."""
    if overdue(state, lease, channel):
        return PauseCause.UNPAID if state.offline_since_ms is None else PauseCause.OFFLINE
    if channel.starved:
        return PauseCause.EXPOSED
    if blind(state, lease, now, limits):
        return PauseCause.BLIND
    if too_young(state, lease, channel):
        return PauseCause.DEPTH
    return PauseCause.HELD if clusters.held(lease) else None
