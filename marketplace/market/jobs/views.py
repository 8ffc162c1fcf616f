"""What people and programs are shown of jobs, leases, offers and channels: plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain.app_origin import Place
from marketplace.domain.money.terms import ADA, Terms
from marketplace.domain.supply.offer import Offer
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.records import (
    Channel,
    Job,
    Lease,
    OfferRecord,
    ReceiptRecord,
    Tx,
    VoucherRecord,
)
from marketplace.market.context import Market
from marketplace.market.jobs.fees import fees_told, routed_told
from marketplace.market.placement import expected
from marketplace.market.state.reputes import Repute

MANY: Final = 100_000  # more than a page of jobs can have around it


@dataclass(frozen=True)
class _Around:
    """What the store has around some jobs, read with one question a table."""

    leases: dict[str, list[Lease]]  # by job, in the order of their making
    receipts: dict[object, ReceiptRecord]  # the last of each lease that is shown
    txs: dict[str, list[Tx]]  # by lease
    channels: dict[bytes, Channel]

    def shown(self, job: Job) -> Lease | None:
        """The lease that speaks for *job*: its current one, else its last."""
        leases = self.leases.get(job.id, [])
        return next((x for x in leases if x.id == job.lease), leases[-1] if leases else None)


async def job_view(market: Market, job: Job) -> dict[str, Any]:
    """A job with its current lease, what it has cost and, while it is quoted, the quote."""
    return (await job_views(market, [job]))[0]


async def job_views(market: Market, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Each of *jobs* as :func:`job_view` shows one, with as many questions as for one."""
    around = await _around(market, jobs)
    views = [_job(market, job, around) for job in jobs]
    for job, view in zip(jobs, views, strict=True):
        lease = around.shown(job)
        if lease is not None and lease.id == job.lease and job.state is JobState.QUOTED:
            view["quote"] = await quote_view(market, lease, job)
    return views


async def _around(market: Market, jobs: Sequence[Job]) -> _Around:
    store, leases, txs = market.store, dict[str, list[Lease]](), dict[str, list[Tx]]()
    for lease in await store.find(Lease, job=[job.id for job in jobs], limit=MANY):
        leases.setdefault(lease.job, []).append(lease)
    around = _Around(leases, {}, txs, {})
    shown = [lease for job in jobs if (lease := around.shown(job)) is not None]
    ids = [lease.id for some in leases.values() for lease in some]
    for tx in await store.find(Tx, lease=ids, limit=MANY):
        txs.setdefault(tx.lease, []).append(tx)
    keys = {lease.session_vk for lease in shown}
    around.channels.update(
        {c.session_vk: c for c in await store.find(Channel, session_vk=keys, limit=MANY)}
    )
    around.receipts.update(
        await store.newest(ReceiptRecord, "lease", "tick", [lease.id for lease in shown])
    )
    return around


def _job(market: Market, job: Job, around: _Around) -> dict[str, Any]:
    shown = around.shown(job)
    leases = [x.id for x in around.leases.get(job.id, [])]
    last = around.receipts.get(shown.id) if shown is not None else None
    owed = last.lease_owed if last is not None and last.lease == job.lease else 0
    posted = market.postings.of(job)
    return {
        "id": job.id,
        "name": job.name,
        "kind": job.kind,
        "state": job.state.name,
        "reason": job.reason,
        "message": job.message,
        "needs": job.needs,
        "ports": [
            {
                "port": one.port,
                "auth": one.auth,
                "url": f"{market.apps.origin(Place(job.id, one.port))}/" if market.apps else "",
            }
            for one in job.parsed.ports
        ],
        "created_at_ms": job.created_ms,
        "updated_at_ms": job.updated_ms,
        "spec": job.spec,
        "job": posted.file,
        "lease": job.lease,
        "leases": leases,
        "provider": job.provider or (shown.provider if shown else ""),
        "exit_code": job.exit_code,
        "retries": job.retries,
        "gang": job.gang,
        "spent": job.spent_before + owed,
        "budget": posted.budget,
        "explain": job.explain,
        "simulated": bool(shown and shown.simulated),
        "ceiling": shown.ceiling if shown else 0,
        "rate_micro": shown.rate_micro if shown else 0,
        "resource": shown.resource if shown else "",
        "device": shown.device if shown else "",
        "stage": shown.stage if shown else "",
        "channel": shown.session_vk.hex() if shown else "",
        "started_at_ms": shown.started_ms if shown else 0,
        "finished_at_ms": shown.finished_ms if shown else 0,
        "unit_ms": last.unit_ms if last is not None else 0,
        "ticks": last.tick if last is not None else 0,
        "transactions": _transactions(shown, around, leases),
        "expected_wait_ms": market.directory.expected_wait_ms(job.gang or job.id, market.now),
        "quote": None,
    }


def _transactions(
    lease: Lease | None, around: _Around, leases: Sequence[str]
) -> list[dict[str, Any]]:
    """Open, claims and finish of the job, as far as this market knows."""
    if lease is None:
        return []
    txs = sorted((tx for x in leases for tx in around.txs.get(x, [])), key=lambda tx: tx.id)
    known = {
        tx.id: {"id": tx.id, "kind": tx.kind, "state": tx.state.name, "fee": tx.fee} for tx in txs
    }
    channel = around.channels.get(lease.session_vk)
    for tx_id, kind in (
        (lease.channel_tx or (channel.open_tx if channel else ""), "open"),
        (channel.settled_tx if channel else "", "finish"),
    ):
        if len(tx_id) == 64:
            # Nobody follows these here; but a workload starts only once its channel is in a block.
            there = kind == "open" and bool(lease.started_ms)
            state = "SEEN" if there else "SUBMITTED"
            known.setdefault(tx_id, {"id": tx_id, "kind": kind, "state": state, "fee": 0})
    return list(known.values())


async def leases_of(market: Market, job: Job) -> list[Lease]:
    """All leases that the job ever had."""
    return await market.store.find(Lease, job=job.id)


async def quote_view(market: Market, lease: Lease, job: Job) -> dict[str, Any]:
    """The quote: everything the payer verifies before it signs."""
    offer = await market.store.get(OfferRecord, lease.offer)
    return {
        "lease": lease.id,
        "terms": lease.terms.hex(),
        "adapter_signature": lease.adapter_signature.hex(),
        "provider": lease.provider,
        "offer": await offer_now(market, offer) if offer is not None else None,
        "device": lease.device,
        "simulated": lease.simulated,
        "resource": lease.resource,
        "units_milli": lease.units_milli,
        "rate_micro": lease.rate_micro,
        "ceiling": lease.ceiling,
        "why": {"others": market.directory.others(job.parsed, job.account, lease, market.now)},
        "expected_start": await expected.told(market, job.parsed.image, lease.offer, job.account),
        **await _ways(market, lease, offer),
        "expires_at_ms": lease.expires_ms,
        "channel": "routed" if lease.hop else "reused" if lease.reused else "fresh",
        "session_vk": lease.session_vk.hex(),
        "route": _quoted_route(lease) if lease.hop else None,
    }


async def _ways(market: Market, lease: Lease, offer: OfferRecord | None) -> dict[str, Any]:
    """What the way that pays for the lease takes, and what the other one would: a routed lease
    makes no transaction, and one on a channel to its provider pays no router.
    """
    least = offer.offer.minimum if offer is not None else 0
    if lease.hop:
        direct = await fees_told(market, least, ADA, opens=True)
        return {"fees": None, "direct": direct, "routed": None}
    asset = Terms.decode(lease.terms).asset
    return {
        "fees": await fees_told(market, least, asset, opens=not lease.reused),
        "direct": None,
        "routed": routed_told(market, offer.offer, lease.ceiling) if offer is not None else None,
    }


def _quoted_route(lease: Lease) -> dict[str, str]:
    """What its consumer verifies: of the two hops it hears of its own."""
    made = lease.made
    return {
        "body": made.signed.body.hex(),
        "signature": made.signed.signature.hex(),
        "hop": made.hop_in.hex(),
        "salt": made.salt_in.hex(),
    }


def lease_view(lease: Lease) -> dict[str, Any]:
    """A lease, without its secrets."""
    return {
        "id": lease.id,
        "job": lease.job,
        "offer": lease.offer,
        "provider": lease.provider,
        "state": lease.state.name,
        "reason": lease.reason,
        "message": lease.message,
        "stage": lease.stage,
        "terms": lease.terms.hex(),
        "adapter_signature": lease.adapter_signature.hex(),
        "session_signature": lease.session_signature.hex(),
        "channel": lease.session_vk.hex(),
        "channel_tx": lease.channel_tx,
        "hop": lease.hop.hex(),
        "rate_micro": lease.rate_micro,
        "ceiling": lease.ceiling,
        "resource": lease.resource,
        "units_milli": lease.units_milli,
        "gpus": lease.gpus,
        "device": lease.device,
        "simulated": lease.simulated,
        "exit_code": lease.exit_code,
        "owed": lease.owed,
        "created_at_ms": lease.created_ms,
        "expires_at_ms": lease.expires_ms,
        "started_at_ms": lease.started_ms,
        "finished_at_ms": lease.finished_ms,
        "ended_at_ms": lease.ended_ms,
        "settled_tx": lease.settled_tx,
        "max_duration_ms": lease.agreed.max_duration_ms,
        "renewal": _renewal_view(lease),
        "renewal_refused": lease.renewal_refused,
    }


def _renewal_view(lease: Lease) -> dict[str, Any] | None:
    """What its consumer verifies and signs for it to go on; None while its adapter signed none."""
    if not lease.renewal_signature:
        return None
    terms = Terms.decode(lease.renewal)
    return {
        "terms": lease.renewal.hex(),
        "adapter_signature": lease.renewal_signature.hex(),
        "max_duration_ms": terms.max_duration_ms,
        "ceiling": terms.ceiling,
        "expires_at_ms": terms.expires_at_ms,
    }


async def offer_now(
    market: Market, record: OfferRecord, free: dict[str, int] | None = None
) -> dict[str, Any]:
    """An offer with what the market's book says of its provider; *free* per device, per-mille."""
    return _offer(record, await market.reputes.of(record.provider, market.now), free or {})


def _offer(record: OfferRecord, repute: Repute, free: dict[str, int]) -> dict[str, Any]:
    offer: Offer = record.offer
    host = offer.host
    return {
        "id": record.id,
        "provider": record.provider,
        "name": offer.name,
        "leases": repute.leases,
        "lost": repute.lost,
        "uptime_milli": repute.uptime_milli,
        "state": "AWAY" if record.away_ms and record.state.name == "LISTED" else record.state.name,
        "region": offer.region or host.region,
        "labels": dict(offer.labels),
        "isolation": [one.value for one in offer.isolation],
        "trust": offer.trust,
        "core_rate_micro": offer.core_rate,
        "disk_rate_micro": offer.disk_rate,
        "volume_keep_ms": offer.volume_keep_ms,
        "gpu_rates_micro": dict(offer.gpu_rates),
        "fee_bps": offer.fee_bps,
        "tick_ms": offer.tick_ms,
        "keep_most_ms": offer.keep_most_ms,
        "minimum": offer.minimum,
        "allowance": offer.allowance,
        "close_period_ms": offer.close_period_ms,
        "payout_address": offer.payout_address,
        "cpu": {"model": host.cpu.model, "cores": host.cpu.cores, "milli": host.cpu.milli},
        "memory_mib": host.memory_mib,
        "disk_mib": host.disk_mib,
        "gpus": [
            {
                "uuid": g.uuid,
                "model": g.model,
                "vram_mib": g.vram_mib,
                "sharing": g.sharing.value,
                "health": g.health.value,
                "health_note": g.health_note,
                "simulated": g.simulated,
                "rate_micro": offer.gpu_rates.get(g.model, 0),
                "free_milli": free.get(g.uuid, 0),
            }
            for g in host.gpus
        ],
        "simulated": host.simulated,
        "windows": [
            {"start_ms": w.start_ms, "end_ms": w.end_ms, "notice": w.notice} for w in offer.windows
        ],
        "seen_at_ms": record.seen_ms,
        "away_since_ms": record.away_ms,
        "egress": offer.egress,
        "relay_free_ms": offer.relay_free_ms,
        "direct_ports": offer.direct_ports,
        "cluster_free_ms": offer.cluster_free_ms,
        "mesh": offer.mesh,
        "store": offer.store,
        "allow_root": offer.allow_root,
    }


def receipt_view(record: ReceiptRecord) -> dict[str, Any]:
    """A receipt with its exact signed bytes."""
    return {
        "seq": record.seq,
        "lease": record.lease,
        "tick": record.tick,
        "unit_ms": record.unit_ms,
        "lease_owed": record.lease_owed,
        "channel_owed": record.channel_owed,
        "final": record.final,
        "at_ms": record.at_ms,
        "body": record.body.hex(),
        "signature": record.signature.hex(),
    }


async def channel_view(market: Market, channel: Channel) -> dict[str, Any]:
    """A channel, its greatest voucher and what the last receipt owes."""
    voucher = await market.store.get(VoucherRecord, channel.session_vk)
    last = await market.store.find(
        ReceiptRecord, session_vk=channel.session_vk, order=("-seq",), limit=1
    )
    leases = await market.store.find(Lease, session_vk=channel.session_vk)
    return {
        "session_vk": channel.session_vk.hex(),
        "provider": channel.provider,
        "state": channel.state,
        "open_tx": channel.open_tx,
        "settled_tx": channel.settled_tx,
        "claimed": channel.claimed,
        "created_at_ms": channel.created_ms,
        "owed": last[0].channel_owed if last else 0,
        "voucher": None
        if voucher is None
        else {"cumulative": voucher.cumulative, "signature": voucher.signature.hex()},
        "end_asked": bool(channel.end_signature),
        "leases": [
            {"id": x.id, "job": x.job, "state": x.state.name, "ceiling": x.ceiling} for x in leases
        ],
        "terms": channel.terms.hex(),
    }
