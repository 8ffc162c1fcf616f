"""What the meters read of a running workload: receipts, pauses and limits.  Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from adapter.core import clusters, lifecycle
from adapter.core.draft import Draft
from adapter.core.events import (
    Measured,
)
from adapter.core.state import (
    Channel,
    Lease,
)
from adapter.core.ticks import exhausted, fold, pause_cause, ran_ms, receipt
from marketplace.domain.metering.reading import NS_PER_MS, Cause
from marketplace.domain.work.lease import EndReason, LeaseState

BORNE: Final = 10


def measured(draft: Draft, lease: Lease, event: Measured) -> None:
    """New readings are counted; a tick makes a receipt; a limit that is met ends the lease."""
    if not lease.runs:
        return
    before = [meter.last.phase if meter.last else None for meter in lease.meters]
    stood = _off_tip(lease)
    readings = [clusters.seen(lease, one) for one in event.readings]
    lease = replace(lease, meters=fold(lease.meters, readings))
    lease = _idle(draft, _faulty(draft, lease), event)
    after = [meter.last.phase if meter.last else None for meter in lease.meters]
    # A first reading, or a change of phase, is where billing begins: a crash must not lose it.
    draft.put(lease, durable=before != after)
    if lease.job.relay is not None and event.readings and stood != _off_tip(lease):
        _tell_tip(draft, lease)
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


def _off_tip(lease: Lease) -> Cause | str | None:
    """Why a relay is not billed now; None where it is at the tip, empty where nobody looked yet."""
    for meter in lease.meters:
        if meter.last is None:
            return ""
        if meter.fault is not None and meter.fault.off_tip:
            return meter.fault
    return None


def _tell_tip(draft: Draft, lease: Lease) -> None:
    """For the page: the bill says the same by its lines, and a word that is lost is told by it."""
    why = _off_tip(lease)
    if why:
        draft.progress(lease.id, "OFF_TIP", durable=False, code=str(why))
    else:
        draft.progress(lease.id, "AT_TIP", durable=False)


def _faulty(draft: Draft, lease: Lease) -> Lease:
    faults = [meter.fault for meter in lease.meters]
    standing = any(fault is not None and not fault.off_tip for fault in faults)
    since = (lease.fault_since_ms or draft.now.boot_ms) if standing else 0
    return replace(lease, fault_since_ms=since)


def _idle(draft: Draft, lease: Lease, event: Measured) -> Lease:
    below = lease.job.policy.idle_gpu_below * 10
    used = [r.evidence.util_permille for r in event.readings]
    works = lease.state is LeaseState.ACTIVE and not clusters.waits(lease)
    if not below or not lease.devices or not works:
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
    if off := _off_tip_beyond(lease, limits.relay_free_ms):
        return EndReason.OFF_TIP, off
    if stalled := clusters.stalled(lease):
        return EndReason.GROUP_STALLED, stalled
    if ran_ms(lease, draft.now) + terms.tick_ms >= terms.max_duration_ms:
        return EndReason.MAX_DURATION, f"{terms.max_duration_ms} ms were agreed"
    if exhausted(lease, channel):
        return EndReason.CEILING, f"{lease.owed} of {terms.ceiling} lovelace are used"
    idle_for = lease.job.policy.idle_for_ms
    if lease.idle_since_ms and now - lease.idle_since_ms >= idle_for:
        return EndReason.IDLE, f"below {lease.job.policy.idle_gpu_below} % for {idle_for} ms"
    return None


def _off_tip_beyond(lease: Lease, free_ms: int) -> str:
    """Why a relay was unbilled for too long; empty while it is borne. Beside *free_ms* a tenth of
    what was billed is: a consumer whose relay is at the tip now and then has no machine for it.
    """
    if lease.job.relay is None:
        return ""
    lost = [sum(ns for cause, ns in meter.lost_ns if cause.off_tip) for meter in lease.meters]
    off_ms = max(lost, default=0) // NS_PER_MS
    billed_ms = max((meter.delivered_ms for meter in lease.meters), default=0)
    if off_ms <= free_ms + billed_ms // BORNE:
        return ""
    borne = f"{free_ms // 1000} s and a tenth of what was billed are borne"
    return f"{off_ms // 1000} s not at the tip: {borne}"
