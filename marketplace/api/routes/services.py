"""Services: one address, balanced over those of an account's jobs that it puts into rotation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import Given, Parts, PartsDep, Reader, Worker, spend
from marketplace.api.http.idempotency import Answer, OnceKey, Remember, once
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.routes.ports import domain_of, link_view
from marketplace.api.schemas import ports as port_shapes
from marketplace.api.schemas import services as shapes
from marketplace.api.schemas.names import JobId, LinkId, ServiceName
from marketplace.api.schemas.requests import LinkBody, ReplicaBody, ServiceBody
from marketplace.api.schemas.shape import Shape
from marketplace.domain.app_origin import Place
from marketplace.domain.errors import Unauthenticated
from marketplace.market.accounts import ports
from marketplace.market.base.records import Job, Replica, Service
from marketplace.market.jobs import services

router = APIRouter(prefix="/v1/services", tags=["services"], responses=documented(*EVERYWHERE))


@router.get("", summary="An account's services")
async def mine(parts: PartsDep, who: Reader) -> Annotated[dict[str, Any], Shape(shapes.Services)]:
    """All of them, by name."""
    found = await services.of_account(parts.market, who.account)
    return {"items": [await _view(parts, one) for one in found]}


@router.put("/{name}", summary="A service: an address for what several jobs serve")
async def put(
    name: ServiceName, body: ServiceBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Service)]:
    """Made, or changed where it is there. Which jobs answer, `PUT …/replicas/{job_id}` says."""
    wanted = services.Wanted(body.auth, body.sticky, body.hold_ms)
    return await _view(parts, await services.put(parts.market, who, name, wanted))


@router.get("/{name}", summary="One service")
async def get(
    name: ServiceName, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Service)]:
    """Its replicas, and what passes to them."""
    return await _view(parts, await services.owned(parts.market, who, name))


@router.delete("/{name}", summary="End a service")
async def end(
    name: ServiceName, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.EndedService)]:
    """Its address opens nothing any more, nor do its links; its jobs run on. One of the same name
    has another address.
    """
    await services.end(parts.market, who, name)
    return {"name": name, "ended": True}


@router.get("/{name}/load", summary="What passes to a service")
async def load(
    name: ServiceName,
    parts: PartsDep,
    who: Reader,
    wait_s: Annotated[
        int,
        Query(ge=0, le=30, description="answer after so long, or as soon as a request is held"),
    ] = 0,
) -> Annotated[dict[str, Any], Shape(shapes.ServiceLoad)]:
    """Counted once a second; a first request that is held tells at once."""
    service = await services.owned(parts.market, who, name)
    return _load_view(await services.load_soon(parts.market, service.id, wait_s))


@router.put("/{name}/replicas/{job_id}", summary="A job into rotation, or out of it")
async def put_replica(
    name: ServiceName, job_id: JobId, body: ReplicaBody, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Replica)]:
    """From the answer on, no new request goes to one that is not `serving`; those that it has
    begun with go on.
    """
    made = await services.put_replica(parts.market, who, name, job_id, body.port, body.serving)
    now = await services.load_now(parts.market, made.service)
    job = await parts.market.store.get(Job, job_id)
    return _replica_view(made, job, now)


@router.delete("/{name}/replicas/{job_id}", summary="A job is no replica any more")
async def drop_replica(
    name: ServiceName, job_id: JobId, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.DroppedReplica)]:
    """It runs on. Twice is once."""
    await services.drop_replica(parts.market, who, name, job_id)
    return {"job": job_id, "dropped": True}


@router.post("/{name}/tickets", summary="An address that opens a service in one browser, once")
async def ticket(
    request: Request, name: ServiceName, parts: PartsDep, who: Worker, given: Given
) -> Annotated[dict[str, Any], Shape(port_shapes.Ticket)]:
    """As for a port of a job."""
    domain, service = domain_of(parts), await services.owned(parts.market, who, name)
    if given is None:
        raise Unauthenticated("this needs a sign-in token or an API key")
    spend(request, parts, f"ticket:{who.account}", parts.market.settings.logins_per_minute)
    place = place_of(service)
    made, until = await ports.ticket(parts.market, given.credentials, place)
    return {"url": domain.entrance(place, made), "expires_at_ms": until}


@router.post(
    "/{name}/links",
    status_code=201,
    response_model=port_shapes.NewLink,
    summary="Share a service by a link",
)
async def share(
    request: Request, name: ServiceName, body: LinkBody, parts: PartsDep, who: Worker,
    key: OnceKey = "",
) -> JSONResponse:  # fmt: skip
    """As for a port of a job; it opens whatever replica is asked."""
    domain, service = domain_of(parts), await services.owned(parts.market, who, name)

    async def make(remember: Remember) -> Answer:
        made, secret = await ports.share(
            parts.market, who, service, 0, body.lasts_ms,
            lambda made: remember({**link_view(made), "url": None}),
        )  # fmt: skip
        return {**link_view(made), "url": domain.entrance(place_of(service), secret)}

    return await once(request, parts, who, key, make)


@router.get("/{name}/links", summary="The links that open a service")
async def links(
    name: ServiceName, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(port_shapes.PortLinks)]:
    """Without their secrets."""
    service = await services.owned(parts.market, who, name)
    return {"items": [link_view(one) for one in await ports.links(parts.market, service, 0)]}


@router.delete("/{name}/links/{link_id}", summary="End a link to a service")
async def end_link(
    name: ServiceName, link_id: LinkId, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(port_shapes.EndedLink)]:
    """At once, also for those who came in by it; their open websockets end within half a minute."""
    service = await services.owned(parts.market, who, name)
    await ports.end_link(parts.market, who, service, 0, link_id)
    return {"id": link_id, "ended": True}


def place_of(service: Service) -> Place:
    """Where it is met."""
    return Place(service.id, 0, service.name)


async def _view(parts: Parts, service: Service) -> dict[str, Any]:
    market = parts.market
    replicas = await services.rotation(market, service.id)
    names = [one.job for one in replicas]
    jobs = {job.id: job for job in await market.store.find(Job, id=names)} if names else {}
    now = await services.load_now(market, service.id)
    return {
        "id": service.id,
        "name": service.name,
        "auth": service.auth,
        "sticky": service.sticky,
        "hold_ms": service.hold_ms,
        "created_at_ms": service.created_ms,
        "url": f"{market.apps.origin(place_of(service))}/" if market.apps else "",
        "replicas": [_replica_view(one, jobs.get(one.job), now) for one in replicas],
        "load": _load_view(now),
    }


def _replica_view(one: Replica, job: Job | None, now: services.LoadNow) -> dict[str, Any]:
    return {
        "job": one.job,
        "port": one.port,
        "serving": one.serving,
        "busy": now.by_job.get(one.job, 0),
        "state": job.state.name if job is not None else "ENDED",
        "provider": job.provider if job is not None else "",
    }


def _load_view(now: services.LoadNow) -> dict[str, Any]:
    return {
        "busy": now.busy,
        "held": now.held,
        "requests": now.requests,
        "failed": now.failed,
    }
