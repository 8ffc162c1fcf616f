"""How leases and channels lie in the journal: plain CBOR, the fixed part apart from the moving one.

A lease's job, terms and sealed secrets are written when they change; the rest with every tick.
Secrets are the market's sealed boxes, never their content.
"""

from __future__ import annotations

from typing import Any, cast

import cbor2

from adapter.core.member import Member
from adapter.core.state import Channel, Lease, PauseCause
from adapter.core.wish import Wish
from adapter.core.workload import Handle
from adapter.core.young import Young
from adapter.journal.hops import fixed_from, fixed_row, routed_from, routed_row
from marketplace.domain.errors import Halt, Malformed
from marketplace.domain.metering.codec import meter_from_wire, meter_to_wire
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import Receipt
from marketplace.domain.money.route.terms import either
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.supply.grant import Grant
from marketplace.domain.work.cluster_order import SignedOrder
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.mesh import SignedMesh


class JournalFault(Halt):
    """The journal cannot be read or written, or does not say what it must."""

    code = "JOURNAL_FAULT"
    remedy = (
        "stop the adapter, check the disk, keep the file; an older copy knows fewer vouchers, so it"
        " loses money: use one only where the file itself is lost"
    )


class JournalHeld(JournalFault):
    """Another process has the journal open."""

    code = "JOURNAL_HELD"
    remedy = "another adapter or program has this journal open: stop that one; restore nothing"


def lease_fixed(lease: Lease) -> bytes:
    """The part that changes with the signature and the start only."""
    g = lease.grant
    granted = [list(g.gpus), g.share, g.cpu_milli, g.memory_mib, g.disk_mib]
    secrets = dict(lease.secrets)
    routed = [] if lease.routed is None else [routed_row(lease.routed)]  # else the row of before
    return cbor2.dumps([lease.job.to_wire(), lease.signed.to_wire(), secrets, granted, *routed])


def lease_moving(lease: Lease) -> bytes:
    """The part that changes with every tick."""
    h = lease.handle
    return cbor2.dumps(
        {
            "state": lease.state.name,
            "wish": lease.wish.name,
            "channel_tx": lease.channel_tx,
            "boot_id": lease.boot_id,
            "signed_wall_ms": lease.signed_wall_ms,
            "begun_ns": lease.begun_ns,
            "started_at_ms": lease.started_at_ms,
            "handle": None if h is None else _handle_row(h),
            "meters": [meter_to_wire(meter) for meter in lease.meters],
            "last": None if lease.last is None else lease.last.encode(),
            "unpaid": list(lease.unpaid),
            "lost_told": dict(lease.lost_told),
            "lost_before": dict(lease.lost_before),
            "pause": None if lease.pause is None else lease.pause.value,
            "paused_at_ms": lease.paused_at_ms,
            "paused_ms": lease.paused_ms,
            "frozen_ms": lease.frozen_ms,
            "reason": None if lease.reason is None else lease.reason.value,
            "message": lease.message,
            "exit_code": lease.exit_code,
            "hard": lease.hard,
            "exited": lease.exited,
            "removed": lease.removed,
            "final_wall_ms": lease.final_wall_ms,
            "log_offset": lease.log_offset,
            **_renewal_row(lease),
            **_direct_row(lease),
            **_member_row(lease),
        }
    )


def _renewal_row(lease: Lease) -> dict[str, object]:
    """Of a lease that may be renewed; else the row is that of before."""
    return {} if lease.renewal is None else {"renewal": lease.renewal.to_wire()}


def _direct_row(lease: Lease) -> dict[str, object]:
    """Of a lease with ports of its own; else the row is that of before."""
    pairs = [list(pair) for pair in lease.direct]
    return {"direct": [pairs, lease.direct_at]} if pairs else {}


def _member_row(lease: Lease) -> dict[str, object]:
    """Of a cluster's member that was ordered something, or whose mesh is up; else the row is that
    of before.
    """
    held = (lease.member.order, lease.member.place, lease.member.sight)
    rows = [None if one is None else one.to_wire() for one in held]
    return {"member": rows} if any(held) else {}


def _member_from(row: list[Any]) -> Member:
    order, place, sight = row
    return Member(
        None if order is None else SignedOrder.from_wire(order),
        None if place is None else SignedMesh.from_wire(place),
        None if sight is None else SignedMesh.from_wire(sight),
    )


def lease_from(id_: str, fixed: bytes, moving: bytes) -> Lease:
    """The reverse of both."""
    try:
        job, signed, secrets, granted, *routed = cast(list[Any], cbor2.loads(fixed))
        m = cast(dict[str, Any], cbor2.loads(moving))
        terms = SignedTerms.from_wire(signed)
        return Lease(
            id=id_,
            job=JobSpec.from_wire(job),
            signed=terms,
            terms=either(terms).terms,
            routed=routed_from(routed[0], terms.body) if routed else None,
            secrets=secrets,
            grant=Grant(tuple(granted[0]), *granted[1:]),
            state=LeaseState[m["state"]],
            wish=Wish[m["wish"]],
            channel_tx=m["channel_tx"],
            boot_id=m["boot_id"],
            signed_wall_ms=m["signed_wall_ms"],
            begun_ns=m["begun_ns"],
            started_at_ms=m["started_at_ms"],
            handle=None if m["handle"] is None else _handle_from(m["handle"]),
            meters=tuple(meter_from_wire(one) for one in m["meters"]),
            last=None if m["last"] is None else Receipt.decode(m["last"]),
            unpaid=tuple(m["unpaid"]),
            lost_told=m["lost_told"],
            lost_before=m["lost_before"],
            pause=None if m["pause"] is None else PauseCause(m["pause"]),
            paused_at_ms=m["paused_at_ms"],
            paused_ms=m["paused_ms"],
            frozen_ms=m["frozen_ms"],
            reason=None if m["reason"] is None else EndReason(m["reason"]),
            message=m["message"],
            exit_code=m["exit_code"],
            hard=m["hard"],
            exited=m["exited"],
            removed=m["removed"],
            final_wall_ms=m["final_wall_ms"],
            log_offset=m["log_offset"],
            renewal=SignedTerms.from_wire(m["renewal"]) if "renewal" in m else None,
            direct=tuple((inner, outer) for inner, outer in m["direct"][0])
            if "direct" in m
            else (),
            direct_at=m["direct"][1] if "direct" in m else "",
            member=_member_from(m["member"]) if "member" in m else Member(),
        )
    except (KeyError, ValueError, TypeError, cbor2.CBORError, Malformed) as error:
        raise JournalFault(f"lease {id_} does not read: {error}") from error


def channel_row(channel: Channel) -> bytes:
    """A channel without its voucher, which has a table of its own."""
    young = {} if channel.young is None else {"young": _young_row(channel.young)}
    hop = {} if channel.hop is None else {"hop": fixed_row(channel.hop)}
    return cbor2.dumps(
        {
            **young,  # of a channel that was not served before its block the row is as it was,
            **hop,  # and so of one that its consumer opened
            "terms": channel.terms,
            "origin": channel.origin,
            "stage": channel.stage.value,
            "capacity": channel.capacity,
            "limit": channel.limit,
            "claimed": channel.claimed,
            "expire_at_wall_ms": channel.expire_at_wall_ms,
            "last": None if channel.last is None else channel.last.encode(),
            "leases": list(channel.leases),
            "end_asked": channel.end_asked,
            "settling": channel.settling,
            "settled_tx": channel.settled_tx,
            "idle_since_wall_ms": channel.idle_since_wall_ms,
            "final": channel.final,
            "final_wall_ms": channel.final_wall_ms,
            "exposed_at_ms": channel.exposed_at_ms,
            "exposed_due": channel.exposed_due,
            "starved": channel.starved,
            "expected": channel.expected,
            "keep_ms": channel.keep_ms,
        }
    )


def channel_from(session_vk: bytes, row: bytes, voucher: Voucher | None) -> Channel:
    """The reverse; of a hop without its payments and leases (:mod:`.hops`)."""
    try:
        m = cast(dict[str, Any], cbor2.loads(row))
        last, stage, young = m.pop("last"), m.pop("stage"), m.pop("young", None)
        hop = m.pop("hop", None)
        return Channel(
            session_vk=session_vk,
            stage=ChannelStage(stage),
            last=None if last is None else Receipt.decode(last),
            leases=tuple(m.pop("leases")),
            voucher=voucher,
            young=None if young is None else Young(young[0], frozenset(young[1]), *young[2:]),
            hop=None if hop is None else fixed_from(session_vk, hop),
            **m,
        )
    except (KeyError, ValueError, TypeError, cbor2.CBORError, Malformed) as error:
        raise JournalFault(f"channel {session_vk.hex()[:16]} does not read: {error}") from error


def _young_row(young: Young) -> list[object]:
    marks = sorted(young.marks)
    return [young.allowance, marks, young.in_block, young.was_in_block, young.void_wall_ms]


def _handle_row(h: Handle) -> list[object]:
    ports = {str(port): list(place) for port, place in h.ports.items()}
    return [
        h.runtime, h.lease, h.id, h.started_ms, h.image, h.pid, h.cgroup, list(h.gpus), ports,
        dict(h.labels),
    ]  # fmt: skip


def _handle_from(row: list[Any]) -> Handle:
    runtime, lease, id_, started, image, pid, cgroup, gpus, ports, labels = row
    places = {int(port): (str(host), int(number)) for port, (host, number) in ports.items()}
    return Handle(
        runtime, lease, id_, started, image, pid, cgroup, tuple(gpus), places, labels
    )  # fmt: skip
