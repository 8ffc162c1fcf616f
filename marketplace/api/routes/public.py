"""What anybody may read: health, metrics, the network, offers, providers, devices, prices."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from marketplace.api.http.auth import PartsDep, public
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import documented, problem
from marketplace.api.schemas import images, supply
from marketplace.api.schemas.names import OfferId, ProviderVk
from marketplace.api.schemas.shape import Shape, text_of
from marketplace.domain.errors import Fault, NotFound
from marketplace.domain.metering.kinds import CORE, GPU
from marketplace.domain.sold import model_matches
from marketplace.domain.supply.lines import CORES, fitting, lines
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.units import WHOLE
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.records import Job, Lease, OfferRecord
from marketplace.market.context import Market
from marketplace.market.core.ending import LIVE
from marketplace.market.jobs import views
from marketplace.market.placement import expected
from marketplace.market.state.in_use import in_use
from marketplace.market.upkeep import popular, series
from marketplace.version import release

health = APIRouter(tags=["health"])
router = APIRouter(
    prefix="/v1",
    tags=["market"],
    dependencies=[Depends(public)],
    responses=documented(400, 404, 422, 429, 503),
)


@health.get("/healthz", summary="The process answers")
async def healthz() -> Annotated[dict[str, Any], Shape(supply.Alive)]:
    """Nothing more."""
    return {"status": "ok"}


@health.get(
    "/readyz", summary="It can work", responses=documented(503), response_model=supply.Ready
)
async def readyz(parts: PartsDep) -> Response:
    """The store answers and the view of it is loaded. `chain` is `away` while the chain does not
    answer: what needs none goes on.
    """
    try:
        await parts.market.store.ping()
    except Fault as fault:
        return problem(503, fault.code, fault.message, fault.remedy)
    if not parts.ready:
        return problem(503, "NOT_READY", "the market is still loading")
    if not parts.network_known:
        return problem(503, "CHAIN_AWAY", f"never seen: {parts.chain_fault}")
    chain = "away" if parts.chain_fault else "none" if parts.market.ledger is None else "ready"
    return JSONResponse({"status": "ready", "chain": chain, "chain_fault": parts.chain_fault})


@health.get(
    "/metrics",
    summary="Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": text_of("Prometheus' text format")}}},
)
async def metrics() -> Response:
    """Counters of this process."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@router.get("/network", summary="Which chain, scripts and version")
async def network(parts: PartsDep) -> Annotated[dict[str, Any], Shape(supply.Network)]:
    """Facts that a client checks against its own chain."""
    facts: dict[str, Any] = {"magic": parts.market.settings.magic, "version": release()}
    facts["asset"] = ""
    facts["chain"] = parts.market.ledger is not None or bool(parts.chain_fault)
    if parts.market.ledger is not None:
        facts |= await parts.market.ledger.network()
    facts["chain_away"] = bool(parts.chain_fault)
    return facts


def _listed(record: OfferRecord) -> bool:
    return record.state is OfferState.LISTED and not record.away_ms


@router.get("/offers", summary="Standing supply")
async def offers(
    parts: PartsDep,
    cursor: Cursor = "",
    limit: Limit = 50,
    model: Annotated[
        str, Query(max_length=80, description="with such a device, e.g. `H100`; or `cores`")
    ] = "",
    region: Annotated[str, Query(max_length=40, description="in this region")] = "",
    min_vram_mib: Annotated[
        int, Query(ge=0, le=2**40, description="with a device of so much memory, MiB")
    ] = 0,
    max_rate_micro: Annotated[
        int,
        Query(
            ge=0,
            le=2**53,
            description="at most so dear, micro-lovelace a second of one such device; of one core"
            " with `model=cores` and for an offer without devices; 0: any",
        ),
    ] = 0,
    image: Annotated[
        str,
        Query(max_length=300, description="say what a start of it takes: `name@sha256:…`, public"),
    ] = "",
    all_states: Annotated[
        bool, Query(alias="all", description="also those that are not LISTED")
    ] = False,
) -> Annotated[dict[str, Any], Shape(supply.Offers)]:
    """Filtered by device model, region, device memory and price."""
    found: list[OfferRecord] = []
    after = place_in(cursor, 1)
    while len(found) <= limit:
        page = await parts.market.store.find(OfferRecord, order=("id",), after=after, limit=500)
        found += [
            record
            for record in page
            if (all_states or _listed(record))
            and _wanted(record, model, region, min_vram_mib, max_rate_micro)
        ]
        if len(page) < 500:
            break
        after = (page[-1].id,)
    market = parts.market
    items = [await views.offer_now(market, r, market.directory.free(r.id)) for r in found[:limit]]
    if image:
        for one in items:
            one["expected_start"] = await expected.told(market, image, one["id"], "")
    return page_of(items, found[: limit + 1], limit, lambda r: (r.id,))


def _wanted(record: OfferRecord, model: str, region: str, vram: int, rate: int) -> bool:
    offer = record.offer
    if region and (offer.region or offer.host.region) != region:
        return False
    return not (model or vram or rate) or bool(fitting(offer, model, vram, rate))


@router.get("/images/popular", summary="Images that many run", tags=["images"])
async def popular_images(parts: PartsDep) -> Annotated[dict[str, Any], Shape(images.PopularImages)]:
    """What a provider may fetch before it is asked (`images.ahead` of its configuration)."""
    items = [asdict(one) for one in await popular.popular(parts.market)]
    return {"items": items, "next": None}


@router.get("/offers/{offer_id}", summary="One offer")
async def offer(
    offer_id: OfferId, parts: PartsDep
) -> Annotated[dict[str, Any], Shape(supply.Offer)]:
    """With what is free now."""
    record = await parts.market.store.get(OfferRecord, offer_id)
    if record is None:
        raise NotFound(f"no offer {offer_id}")
    return await views.offer_now(parts.market, record, parts.market.directory.free(record.id))


@router.get("/providers", summary="Providers")
async def providers(
    parts: PartsDep, cursor: Cursor = "", limit: Limit = 50
) -> Annotated[dict[str, Any], Shape(supply.Providers)]:
    """By key."""
    found = await parts.market.store.find(
        OfferRecord, order=("provider",), after=place_in(cursor, 1), limit=limit + 1
    )
    items = [await _provider_row(parts.market, record) for record in found[:limit]]
    return page_of(items, found, limit, lambda r: (r.provider,))


async def _provider_row(market: Market, record: OfferRecord) -> dict[str, Any]:
    shown = await views.offer_now(market, record)
    return {
        "id": record.provider,
        "name": shown["name"],
        "offer": record.id,
        "state": shown["state"],
        "connected": not record.away_ms and bool(record.process),
        "region": shown["region"],
        "devices": {line.model: len(line.devices) or record.offer.host.cpu.milli // WHOLE
                    for line in lines(record.offer)},
        "simulated": shown["simulated"],
        "earned": await market.store.total(Lease, "owed", provider=record.provider),
        "leases": shown["leases"],
        "lost": shown["lost"],
        "uptime_milli": shown["uptime_milli"],
        "since_ms": record.created_ms,
        "seen_at_ms": record.seen_ms,
        "away_since_ms": record.away_ms,
    }  # fmt: skip


@router.get("/providers/{provider}", summary="One provider: earnings, devices, why it lost")
async def provider(
    provider: ProviderVk, parts: PartsDep
) -> Annotated[dict[str, Any], Shape(supply.Provider)]:
    """What the market's book says of it; its vouchers and the chain are the proof."""
    market = parts.market
    found = await market.store.find(OfferRecord, provider=provider, limit=1)
    if not found:
        raise NotFound("no such provider")
    record = found[0]
    shown = await views.offer_now(market, record, market.directory.free(record.id))
    running = await market.store.count(Lease, provider=provider, state=LIVE)
    earned = await market.store.total(Lease, "owed", provider=provider)
    why = None
    if record.id in market.directory.matchmaker.fleet.row_of:
        losses = market.directory.matchmaker.why_lost(record.id)
        why = {"text": str(losses), "asked": losses.asked, "won": losses.won, "lost": losses.lost,
               "reasons": dict(losses.reasons)}  # fmt: skip
    return {
        "id": provider,
        "name": shown["name"],
        "region": shown["region"],
        "offer": shown,
        "connected": not record.away_ms and bool(record.process),
        "suspended": bool(record.suspended),
        "leases": shown["leases"],
        "running": running,
        "lost": shown["lost"],
        "uptime_milli": shown["uptime_milli"],
        "uptime": await series.presence(market, provider),
        "since_ms": record.created_ms,
        "earned": earned,
        "why_lost": why,
    }


@router.get(
    "/devices", summary="Devices by model, and cores: how many, how many free, from what price"
)
async def devices(parts: PartsDep) -> Annotated[dict[str, Any], Shape(supply.Models)]:
    """Listed offers only; cores that are rented alone are the last row."""
    rows: dict[str, dict[str, Any]] = {}
    directory = parts.market.directory
    for record, one in directory.offers():
        free = directory.free(record.id)
        for line in lines(one):
            rate = line.rate_micro
            simulated = any(g.simulated for g in line.devices)
            row = rows.setdefault(
                line.model,
                {"model": line.model, "resource": (GPU if line.devices else CORE).name,
                 "vram_mib": line.vram_mib, "count": 0, "free": 0, "simulated": simulated,
                 "rate_micro_min": rate, "rate_micro_max": rate},
            )  # fmt: skip
            if line.devices:
                row["count"] += len(line.devices)
                row["free"] += sum(free.get(g.uuid, -1) == g.share for g in line.devices)
            else:
                row["count"] += one.host.cpu.milli // WHOLE
                row["free"] += directory.free_cores_milli(record.id) // WHOLE
            row["rate_micro_min"] = min(row["rate_micro_min"], rate)
            row["rate_micro_max"] = max(row["rate_micro_max"], rate)
    found = sorted(rows.values(), key=lambda r: (r["model"] == CORES, r["model"]))
    return {"items": found, "next": None}


@router.get("/prices", summary="Recent trades by device")
async def prices(
    parts: PartsDep,
    model: Annotated[str, Query(max_length=80, description="with such a device, e.g. `H100`")] = "",
    limit: Limit = 50,
) -> Annotated[dict[str, Any], Shape(supply.Trades)]:
    """What was agreed lately, newest first."""
    states = [s for s in LeaseState if s not in (LeaseState.PROPOSED, LeaseState.OFFERED)]
    found = await parts.market.store.find(
        Lease, state=states, order=("-id",), limit=1000 if model else limit
    )
    items = [
        {"device": x.device, "resource": x.resource, "rate_micro": x.rate_micro,
         "units_milli": x.units_milli, "at_ms": x.created_ms, "simulated": x.simulated}
        for x in found
        if x.session_signature and (not model or model_matches(model, x.device))
    ]  # fmt: skip
    return {"items": items[:limit], "next": None}


@router.get("/stats", summary="The market in numbers")
async def stats(parts: PartsDep) -> Annotated[dict[str, Any], Shape(supply.Stats)]:
    """For the overview page."""
    store = parts.market.store
    use = in_use(parts.market.directory)
    return {
        "offers": use.offers,
        "gpus": use.gpus,
        "gpu_milli_held": use.gpu_milli_held,
        "core_milli": use.core_milli,
        "core_milli_held": use.core_milli_held,
        "jobs_running": await store.count(Job, state=(JobState.RUNNING, JobState.PAUSED)),
        "jobs_waiting": await store.count(Job, state=(JobState.POSTED, JobState.QUEUED)),
        "jobs_all": await store.count(Job),
    }


@router.get("/utilisation", summary="How much of the market was in use, over days")
async def utilisation(
    parts: PartsDep,
    days: Annotated[
        int, Query(ge=1, le=series.KEPT_DAYS, description="so many days, with today")
    ] = 14,
    by: Annotated[Literal["hour", "day"], Query(description="one row for each")] = "day",
) -> Annotated[dict[str, Any], Shape(supply.Utilisation)]:
    """Means over looks, one a minute; an hour or day without a look has no row. Days are UTC's;
    90 of them are kept.
    """
    width = series.HOUR_MS if by == "hour" else series.DAY_MS
    return {"items": await series.utilisation(parts.market, days, width), "next": None}
