"""What a bill is recomputed from (``docs/invoice.md``): nothing in it was computed by the market.

Each side is shown its own hop of a routed lease, and never the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import NotFound
from marketplace.domain.money.route.evidence import HopEvidence, hop_json, route_json
from marketplace.market.accounts.access import Caller
from marketplace.market.base.records import Channel, Job, Lease, ReceiptRecord, VoucherRecord
from marketplace.market.context import Market
from marketplace.market.jobs.views import leases_of, receipt_view

Side = Literal["consumer", "provider"]


async def invoice_view(market: Market, job: Job) -> dict[str, Any]:
    """Everything the verifier needs for a job's consumer: terms, receipts, vouchers, its hops."""
    signed = [lease for lease in await leases_of(market, job) if lease.session_signature]
    return {
        "job": job.id,
        "name": job.name,
        "state": job.state.name,
        "reason": job.reason,
        "spec": job.spec,
        "magic": market.settings.magic,
        **await _evidence(market, signed, "consumer"),
    }


async def seen_by(market: Market, who: Caller, lease_id: str) -> tuple[Lease, Side]:
    """A signed lease, and which side of it the caller is; NotFound for anybody else."""
    lease, _ = await market.lease(lease_id)
    if lease.session_signature and lease.account == who.account:
        return lease, "consumer"
    if lease.session_signature and lease.agreed.payout.hex() == who.account:
        return lease, "provider"
    raise NotFound(f"no lease {lease_id}")


async def lease_evidence(market: Market, lease: Lease, side: Side) -> dict[str, Any]:
    """The same of one lease, for either of its sides."""
    return {"job": lease.job, **await _evidence(market, [lease], side)}


async def _evidence(market: Market, leases: Sequence[Lease], side: Side) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    channels: dict[bytes, dict[str, Any]] = {}
    hops: dict[bytes, HopEvidence] = {}
    for lease in leases:
        part = _lease_part(lease)
        if lease.hop:
            found = market.router.evidence(lease.id, side) if market.router is not None else None
            if found is None or found[1] is None or not _stated(found[1], lease):
                continue  # nothing was ever signed for it over a hop: there is no bill of it
            part["route"], hops[found[1].session_vk] = route_json(found[0]), found[1]
        parts.append(part)
        vk = lease.session_vk
        if vk not in channels and (row := await _channel_part(market, lease)) is not None:
            channels[vk] = row
    shown = [hop_json(hop) for hop in hops.values()]
    return {"leases": parts, "channels": list(channels.values()), "hops": shown}


def _stated(hop: HopEvidence, lease: Lease) -> bool:
    """Whether the hop's last statement has a leaf for the lease."""
    mine = blake2b_256(lease.terms)
    return any(leaf.terms == mine for leaf in hop.leaves)


def _lease_part(lease: Lease) -> dict[str, Any]:
    return {
        "lease": lease.id,
        "state": lease.state.name,
        "reason": lease.reason,
        "terms": lease.terms.hex(),
        "adapter_signature": lease.adapter_signature.hex(),
        "session_signature": lease.session_signature.hex(),
        "channel": lease.session_vk.hex(),
        "channel_tx": lease.channel_tx,
        "device": lease.device,
        "simulated": lease.simulated,
        "route": None,
    }


async def _channel_part(market: Market, lease: Lease) -> dict[str, Any] | None:
    """A lease's channel; of a routed lease the chain of its receipts alone."""
    channel = None
    if not lease.hop:
        channel = await market.store.get(Channel, lease.session_vk)
        if channel is None:
            return None
    voucher = await market.store.get(VoucherRecord, lease.session_vk)
    return {
        "session_vk": lease.session_vk.hex(),
        "provider": lease.provider,
        "open_tx": channel.open_tx if channel is not None else "",
        "settled_tx": channel.settled_tx if channel is not None else "",
        "receipts": await _receipts(market, lease.session_vk),
        "voucher": None
        if voucher is None
        else {"cumulative": voucher.cumulative, "signature": voucher.signature.hex()},
    }


async def _receipts(market: Market, session_vk: bytes) -> list[dict[str, Any]]:
    """The whole chain: without its beginning the hashes prove nothing."""
    receipts: list[dict[str, Any]] = []
    after: tuple[object, ...] | None = None
    while True:
        page = await market.store.find(
            ReceiptRecord, session_vk=session_vk, order=("seq",), after=after, limit=5000
        )
        receipts += [receipt_view(r) for r in page]
        if len(page) < 5000:
            return receipts
        after = (page[-1].seq,)
