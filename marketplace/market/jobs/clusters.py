"""A consumer's use cases for a cluster: order what a member does, and see how all of them stand.

The market passes on what is signed, and signs nothing of it: it checks signatures to keep junk out,
and whoever acts by what it shows checks them again.
"""

from __future__ import annotations

from typing import Any, Final

from marketplace.domain.errors import NotFound
from marketplace.domain.protocol import codec, wire
from marketplace.domain.work.cluster_order import OrderRefused, SignedOrder
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.mesh_net import FIRST_GUEST
from marketplace.market.accounts.access import Caller
from marketplace.market.base.errors import NoGuestRelay, TakesNoOrder
from marketplace.market.base.ports import Change
from marketplace.market.base.records import SIGNED, ClusterWord, Job, Lease
from marketplace.market.context import Market
from marketplace.market.core.ending import LIVE
from marketplace.market.jobs import jobs
from marketplace.market.state.open_quotes import WAITS

UP: Final = (LeaseState.ACTIVE, LeaseState.PAUSED)


async def order(market: Market, who: Caller, lease_id: str, asked: SignedOrder) -> dict[str, Any]:
    """Keep *asked*, and tell its adapter at once. The same order again is told again.

    OrderRefused for one that the lease's session key did not sign, that is for another lease or not
    above the one that is kept; TakesNoOrder, NotFound, Malformed.
    """
    lease, job = await jobs.owned_lease(market, who, lease_id)
    if job.parsed.cluster is None:
        raise TakesNoOrder(f"{lease_id} runs no member of a cluster")
    said = asked.verify(lease_id, lease.session_vk)
    if lease.state not in LIVE or lease.stage == WAITS:
        raise TakesNoOrder(f"{lease_id} takes no order now ({lease.state.name})")
    word = ClusterWord(lease_id, "order", said.version, asked.body, asked.signature, market.now)
    kept = await market.store.get(ClusterWord, lease_id, "order")
    if kept is None or kept.number < word.number:
        change = Change(raises=[word], topics=[f"order:{lease_id}"])
        await market.store.apply(change)
        kept = await market.store.get(ClusterWord, lease_id, "order")  # two may have come
    if kept is None or (kept.number, kept.body) != (word.number, word.body):
        newest = kept.number if kept is not None else 0
        raise OrderRefused(f"order {newest} of {lease_id} is kept already", version=newest)
    if market.providers.able(lease.provider, codec.CLUSTER):
        market.providers.tell(lease.provider, wire.OrderSent(lease_id, asked))
    return {"lease": lease_id, "version": said.version}


async def view(market: Market, who: Caller, gang_id: str) -> dict[str, Any]:
    """How the caller's cluster stands; NotFound for what is none, or is somebody else's."""
    gang, members = await market.gang(gang_id)
    spec = members[0].parsed if members else None
    if gang.account != who.account or spec is None or spec.cluster is None:
        raise NotFound(f"no cluster {gang_id}")
    held = [job.lease for job in members if job.lease]
    leases = {one.id: one for one in await market.store.find(Lease, id=held)} if held else {}
    words = await market.store.find(ClusterWord, lease=held) if held else []
    said = {(one.lease, one.word): one for one in words}
    return {
        "id": gang_id,
        "members": [_member(job, leases.get(job.lease), said) for job in members],
        "least": spec.cluster.least,
        "stall": spec.cluster.stall.value,
        "mesh": spec.cluster.mesh,
        "over": gang.state in (GangState.ENDING, GangState.ENDED),
    }


async def guest(market: Market, who: Caller, gang_id: str, number: int) -> dict[str, Any]:
    """Leave to use this market's relay for a machine of the caller's own, which its cluster's
    members take as guest *number*: for some minutes, while a member lives. NotFound, NoGuestRelay.
    """
    gang, members = await market.gang(gang_id)
    spec = members[0].parsed if members else None
    if gang.account != who.account or spec is None or spec.cluster is None or not spec.cluster.mesh:
        raise NotFound(f"no cluster with a mesh {gang_id}")
    held = [job.lease for job in members if job.lease]
    living = await market.store.find(Lease, id=held, state=LIVE) if held else []
    place = market.mesh_relay
    if place is None or not living:
        raise NoGuestRelay(
            "this market keeps no relay of meshes" if place is None else f"{gang_id} has no member"
        )
    given = place.give_guest(
        gang_id, number - FIRST_GUEST, len(members), members[0].created_ms, market.now
    )
    if given is None:
        raise NoGuestRelay(f"the relay's {place.count} ports are its {len(members)} members'")
    leave, port = given
    return {
        "endpoint": leave.endpoint, "first": leave.first, "count": leave.count, "number": port,
        "ticket": leave.ticket.hex(), "key": leave.key.hex(),
    }  # fmt: skip


def _member(
    job: Job, lease: Lease | None, said: dict[tuple[str, str], ClusterWord]
) -> dict[str, Any]:
    started = lease is not None and lease.state in UP
    lives = job.state not in (JobState.ENDING, JobState.ENDED)
    return {
        "member": job.parsed.member,
        "role": job.parsed.role,
        "job": job.id,
        "lease": lease.id if lease is not None else None,
        "state": lease.state.name if lease is not None else None,
        "stage": lease.stage if lease is not None else "",
        "needs": job.needs,
        "started": started,
        "lost": job.retries > 0 and lives and not started,
        **{word: _bytes(said.get((job.lease, word))) for word in SIGNED},
    }


def _bytes(word: ClusterWord | None) -> dict[str, str] | None:
    if word is None:
        return None
    return {"body": word.body.hex(), "signature": word.signature.hex()}
