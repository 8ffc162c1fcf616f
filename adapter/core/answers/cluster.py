"""What a cluster's consumer orders of a member, and what the member's mesh says of itself.  Pure.

An order is on disk before anything follows from it, so that no restart brings an older one back.
"""

from __future__ import annotations

from dataclasses import replace

from adapter.core import clusters, lifecycle
from adapter.core.draft import Draft
from adapter.core.events import MeshHeard, MeshUp
from adapter.core.state import Lease
from adapter.core.ticks import receipt
from marketplace.domain.errors import Refusal
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import ClusterOrder, OrderRefused, Verb
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.mesh import MeshPlace, MeshSight, SignedMesh


def ordered(draft: Draft, message: wire.OrderSent) -> None:
    """An order that holds is taken: what was delivered until then is stated, and nothing after it
    but what it says. The same one again changes nothing, and one that does not hold neither.
    """
    lease = draft.state.leases.get(message.lease)
    if lease is None or lease.state is LeaseState.OFFERED or lease.reason is not None:
        return
    if lease.exited or message.order == lease.member.order:
        return
    try:
        order = _verified(lease, message)
    except Refusal as refusal:
        draft.alarm(refusal.code, f"lease {lease.id}: {refusal.message}")
        return
    if lease.runs and order.verb is not Verb.RUN:
        lease = receipt(draft, lease)
    lease = replace(lease, member=replace(lease.member, order=message.order))
    lease = draft.put(clusters.marked(lease))
    draft.progress(lease.id, "ORDERED", verb=order.verb.value, version=order.version)
    lifecycle.obey(draft, lease)
    clusters.meet(draft, draft.state.leases[lease.id])


def _verified(lease: Lease, message: wire.OrderSent) -> ClusterOrder:
    if lease.job.cluster is None:
        raise OrderRefused("an order came for what is no member of a cluster")
    order = message.order.verify(lease.id, lease.terms.session_vk)
    if order.version <= lease.member.version:
        raise OrderRefused(f"order {order.version} came after order {lease.member.version}")
    return order


def mesh_up(draft: Draft, lease: Lease, event: MeshUp) -> None:
    """Where its mesh is reached is signed once, and told."""
    if lease.exited or not lease.job.mesh_address:
        return
    place = MeshPlace(lease.id, event.key, event.candidates)
    known = lease.member.place
    if known is None or known.place != place:
        signed = SignedMesh.sign(draft.own.signer, place)
        lease = draft.put(replace(lease, member=replace(lease.member, place=signed)))
        draft.send(wire.MeshPlaced(lease.id, signed))
    clusters.meet(draft, lease)


def mesh_heard(draft: Draft, lease: Lease, event: MeshHeard) -> None:
    """Whom it hears is signed under a number of its own, for the newest order alone: what was heard
    under an older one may be another host's with the same number.
    """
    member = lease.member
    if lease.exited or member.place is None or event.version != member.version:
        return
    named = {one.member for one in member.peers(lease.job.member)}
    heard = {one.member: one for one in event.heard if one.member in named}
    rows = tuple(heard[at] for at in sorted(heard))
    sight = MeshSight(lease.id, member.version, member.number + 1, rows)
    signed = SignedMesh.sign(draft.own.signer, sight)
    draft.put(replace(lease, member=replace(member, sight=signed)))
    if draft.state.offline_since_ms is None:  # else it is said with the next welcome
        draft.send(wire.MeshSeen(lease.id, signed), durable=False)


def said_again(draft: Draft) -> None:
    """The market hears us again: where each mesh is reached, and whom it heard last."""
    for lease in draft.state.leases.values() if draft.state.orders else ():
        if lease.exited:
            continue
        if lease.member.place is not None:
            draft.send(wire.MeshPlaced(lease.id, lease.member.place), durable=False)
        if lease.member.sight is not None:
            draft.send(wire.MeshSeen(lease.id, lease.member.sight), durable=False)
