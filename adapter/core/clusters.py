"""A lease as a member of a cluster: whether it waits for the others, how much of that is borne, and
whom its mesh meets.  Pure.

Its phase follows its consumer's newest order alone. While that does not say RUN nothing is billed,
no receipt grows and no voucher is awaited, so that what waits is borne by its provider: by the
terms' two limits, which the meters' own account of it is held to. It has the moments in which an
order took effect between two readings, too, so that whoever orders to and fro gets nothing by it.
A consumer whose member waited for longer than it was paid for waits before its next lease, as one
who did not pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from adapter.core.draft import Draft
from adapter.core.events import Meet
from adapter.core.state import Lease, Own, State
from marketplace.domain.metering.reading import NS_PER_MS, Cause, Phase, Reading
from marketplace.domain.work.cluster_order import Verb
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason

BEYOND_MS: Final = 30_000
"""So much longer than it was billed may a member have waited, before that counts against its
consumer.
"""
_PROVIDERS: Final = (EndReason.PROVIDER_FAULT, EndReason.PROVIDER_LOST, EndReason.PREEMPTED)
_WAITING: Final = {Verb.MEET: Phase.ASSEMBLING, Verb.HOLD: Phase.STALLED}

Rule = tuple[bool, str, str]


def rules(state: State, own: Own, job: JobSpec, routed: bool) -> Iterator[Rule]:
    """What a member of a cluster has to meet here."""
    if job.cluster is None:
        return
    yield (
        not routed,
        "CLUSTER_ROUTED",
        "a member of a cluster is paid over a channel of its consumer's own: its key signs orders",
    )
    yield (
        state.orders,
        "CLUSTERS_REFUSED",
        "this market passes no orders on to members of clusters",
    )
    borne = own.limits.cluster_free_ms
    yield (
        job.cluster.free_ms <= borne,
        "CLUSTERS_REFUSED",
        f"a member waits unbilled for at most {borne} ms here, and this one for"
        f" {job.cluster.free_ms} ms: assemble and hold together must not be above the offer's"
        " cluster_free_ms",
    )
    yield (
        own.offer.mesh or not job.cluster.mesh,
        "MESH_REFUSED",
        "this host joins no cluster's own network: take a provider whose offer says mesh",
    )
    yield (
        own.offer.store or job.cluster.store is None,
        "STORES_REFUSED",
        "this host shows no cluster's store: take a provider whose offer says store",
    )


# ---- waiting -------------------------------------------------------------------------------------


def phase(lease: Lease) -> Phase | None:
    """What a member that waits for others does; None for one that is to run, and for no member."""
    return None if lease.job.cluster is None else _WAITING.get(lease.member.verb)


def waits(lease: Lease) -> bool:
    """Whether nothing is billed by its consumer's own order."""
    return phase(lease) is not None


def held(lease: Lease) -> bool:
    """Whether its consumer has it frozen."""
    return phase(lease) is Phase.STALLED


def marked(lease: Lease) -> Lease:
    """The lease with what its meters saw last put under what it does since its newest order: what
    lies between that and the next reading is no time of before.
    """
    meters = tuple(
        meter if meter.last is None else replace(meter, last=seen(lease, meter.last))
        for meter in lease.meters
    )
    return replace(lease, meters=meters)


def seen(lease: Lease, reading: Reading) -> Reading:
    """A reading under what the member does by its newest order: one that was under way when that
    came knows of an older one.
    """
    now = phase(lease)
    ended = reading.phase is Phase.EXITED
    return reading if now is None or ended else replace(reading, phase=now)


def waited_ms(lease: Lease, *causes: Cause) -> int:
    """How long its meters saw it wait: for these *causes*, or for any."""
    wanted = causes or tuple(cause for cause in Cause if cause.of_group)
    lost = [sum(ns for cause, ns in meter.lost_ns if cause in wanted) for meter in lease.meters]
    return max(lost, default=0) // NS_PER_MS


def stalled(lease: Lease) -> str:
    """Why a member waited for too long; empty while it is borne."""
    cluster = lease.job.cluster
    if cluster is None:
        return ""
    assembled, stood = (waited_ms(lease, one) for one in (Cause.ASSEMBLING, Cause.GROUP_STALLED))
    if assembled > cluster.assemble_ms:
        return f"its cluster did not begin within {cluster.assemble_ms} ms"
    if stood > cluster.hold_ms:
        return f"it was held for {stood} ms in all: {cluster.hold_ms} ms were agreed"
    return ""


def for_nothing(lease: Lease, reason: EndReason) -> bool:
    """Whether a member that ends so had its machine for nothing: its consumer answers for that,
    unless its provider ended it.
    """
    if lease.job.cluster is None or reason in _PROVIDERS:
        return False
    billed_ms = max((meter.delivered_ms for meter in lease.meters), default=0)
    return waited_ms(lease) > billed_ms + BEYOND_MS


def together(lease: Lease, other: Lease) -> bool:
    """Whether they are two members of one cluster: which of a file that was posted twice, nobody
    can tell, so two with one number are none.
    """
    if lease.job.cluster is None or other.job.cluster is None:
        return False
    return lease.job.member != other.job.member and lease.job.group == other.job.group


# ---- the mesh ------------------------------------------------------------------------------------


def meetings(lease: Lease) -> Iterator[Meet]:
    """Whom its mesh has to have, once it is up."""
    if lease.job.mesh_address and lease.member.place is not None and not lease.exited:
        yield Meet(lease.id, lease.member.version, lease.member.peers(lease.job.member))


def meet(draft: Draft, lease: Lease) -> None:
    """Have its mesh take up whom the newest order names."""
    draft.effects.extend(meetings(lease))
