"""What passes between consumers and the adapters of a cluster's members: orders one way, what is
said of their mesh the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from marketplace.domain.errors import Malformed, NotFound
from marketplace.domain.protocol import codec, wire
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.mesh import MeshUnproven
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ClusterWord, Job, Lease
from marketplace.market.context import Market
from marketplace.market.core.ending import LIVE
from marketplace.market.leases import stores

MOST_ORDERED: Final = 1000  # leases of one adapter


def offered(market: Market, offer: Offer) -> Offer:
    """*offer* as it is listed: it takes no cluster where its adapter would hear of no order."""
    if market.providers.able(offer.provider, codec.CLUSTER):
        return offer
    return replace(offer, cluster_free_ms=0, mesh=False, store=False)


async def orders(market: Market, provider: str) -> list[wire.Message]:
    """The newest order of each living member at *provider*: it is told them at each welcome."""
    if not market.providers.able(provider, codec.CLUSTER):
        return []
    found = await market.store.find(Lease, provider=provider, state=LIVE, limit=MOST_ORDERED)
    if not found:
        return []
    words = await market.store.find(
        ClusterWord, lease=[lease.id for lease in found], word="order", limit=MOST_ORDERED
    )
    return [wire.OrderSent(word.lease, word.order) for word in words]


async def ordered(market: Market, lease_id: str) -> None:
    """Another process took an order: its adapter is told, if it is connected here."""
    lease = await market.store.get(Lease, lease_id)
    if lease is None or not market.providers.able(lease.provider, codec.CLUSTER):
        return
    word = await market.store.get(ClusterWord, lease_id, "order")
    if word is not None and lease.state in LIVE:
        market.providers.tell(lease.provider, wire.OrderSent(lease_id, word.order))


async def heard(
    market: Market, provider: str, message: wire.MeshPlaced | wire.MeshSeen | wire.StoreAsked
) -> None:
    """What an adapter says of a member that it runs. Of its mesh the newest is kept, of a lease
    that is over nothing. MeshUnproven unless the lease's adapter signed it of that lease;
    Malformed, NotFound, StoreNone.
    """
    if isinstance(message, wire.StoreAsked):
        await stores.asked(market, provider, message)
        return
    lease = await market.store.get(Lease, message.lease)
    if lease is None or lease.provider != provider:
        raise NotFound(f"no lease {message.lease}")
    if lease.state not in LIVE:
        return
    word = _word(market, lease, message)
    job = await market.store.get(Job, lease.job)
    if job is None or not job.parsed.mesh_address:
        raise Malformed(f"{lease.id} is in no mesh")
    kept = await market.store.get(ClusterWord, lease.id, word.word)
    _relay(market, lease, job)
    if kept is not None and word.word == "place":
        if kept.body == word.body:
            return  # said again
        word = word.but(number=max(word.number, kept.number + 1))
    if kept is None or kept.number < word.number:
        await market.store.apply(Change(raises=[word]))


def _relay(market: Market, lease: Lease, job: Job) -> None:
    """Leave to use this market's relay, for as long as the lease lives."""
    place = market.mesh_relay
    if place is not None and job.gang:
        given = place.give(job.gang, job.parsed.member, lease.created_ms, market.now)
        market.providers.tell(lease.provider, wire.MeshRelay(lease.id, given))


def _word(market: Market, lease: Lease, message: wire.MeshPlaced | wire.MeshSeen) -> ClusterWord:
    now, vk = market.now, lease.agreed.adapter_vk
    match message:
        case wire.MeshPlaced(_, signed):
            signed.verify(vk)
            of, kind, number = signed.place.lease, "place", now
        case wire.MeshSeen(_, signed):
            signed.verify(vk)
            of, kind, number = signed.sight.lease, "sight", signed.sight.number
    if of != lease.id:
        raise MeshUnproven(f"what is said of the mesh is of lease {of}, not of {lease.id}")
    return ClusterWord(lease.id, kind, number, signed.body, signed.signature, now)
