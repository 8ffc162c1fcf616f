"""How a lease begins, pauses and ends at the provider.  Pure; a part of ``decide``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core import clusters, debt, routed, volumes
from adapter.core.debt import TICKS_BEYOND
from adapter.core.draft import Draft
from adapter.core.events import Collected, Exited, Failed, Preparing, Settle, Started, Watch
from adapter.core.state import Channel, Lease, PauseCause
from adapter.core.ticks import exhausted, fold, overdue, pause_cause, receipt
from adapter.core.wish import WORKLOAD, Wish, WishEvent
from marketplace.domain.metering.kinds import CORE, DISK, GPU
from marketplace.domain.metering.meter import Meter
from marketplace.domain.metering.reading import Cause, Phase
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.protocol import wire
from marketplace.domain.supply.grant import Grant
from marketplace.domain.work.lease import LEASE, EndReason, LeaseEvent, LeaseState
from marketplace.domain.work.output import SignedOutput, terms_hash
from marketplace.domain.work.workload import ExitReason

CORES: Final = "cores"
VOLUME: Final = "volume"

_REASONS: Final = {
    ExitReason.COMPLETED: EndReason.COMPLETED,
    ExitReason.CRASHED: EndReason.FAILED,
    ExitReason.OUT_OF_MEMORY: EndReason.OUT_OF_MEMORY,
    ExitReason.DISK_LIMIT: EndReason.DISK_LIMIT,
    ExitReason.STOPPED: EndReason.CANCELLED,
    ExitReason.START_FAILED: EndReason.START_FAILED,
    ExitReason.PROVIDER_FAULT: EndReason.PROVIDER_FAULT,
    ExitReason.LOST: EndReason.PROVIDER_FAULT,
}


def step(lease: Lease, event: LeaseEvent) -> Lease:
    """The lease after *event*, by the market's own table."""
    return replace(lease, state=LEASE.step(lease.state, event))


def wish(lease: Lease, event: WishEvent) -> Lease:
    """The lease whose workload shall be elsewhere after *event*, by the workload's table."""
    return replace(lease, wish=WORKLOAD.step(lease.wish, event))


def new_meters(grant: Grant) -> tuple[Meter, ...]:
    """Fresh accounts: one for each device, or one for the cores, or for the disk."""
    if grant.resource == DISK.name:
        return (Meter(DISK.name, VOLUME, grant.units_milli),)
    if grant.resource == CORE.name:
        return (Meter(CORE.name, CORES, grant.cpu_milli),)
    return tuple(Meter(GPU.name, uuid, grant.share) for uuid in grant.gpus)


# ---- beginning -----------------------------------------------------------------------------------


def begin(draft: Draft, lease: Lease) -> None:
    """The channel is there: from now on the lease's time counts (unbilled until it runs)."""
    lease = replace(
        wish(lease, WishEvent.BEGIN),
        begun_ns=draft.now.boot_ms * 1_000_000,
        boot_id=draft.now.boot_id,
    )
    draft.progress(draft.put(lease).id, "CHANNEL_SEEN")
    draft.drive(lease)


def preparing(draft: Draft, lease: Lease, event: Preparing) -> None:
    """The pull goes on, or is done."""
    if not event.starting:
        facts = {"done": event.done, "total": event.total}
        draft.progress(lease.id, "PULLING", durable=False, **facts)
        return
    lost = {**lease.lost_before, Cause.PULLING.value: _since_begun(draft, lease)}
    draft.put(replace(lease, lost_before=lost))
    draft.progress(lease.id, "STARTING", durable=False)


def started(draft: Draft, lease: Lease, event: Started) -> None:
    """The workload runs; or it was found again, which changes nothing but the handle."""
    if lease.exited:
        return
    if lease.handle is not None:
        draft.put(replace(lease, handle=event.handle))
        return
    lost = dict(lease.lost_before)
    pulled = lost.get(Cause.PULLING.value, 0)
    lost[Cause.STARTING.value] = max(0, _since_begun(draft, lease) - pulled)
    lease = replace(
        lease,
        handle=event.handle,
        secrets={},
        started_at_ms=draft.now.boot_ms,
        lost_before=lost,
    )
    lease = replace(lease, meters=new_meters(lease.grant))
    if lease.state is LeaseState.FUNDED:
        lease = step(lease, LeaseEvent.STARTED)
        draft.progress(lease.id, "STARTED", workload=event.handle.id, runtime=event.handle.runtime)
    obey(draft, draft.put(lease))
    clusters.meet(draft, lease)


def _since_begun(draft: Draft, lease: Lease) -> int:
    return max(0, draft.now.boot_ms - lease.begun_ns // 1_000_000)


# ---- pausing -------------------------------------------------------------------------------------


def pause(draft: Draft, lease: Lease, cause: PauseCause) -> Lease:
    """Freeze it: nothing is billed until it is resumed.

    The meters are marked at once: killed after the freeze, an adapter that comes back to a voucher
    would otherwise see one healthy reading before it and one after, and bill what lay between.
    """
    lease = replace(
        step(wish(lease, WishEvent.PAUSE), LeaseEvent.PAUSE),
        pause=cause,
        paused_at_ms=draft.now.boot_ms,
        meters=tuple(_paused(meter) for meter in lease.meters),
    )
    draft.progress(lease.id, "PAUSED", code=cause.value)
    draft.drive(lease)
    return draft.put(lease)


def _paused(meter: Meter) -> Meter:
    last = meter.last
    if last is None or last.phase is not Phase.RUNNING:
        return meter
    return replace(meter, last=replace(last, phase=Phase.PAUSED))


def resume(draft: Draft, lease: Lease) -> Lease:
    """Let it go on."""
    lease = count_pause(draft, lease)
    lease = replace(step(wish(lease, WishEvent.RESUME), LeaseEvent.RESUME), pause=None)
    draft.progress(lease.id, "RESUMED")
    draft.drive(lease)
    return draft.put(lease)


def count_pause(draft: Draft, lease: Lease) -> Lease:
    """Put the pause's time so far under its cause: only UNPAID counts against the limit, and a
    hold's time is the meters' (``clusters``).
    """
    spent = max(0, draft.now.boot_ms - lease.paused_at_ms)
    counted = spent if lease.pause is PauseCause.UNPAID else 0
    return draft.put(
        replace(
            lease,
            paused_at_ms=draft.now.boot_ms,
            paused_ms=lease.paused_ms + counted,
            frozen_ms=lease.frozen_ms + (0 if lease.pause is PauseCause.HELD else spent),
        ),
        durable=False,
    )


def reconsider(draft: Draft, session_vk: bytes) -> None:
    """After a voucher, or more depth: let everything go on that may, on its consumer's other
    channels too.
    """
    channel = draft.state.channels.get(session_vk)
    if channel is None:
        return
    for lease in _alike(draft, channel):
        pays = draft.channel_of(lease)
        if pays is not None and lease.state is LeaseState.PAUSED:
            if not overdue(draft.state, lease, pays):
                thaw(draft, lease, pays)
        if lease.channel == session_vk:
            close_if_done(draft, lease)
    settle_if_due(draft, session_vk)


def _alike(draft: Draft, channel: Channel) -> list[Lease]:
    """The leases that what was paid here may let go on: the consumer's, or the hop's own."""
    if channel.hop is not None:
        return list(draft.state.on(channel.session_vk))
    consumer = Terms.decode(channel.terms).consumer_vkh
    return [one for one in draft.state.leases.values() if one.terms.consumer_vkh == consumer]


def obey(draft: Draft, lease: Lease) -> None:
    """Freeze it where its consumer holds it, or let it go on; a pause for another cause stays."""
    channel = draft.channel_of(lease)
    if channel is None:
        return
    if lease.state is LeaseState.PAUSED:
        thaw(draft, lease, channel)
    elif lease.state is LeaseState.ACTIVE and clusters.held(lease):
        cause = pause_cause(draft.state, lease, channel, draft.now, draft.own.limits)
        pause(draft, lease, cause or PauseCause.HELD)


def thaw(draft: Draft, lease: Lease, channel: Channel) -> None:
    """Go on, unless the ceiling is met, or there is a cause to pause: then it is that one."""
    if exhausted(lease, channel):
        stop(draft, lease, EndReason.CEILING, "the ceiling is met")
        return
    cause = pause_cause(draft.state, lease, channel, draft.now, draft.own.limits)
    if cause is None:
        resume(draft, lease)
    elif lease.pause is not cause:
        draft.put(replace(count_pause(draft, lease), pause=cause))


# ---- ending --------------------------------------------------------------------------------------


def stop(draft: Draft, lease: Lease, reason: EndReason, message: str = "") -> None:
    """End it, for *reason*: the first reason that was given stands."""
    if lease.state is LeaseState.OFFERED:
        routed.release(draft, lease)
        draft.drop(step(lease, LeaseEvent.STOP))
        return
    if lease.reason is not None or lease.exited:
        return
    if reason is EndReason.UNPAID:
        debt.strike(draft, routed.payer(draft.state, lease))
    if reason is EndReason.OFF_TIP and lease.routed is None:
        debt.strike(draft, lease.terms.consumer_vkh)  # it had a machine for nothing
    lease = replace(lease, reason=reason, message=message)
    if lease.wish is Wish.WAIT:
        finish(draft, lease, reason, message)
        return
    if lease.state is not LeaseState.ENDING:
        lease = step(lease, LeaseEvent.STOP)
    hard = reason in (EndReason.UNPAID, EndReason.CHANNEL_CLOSING, EndReason.CHANNEL_REFUSED)
    lease = replace(wish(lease, WishEvent.STOP), pause=None, hard=hard)
    draft.progress(lease.id, "STOPPING", reason=reason.value, message=message or None)
    draft.drive(draft.put(lease))
    _leave(draft, lease)


def _leave(draft: Draft, volume: Lease) -> None:
    """What mounts a volume ends with it."""
    for one in volumes.mounting(draft.state.leases.values(), volume.id):
        stop(draft, one, EndReason.VOLUME_ENDED, f"volume {volume.id} ended")


def grace_ms(lease: Lease, own_ms: int) -> int:
    """How long a workload may take to end: nothing unpaid is served beyond two ticks."""
    if lease.hard:
        return 0
    if lease.reason is EndReason.CEILING:
        return min(own_ms, TICKS_BEYOND * lease.terms.tick_ms)
    return own_ms


def harden(draft: Draft, lease: Lease, channel: Channel) -> None:
    """A workload that is being stopped but not paid for has no grace left."""
    if not lease.hard and overdue(draft.state, lease, channel):
        draft.drive(draft.put(replace(lease, hard=True)))


def finish(
    draft: Draft, lease: Lease, reason: EndReason, message: str = "", exit_code: int | None = None
) -> None:
    """The workload is gone, or never was: say so, and state the last receipt."""
    if lease.exited:
        return
    ran = lease.handle is not None
    lease = replace(
        step(wish(lease, WishEvent.FINISHED), LeaseEvent.FINISHED),
        reason=reason,
        message=message,
        exit_code=exit_code,
        exited=True,
        removed=not ran and lease.wish is Wish.WAIT,
        secrets={},
        pause=None,
        final_wall_ms=draft.now.wall_ms,
    )
    draft.put(lease)
    if ran:  # before the end is told: what is left of the job's budget counts from this receipt
        lease = receipt(draft, lease, final=True)
    if clusters.for_nothing(lease, reason):
        debt.strike_once(draft, lease.terms.consumer_vkh)
    routed.release(draft, lease)
    _leave(draft, lease)
    draft.progress(
        lease.id, "FINISHED", reason=reason.value, message=message or None, exit_code=exit_code
    )
    if lease.wish is not Wish.WAIT:
        draft.drive(lease)
    close_if_done(draft, lease)
    settle_if_due(draft, lease.channel)


def exited(draft: Draft, lease: Lease, event: Exited) -> None:
    """The workload's own end, or the one that was asked for."""
    if lease.exited:
        return
    if lease.handle is not None and event.readings:
        lease = replace(lease, meters=fold(lease.meters, event.readings))
    by_runtime = _REASONS[event.status.reason or ExitReason.LOST]
    # A limit that the runtime met is the truth even while we were stopping for another reason.
    hard = (EndReason.OUT_OF_MEMORY, EndReason.DISK_LIMIT, EndReason.PROVIDER_FAULT)
    own = lease.reason if by_runtime not in hard else None
    finish(draft, lease, own or by_runtime, lease.message, event.status.times.exit_code)


def failed(draft: Draft, lease: Lease, event: Failed) -> None:
    """It could not be started: nothing is owed."""
    if lease.handle is None and not lease.exited:
        finish(draft, lease, lease.reason or event.reason, f"{event.code}: {event.message}")


def collected(draft: Draft, lease: Lease, event: Collected) -> None:
    """The outputs are safe: every trace of the workload may go."""
    if lease.wish is Wish.GONE:
        return
    if event.sha256:
        terms = terms_hash(lease.signed.body)
        named = (event.path, event.sha256, event.size)
        signed = SignedOutput.sign(draft.own.signer, terms, *named)
        draft.send(wire.OutputReady(lease.id, *named, signed.signature))
    draft.drive(draft.put(wish(lease, WishEvent.COLLECTED)))


def removed(draft: Draft, lease: Lease) -> None:
    """Its devices are free again."""
    close_if_done(draft, draft.put(replace(lease, removed=True)))


def close_if_done(draft: Draft, lease: Lease) -> None:
    """Forget a lease that is over and paid, or whose last voucher was waited for long enough."""
    lease = draft.state.leases.get(lease.id, lease)
    if not (lease.exited and lease.removed and lease.state is LeaseState.ENDING):
        return
    late = draft.now.wall_ms - lease.final_wall_ms >= draft.own.limits.final_wait_ms
    if lease.unpaid and not late:
        return
    if lease.unpaid:
        draft.alarm("UNPAID_END", f"lease {lease.id} ended with an unanswered receipt")
        channel = draft.channel_of(lease)
        owed = 0 if channel is None else routed.unpaid(lease, channel)
        if lease.reason is not EndReason.UNPAID and owed >= lease.terms.tick_owed():
            debt.strike(draft, routed.payer(draft.state, lease))
    draft.drop(step(lease, LeaseEvent.SETTLED))


def settle_if_due(draft: Draft, session_vk: bytes) -> None:
    """Finish a channel that its consumer ended, closed or left, once nothing runs on it."""
    channel = draft.state.channels.get(session_vk)
    live = (ChannelStage.OPEN, ChannelStage.CLOSING)
    if channel is None or channel.settling or channel.stage not in live:
        return
    leases = list(draft.state.on(session_vk))
    if any(not lease.exited for lease in leases):
        return
    if not _wanted(draft, channel, leases):
        return
    last_ms = max((lease.final_wall_ms for lease in leases), default=0)
    waited = draft.now.wall_ms - last_ms >= draft.own.limits.final_wait_ms
    short = channel.paid < channel.owed or any(one.routed and one.unpaid for one in leases)
    if short and leases and not waited:
        return
    draft.put_channel(replace(channel, settling=True))
    draft.effects.append(Settle(session_vk))


def _wanted(draft: Draft, channel: Channel, leases: list[Lease]) -> bool:
    if channel.end_asked or channel.stage is ChannelStage.CLOSING:
        return True
    if leases or not channel.idle_since_wall_ms:
        return False
    idle_ms, limits = draft.now.wall_ms - channel.idle_since_wall_ms, draft.own.limits
    if channel.hop is not None and draft.state.draining:
        return idle_ms >= limits.linger_ms  # whoever leaves ends it: no consumer asks for that
    if channel.keep_ms:
        return idle_ms >= min(channel.keep_ms, limits.keep_channel_ms)
    return idle_ms >= limits.linger_ms and channel.unclaimed > 0


def watch(draft: Draft, channel: Channel) -> None:
    """Follow the channel on chain."""
    draft.put_channel(channel)
    draft.effects.append(Watch(channel.session_vk))


def phase_of(lease: Lease, running: bool) -> Phase:
    """What the meter shall call this moment: only what is wished *and* seen running is billed, of a
    cluster's member by its consumer's order besides.
    """
    waiting = clusters.phase(lease)
    if waiting is not None:
        return waiting
    if lease.wish is Wish.FREEZE:
        return Phase.PAUSED
    return Phase.RUNNING if running else Phase.PAUSED
