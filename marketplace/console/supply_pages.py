"""The console's pages of supply: offers, providers, and what a job would be matched with."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from marketplace.api.http.auth import PartsDep, public
from marketplace.api.routes import public as market_routes
from marketplace.console import series
from marketplace.console.page import MaybeViewer, page
from marketplace.console.rendering import per_hour, per_second
from marketplace.domain.isolation import Isolation
from marketplace.domain.sold import model_matches, nominal_least
from marketplace.domain.supply.lines import CORES
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Placement, Policy, Price, Range, Resources
from marketplace.market.base.records import Lease
from marketplace.market.jobs import jobs

_HOUR_MS: Final = 3_600_000

Hourly = Annotated[str, Query(max_length=14, pattern=r"^\d{0,7}([.,]\d{0,6})?$")]
"""The most that a device may cost, ADA an hour."""
Rate = Annotated[str, Query(max_length=9, pattern=r"^\d*$")]
"""Prices in lovelace a second, as older links have them."""

router = APIRouter(include_in_schema=False, dependencies=[Depends(public)])


def _capped(hourly: str, rate: str) -> tuple[int, str]:
    """The cap in micro-lovelace a second, 0 for none, and in ADA an hour for the form."""
    micro = per_second(hourly) or int(rate or 0) * 1_000_000
    return micro, hourly or per_hour(micro)


@router.get("/offers")
async def offers(
    request: Request,
    parts: PartsDep,
    who: MaybeViewer,
    model: Annotated[str, Query(max_length=80)] = "",
    region: Annotated[str, Query(max_length=40)] = "",
    vram: Annotated[str, Query(max_length=6, pattern=r"^\d*$")] = "",
    hourly: Hourly = "",
    rate: Rate = "",
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Standing supply; *vram* in GB."""
    micro, hourly = _capped(hourly, rate)
    wanted = {"model": model, "region": region, "vram": vram, "hourly": hourly}
    found = await market_routes.offers(
        parts, cursor=cursor, limit=50, model=model, region=region,
        min_vram_mib=nominal_least(int(vram or 0) * 1024),
        max_rate_micro=micro, all_states=False,
    )  # fmt: skip
    models = [d["model"] for d in (await market_routes.devices(parts))["items"]]
    cards = [_card(one, model, int(vram or 0), micro) for one in found["items"]]
    filtered, why = any(wanted.values()), None
    if filtered and not found["items"] and not cursor:
        spec = _asked(model=model, region=region, vram=int(vram or 0), micro=micro)
        told = await jobs.explain(parts.market, spec, who.account if who else "")
        why = told["explain"]
    return page(
        request, "offers", who, found=found, cards=cards, wanted=wanted, models=models,
        filtered=filtered, why=why,
    )  # fmt: skip


def _card(offer: dict[str, Any], model: str, vram: int, micro: int) -> dict[str, Any]:
    """What of an offer its card shows: the devices that the filter is about, else its cores."""
    devices = [
        g for g in offer["gpus"]
        if (not model or model_matches(model, g["model"]))
        and g["vram_mib"] >= nominal_least(vram * 1024)
        and (not micro or g["rate_micro"] <= micro)
    ]  # fmt: skip
    shown = min((g["rate_micro"] for g in devices), default=offer["core_rate_micro"])
    return {"offer": offer, "devices": devices, "rate_micro": shown}


def _asked(
    *, model: str, region: str, vram: int, micro: int, count: int = 1,
    isolation: Isolation = Isolation.CONTAINER,
) -> JobSpec:  # fmt: skip
    """An hour of the devices of a filter, as a job asks for them: *vram* in GB, *micro*: the most
    that one may cost, micro-lovelace a second.
    """
    models = (model,) if model else ()
    need, cap = (
        Resources(gpu=GpuNeed(models, Range(count, count), Range(nominal_least(vram * 1024)))),
        (micro, 0),
    )
    if model.strip().lower() == CORES:
        need, cap = Resources(cpu=Range(count * 1000)), (0, micro)
    budget = count * (micro or 10**12) * _HOUR_MS // 10**9 + 1  # no reason of its own
    return JobSpec(
        "asked", "any" if isolation.takes_image else "", ("any",), (need,),
        placement=Placement((region,) if region else (), isolation),
        price=Price(*cap, budget), policy=Policy(_HOUR_MS),
    )  # fmt: skip


@router.get("/explain")
async def explain(
    request: Request,
    parts: PartsDep,
    who: MaybeViewer,
    model: Annotated[str, Query(max_length=80)] = "",
    region: Annotated[str, Query(max_length=40)] = "",
    vram: Annotated[str, Query(max_length=6, pattern=r"^\d*$")] = "",
    hourly: Hourly = "",
    rate: Rate = "",
    count: Annotated[str, Query(max_length=3, pattern=r"^\d*$")] = "1",
    isolation: Isolation = Isolation.CONTAINER,
) -> HTMLResponse:
    """What a job would be matched with; if nothing, why, and what would."""
    count = str(max(1, int(count or 1)))
    micro, hourly = _capped(hourly, rate)
    wanted = {"model": model, "region": region, "vram": vram, "hourly": hourly, "count": count,
              "isolation": isolation.value}  # fmt: skip
    spec = _asked(
        model=model, region=region, vram=int(vram or 0), micro=micro, count=int(count),
        isolation=isolation,
    )  # fmt: skip
    answer = await jobs.explain(parts.market, spec, who.account if who else "")
    models = [d["model"] for d in (await market_routes.devices(parts))["items"]]
    return page(
        request,
        "explain",
        who,
        wanted=wanted,
        answer=answer,
        models=models,
        isolations=[*Isolation],
    )


@router.get("/offers/{offer_id}")
async def offer(request: Request, offer_id: str, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """One offer and its devices."""
    return page(request, "offer", who, offer=await market_routes.offer(offer_id, parts))


@router.get("/providers")
async def providers(
    request: Request,
    parts: PartsDep,
    who: MaybeViewer,
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Who offers."""
    found = await market_routes.providers(parts, cursor=cursor, limit=50)
    return page(request, "providers", who, found=found)


@router.get("/providers/{provider}")
async def provider(
    request: Request, provider: str, parts: PartsDep, who: MaybeViewer
) -> HTMLResponse:
    """Earnings, leases, the health of its devices, and why it lost requests."""
    view = await market_routes.provider(provider, parts)
    market = parts.market
    leases = await market.store.find(Lease, provider=provider, order=("-id",), limit=25)
    owed = await series.owed_now(market, provider=provider)
    # What others rent is theirs: only what a public price list would show.
    rows = [
        {"state": x.state.name, "reason": x.reason, "device": x.device, "rate_micro": x.rate_micro,
         "owed": owed.get(x.id, x.owed), "created_at_ms": x.created_ms, "simulated": x.simulated}
        for x in leases
    ]  # fmt: skip
    recent = await series.since(market, provider=provider)
    days = series.by_day([(x.created_ms, owed.get(x.id, x.owed)) for x in recent], market.now)
    there = series.presence(view["uptime"], market.now)
    return page(
        request,
        "provider",
        who,
        provider=view,
        leases=rows,
        days=days,
        due=sum(owed.values()),
        there=there,
    )


@router.get("/prices")
async def prices(request: Request, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """What was agreed for each model, day by day."""
    market = parts.market

    async def found() -> list[dict[str, Any]]:
        return series.prices(await series.since(market), market.now)

    lines = await series.minutely(request.app, "prices", market.now, found)
    return page(request, "prices", who, found=lines)
