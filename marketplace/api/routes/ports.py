"""The ports of a running job's workload: opened in a browser, shared with others."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import Given, Parts, PartsDep, Reader, Worker, public, spend
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, once
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.schemas import ports as shapes
from marketplace.api.schemas.names import JobId, LinkId, PortNumber
from marketplace.api.schemas.requests import LinkBody
from marketplace.api.schemas.shape import Shape
from marketplace.domain.app_origin import AppDomain, Place
from marketplace.domain.errors import NotFound, Unauthenticated
from marketplace.market.accounts import ports
from marketplace.market.base.errors import NoAppDomain
from marketplace.market.base.records import Job, PortLink
from marketplace.market.jobs import services
from marketplace.market.jobs.jobs import owned_job

router = APIRouter(
    prefix="/v1/jobs/{job_id}/ports/{port}", tags=["ports"], responses=documented(*EVERYWHERE)
)

names = APIRouter(
    prefix="/v1", tags=["ports"], responses=documented(*EVERYWHERE), dependencies=[Depends(public)]
)


@names.get("/app-origins", summary="Whether a name is of a port of a job, or of a service")
async def known(
    parts: PartsDep,
    domain: Annotated[str, Query(max_length=260, description="the name, without a scheme")],
) -> Annotated[dict[str, Any], Shape(shapes.KnownOrigin)]:
    """For a proxy that asks before it has a certificate made (Caddy's `on_demand_tls`); 404 if
    not.
    """
    place = None if parts.market.apps is None else parts.market.apps.place(domain)
    if place is None:
        raise NotFound("no workload has this name")
    if place.name:
        await services.at(parts.market, place)
        return {"known": True}
    job = await parts.market.store.get(Job, place.job)
    if job is None:
        raise NotFound("no workload has this name")
    ports.declared(job, place.port)
    return {"known": True}


@router.post("/tickets", summary="An address that opens a port in one browser, once")
async def ticket(
    request: Request, job_id: JobId, port: PortNumber, parts: PartsDep, who: Worker, given: Given
) -> Annotated[dict[str, Any], Shape(shapes.Ticket)]:
    """A browser that loads it within a minute is in, for as long as the credential lasts that asked
    for it. It holds no credential that opens anything else.
    """
    domain, job = domain_of(parts), await owned_job(parts.market, who, job_id)
    if given is None:
        raise Unauthenticated("this needs a sign-in token or an API key")
    ports.declared(job, port)
    spend(request, parts, f"ticket:{who.account}", parts.market.settings.logins_per_minute)
    place = Place(job.id, port)
    made, until = await ports.ticket(parts.market, given.credentials, place)
    return {"url": domain.entrance(place, made), "expires_at_ms": until}


@router.post(
    "/links", status_code=201, response_model=shapes.NewLink, summary="Share a port by a link"
)
async def share(
    request: Request, job_id: JobId, port: PortNumber, body: LinkBody, parts: PartsDep,
    who: Worker, key: OnceKey = "",
) -> JSONResponse:  # fmt: skip
    """Whoever has the link may do with this port what its owner may, until it expires or is ended,
    and nothing else. One that an API key made ends with that key.
    """
    domain, job = domain_of(parts), await owned_job(parts.market, who, job_id)
    ports.declared(job, port)

    async def make(remember: Remember) -> Answer:
        made, secret = await ports.share(
            parts.market, who, job, port, body.lasts_ms,
            lambda made: remember({**link_view(made), "url": None}),
        )  # fmt: skip
        return {**link_view(made), "url": domain.entrance(Place(job.id, port), secret)}

    return await once(request, parts, who, key, make)


@router.get("/links", summary="The links that open a port")
async def links(
    job_id: JobId, port: PortNumber, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.PortLinks)]:
    """Without their secrets."""
    job = await owned_job(parts.market, who, job_id)
    ports.declared(job, port)
    return {"items": [link_view(one) for one in await ports.links(parts.market, job, port)]}


@router.delete("/links/{link_id}", summary="End a link")
async def end_link(
    job_id: JobId, port: PortNumber, link_id: LinkId, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.EndedLink)]:
    """At once, also for those who came in by it; their open websockets end within half a minute."""
    job = await owned_job(parts.market, who, job_id)
    await ports.end_link(parts.market, who, job, port, link_id)
    return {"id": link_id, "ended": True}


def domain_of(parts: Parts) -> AppDomain:
    """:class:`NoAppDomain`."""
    if parts.market.apps is None:
        raise NoAppDomain("this market has no domain under which ports have addresses of their own")
    return parts.market.apps


def link_view(one: PortLink) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "id": one.id,
        "port": one.port,
        "created_at_ms": one.created_ms,
        "expires_at_ms": one.expires_ms,
    }
