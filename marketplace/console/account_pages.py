"""The console's pages of an account: its jobs, invoices and channels, its API keys and webhooks.

They only read. What changes something goes through ``/v1`` with the bearer token of the browser.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from marketplace.api.http.auth import PartsDep, Reader, public
from marketplace.api.routes import account as account_routes
from marketplace.api.routes import jobs as job_routes
from marketplace.console import said, series
from marketplace.console.bill_csv import bill_csv
from marketplace.console.page import COOKIE, Viewer, page
from marketplace.console.presets import images_here, sessions
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.job_machine import JobState
from marketplace.market.accounts import access
from marketplace.market.base.records import Channel, Delivery
from marketplace.market.base.story import KINDS
from marketplace.market.jobs import evidence, views
from marketplace.market.jobs.jobs import owned_job

LOG_SHOWN: Final = 64 * 1024
WAITING_SHOWN: Final = 50
router = APIRouter(include_in_schema=False, dependencies=[Depends(public)])


@router.get("/jobs")
async def jobs(
    request: Request,
    parts: PartsDep,
    who: Viewer,
    cursor: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
) -> HTMLResponse:
    """The account's jobs, newest first."""
    state = state if state in JobState.__members__ else ""
    found = await job_routes.list_jobs(parts, who, cursor=cursor, limit=25, state=state)
    return page(
        request, "jobs", who, found=found, state=state, states=list(JobState.__members__),
        sessions=sessions(images_here(parts.market)),
    )  # fmt: skip


@router.get("/jobs/{job_id}")
async def job(request: Request, job_id: str, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """Where it stands, what it costs, what it says."""
    mine = await owned_job(parts.market, who, job_id)
    view = await views.job_view(parts.market, mine)
    story = await job_routes.history(job_id, parts, who, cursor="", limit=200)
    told = await job_routes.logs(job_id, request, parts, who)
    text = bytes(told.body)
    start = max(0, len(text) - LOG_SHOWN)
    outputs = await job_routes.outputs(job_id, parts, who)
    return page(
        request, "job", who, job=view, story=said.story(story["items"]), outputs=outputs["items"],
        log=text[start:].decode(errors="replace"), log_lease=told.headers["X-Lease"],
        log_end=len(text),
    )  # fmt: skip


@router.get("/jobs/{job_id}/invoice")
async def invoice(request: Request, job_id: str, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """The bill; the browser recomputes it from what was signed."""
    mine = await owned_job(parts.market, who, job_id)
    view = await views.job_view(parts.market, mine)
    bill = await evidence.invoice_view(parts.market, mine)
    return page(request, "invoice", who, job=view, bill=bill)


@router.get("/jobs/{job_id}/invoice.csv")
async def invoice_csv(job_id: str, parts: PartsDep, who: Viewer) -> Response:
    """The bill for a spreadsheet, as the market states it."""
    mine = await owned_job(parts.market, who, job_id)
    view = await views.job_view(parts.market, mine)
    bill = await evidence.invoice_view(parts.market, mine)
    return Response(
        bill_csv(view, bill), media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{job_id}.csv"'},
    )  # fmt: skip


@router.get("/channels")
async def channels(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """Where the account's money is."""
    found = await parts.market.store.find(Channel, account=who.account, limit=1000)
    found.sort(key=lambda c: -c.created_ms)
    rows = [await views.channel_view(parts.market, c) for c in found[:100]]
    return page(request, "channels", who, channels=rows)


@router.get("/account")
async def account(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """Who is signed in, and where its money is."""
    found = await parts.market.store.find(Channel, account=who.account, limit=1000)
    open_now = [c for c in found if c.state != ChannelStage.ENDED and not c.settled_tx]
    jobs_now = await job_routes.list_jobs(parts, who, cursor="", limit=5, state="")
    market = parts.market
    owed = await series.owed_now(market, account=who.account)
    leases = await series.since(market, account=who.account)
    days = series.by_day([(x.created_ms, owed.get(x.id, x.owed)) for x in leases], market.now)
    return page(
        request, "account", who, channels=len(open_now), all_channels=len(found), days=days,
        jobs=jobs_now["items"],
    )  # fmt: skip


@router.get("/account/keys")
async def keys(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """API keys; their secrets were shown once."""
    found = (await account_routes.list_keys(parts, who))["items"]
    newest = list(reversed(found))
    return page(request, "keys", who, keys=newest, verbs=access.VERBS, now=parts.market.now)


@router.get("/account/webhooks")
async def webhooks(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """Who is told of what, and what could not be told yet."""
    store = parts.market.store
    found = (await account_routes.list_hooks(parts, who))["items"]
    urls = {hook["id"]: hook["url"] for hook in found}
    waiting = await store.find(
        Delivery, hook=list(urls), done_ms=0, order=("next_ms", "id"), limit=WAITING_SHOWN
    )
    rows = [
        {"url": urls[d.hook], "kind": d.body.get("kind", ""), "job": d.body.get("job", ""),
         "at_ms": d.body.get("at_ms", 0), "attempts": d.attempts, "next_ms": d.next_ms}
        for d in waiting
    ]  # fmt: skip
    return page(request, "webhooks", who, hooks=found, waiting=rows, kinds=list(KINDS))


# ---- the session of the pages --------------------------------------------------------------------


@router.post("/session")
async def start_session(request: Request, who: Reader) -> JSONResponse:
    """Lets the pages be read by the account of this bearer token."""
    answer = JSONResponse({"account": who.account})
    token = request.headers.get("authorization", "").partition(" ")[2]
    answer.set_cookie(
        COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return answer


@router.post("/session/end")
async def end_session() -> JSONResponse:
    """Forget the reader."""
    answer = JSONResponse({})
    answer.delete_cookie(COOKIE)
    return answer
