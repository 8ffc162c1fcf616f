"""Gangs: jobs whose members are placed all together or not at all."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from marketplace.api.http.auth import Parts, PartsDep, Reader, Worker
from marketplace.api.http.idempotency import OnceKey, answered, question_of
from marketplace.api.http.jobforms import posted
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.routes.jobs import QUOTE_WAIT_S
from marketplace.api.schemas import jobs as shapes
from marketplace.api.schemas.names import GangId
from marketplace.api.schemas.requests import (
    GangBody,
    GangFileBody,
    GangKeys,
    job_forms,
)
from marketplace.api.schemas.shape import Shape
from marketplace.domain.errors import Conflict
from marketplace.domain.work.job_machine import JobState
from marketplace.market.accounts.access import Caller
from marketplace.market.jobs import gangs, views

router = APIRouter(prefix="/v1", tags=["gangs"], responses=documented(*EVERYWHERE))


@router.post(
    "/gangs",
    status_code=201,
    summary="Post a gang: all members are matched, or none",
    response_model=shapes.Gang,
    openapi_extra=job_forms(GangFileBody, GangBody, GangKeys),
)
async def post_gang(
    request: Request, parts: PartsDep, who: Worker, key: OnceKey = ""
) -> JSONResponse:
    """Each member is a job of its own, to be signed and paid like any other; when one fails, all
    end.
    """
    question = await question_of(request)
    known = await answered(parts, who, key, question)
    if known is None:
        given = await posted(request, parts, who, GangKeys)
        asked = gangs.Posting(
            spec=given.spec,
            session_vks=tuple(bytes.fromhex(x) for x in given.beside.session_vks),
            consumer_vkh=bytes.fromhex(given.beside.consumer_vkh or who.account),
            once=(key, question) if key else None,
        )
        try:
            gang = await gangs.post(parts.market, who, asked)
        except Conflict:
            known = await answered(parts, who, key, question)
            if known is None:
                raise
            gang = str(known.answer["id"])
    else:
        gang = str(known.answer["id"])
    await _until_quoted(parts, gang)
    return JSONResponse(await _view(parts, who, gang), 201, {"Location": f"/v1/gangs/{gang}"})


async def _until_quoted(parts: Parts, gang: str) -> None:
    """A little, for what the providers say."""
    market = parts.market
    _, made = await market.gang(gang)
    with market.bus.listening(*(f"job:{job.id}" for job in made)) as inbox:
        with anyio.move_on_after(QUOTE_WAIT_S):
            while any(job.state is JobState.POSTED for job in made):
                await inbox.wait(0.5)
                _, made = await market.gang(gang)


async def _view(parts: Parts, who: Caller, gang: str) -> dict[str, Any]:
    made = await gangs.owned(parts.market, who, gang)
    members = await views.job_views(parts.market, made)
    return {
        "id": gang,
        "members": members,
        "spent": sum(member["spent"] for member in members),
        "ceiling": sum(member["ceiling"] for member in members),
        "budget": sum(member["budget"] for member in members),
    }


@router.get("/gangs/{gang_id}", summary="One gang: its members' jobs, and what they cost together")
async def get_gang(
    gang_id: GangId, parts: PartsDep, who: Reader
) -> Annotated[dict[str, Any], Shape(shapes.Gang)]:
    """The members' invoices add up to what was spent."""
    return await _view(parts, who, gang_id)


@router.post("/gangs/{gang_id}/stop", summary="End all members of a gang")
async def stop_gang(
    gang_id: GangId, parts: PartsDep, who: Worker
) -> Annotated[dict[str, Any], Shape(shapes.Gang)]:
    """Twice is once."""
    await gangs.stop(parts.market, who, gang_id)
    return await _view(parts, who, gang_id)
