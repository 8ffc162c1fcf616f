"""The console: pages rendered here from the same functions as the API, so that they read without
JavaScript; ``web/assets`` adds what a wallet and a live page need. No build step, no inline script.

A page of an account knows its reader by a cookie that only these pages take, and only for reading:
whatever changes something goes through ``/v1`` with a bearer token, so there is nothing to forge
across sites.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marketplace.api import jobs as job_routes
from marketplace.api import public as market_routes
from marketplace.api.auth import Parts, PartsDep, Reader, public
from marketplace.api.rendering import environment, folder
from marketplace.api.version import release
from marketplace.domain.errors import NotFound, TallyError, Unauthenticated
from marketplace.domain.job import JobState
from marketplace.service import access, views
from marketplace.service.access import Caller
from marketplace.service.jobs import owned_job
from marketplace.service.records import Channel, Lease

COOKIE: Final = "tally_session"
LOG_SHOWN: Final = 64 * 1024
_NOT_PAGES: Final = ("/v1", "/docs", "/openapi.json", "/p/", "/metrics", "/healthz", "/readyz")

router = APIRouter(include_in_schema=False, dependencies=[Depends(public)])


class SignInFirst(Exception):
    """This page belongs to an account, and nobody is signed in."""


async def viewer(request: Request, parts: PartsDep) -> Caller | None:
    """Who is signed in to the pages, if anybody."""
    token = request.cookies.get(COOKIE, "")
    if not token.startswith(access.KEY_PREFIX + "s_"):
        return None
    try:
        return await access.caller_of(parts.market, token)
    except TallyError:
        return None


MaybeViewer = Annotated[Caller | None, Depends(viewer)]


async def signed_in(who: MaybeViewer) -> Caller:
    """The reader, or the way to the sign-in page."""
    if who is None:
        raise SignInFirst
    return who


Viewer = Annotated[Caller, Depends(signed_in)]


def page(request: Request, name: str, who: Caller | None, **values: Any) -> HTMLResponse:
    """One template."""
    templates = cast(Environment, request.app.state.templates)
    parts = cast(Parts, request.app.state.parts)
    html = templates.get_template(f"{name}.html").render(
        page=name, account=who.account if who else "", magic=parts.market.settings.magic,
        path=request.url.path, version=release(), **values,
    )  # fmt: skip
    return HTMLResponse(html, headers={"Cache-Control": "no-store"})


# ---- for everybody ---------------------------------------------------------------------------


@router.get("/")
async def market(request: Request, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """Devices, how much of them is in use, and what was paid lately."""
    devices = (await market_routes.devices(parts))["items"]
    trades = (await market_routes.prices(parts, limit=50))["items"]
    stats = await market_routes.stats(parts)
    return page(request, "market", who, devices=devices, trades=trades, stats=stats)


@router.get("/offers")
async def offers(
    request: Request,
    parts: PartsDep,
    who: MaybeViewer,
    model: Annotated[str, Query(max_length=80)] = "",
    region: Annotated[str, Query(max_length=40)] = "",
    vram: Annotated[str, Query(max_length=6, pattern=r"^\d*$")] = "",
    rate: Annotated[str, Query(max_length=9, pattern=r"^\d*$")] = "",
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Standing supply; *vram* in GB, *rate* in lovelace a second."""
    wanted = {"model": model, "region": region, "vram": vram, "rate": rate}
    found = await market_routes.offers(
        parts, cursor=cursor, limit=50, model=model, region=region,
        min_vram_mib=int(vram or 0) * 1000, max_rate_micro=int(rate or 0) * 1_000_000,
        all_states=False,
    )  # fmt: skip
    models = [d["model"] for d in (await market_routes.devices(parts))["items"]]
    return page(request, "offers", who, found=found, wanted=wanted, models=models)


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
    leases = await parts.market.store.find(Lease, provider=provider, order=("-id",), limit=25)
    # What others rent is theirs: only what a public price list would show.
    rows = [
        {"state": x.state.name, "reason": x.reason, "device": x.device, "rate_micro": x.rate_micro,
         "owed": x.owed, "created_at_ms": x.created_ms, "simulated": x.simulated}
        for x in leases
    ]  # fmt: skip
    return page(request, "provider", who, provider=view, leases=rows)


@router.get("/sign-in")
async def sign_in(
    request: Request, who: MaybeViewer, to: Annotated[str, Query(max_length=300)] = "/jobs"
) -> HTMLResponse:
    """With any CIP-30 wallet."""
    parsed = urlsplit(to)
    inside = to.startswith("/") and not parsed.netloc and "\\" not in to
    return page(request, "sign-in", who, to=to if inside else "/jobs")


@router.get("/jobs/new")
async def new_job(request: Request, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """The form; its quote is live."""
    devices = (await market_routes.devices(parts))["items"]
    images: dict[str, str] = {}
    regions: set[str] = set()
    for _, one in parts.market.matcher.offers():
        # What a provider has by name is asked for by its digest.
        images |= {
            name.removeprefix("image/"): digest
            for name, digest in one.labels.items()
            if name.startswith("image/")
        }
        regions.add(one.region or one.host.region)
    return page(
        request, "new", who, devices=devices, images=sorted(images.items()),
        regions=sorted(regions - {""}),
    )  # fmt: skip


# ---- for an account ----------------------------------------------------------------------------


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
    return page(request, "jobs", who, found=found, state=state, states=list(JobState.__members__))


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
        request, "job", who, job=view, story=story["items"], outputs=outputs["items"],
        log=text[start:].decode(errors="replace"), log_lease=told.headers["X-Lease"],
        log_end=len(text),
    )  # fmt: skip


@router.get("/jobs/{job_id}/invoice")
async def invoice(request: Request, job_id: str, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """The bill; the browser recomputes it from what was signed."""
    mine = await owned_job(parts.market, who, job_id)
    view = await views.job_view(parts.market, mine)
    bill = await views.invoice_view(parts.market, mine)
    return page(request, "invoice", who, job=view, bill=bill)


@router.get("/channels")
async def channels(request: Request, parts: PartsDep, who: Viewer) -> HTMLResponse:
    """Where the account's money is."""
    found = await parts.market.store.find(Channel, account=who.account, limit=1000)
    found.sort(key=lambda c: -c.created_ms)
    rows = [await views.channel_view(parts.market, c) for c in found[:100]]
    return page(request, "channels", who, channels=rows)


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


# ---- wiring ------------------------------------------------------------------------------------


def _policy(chain_url: str) -> str:
    """Scripts, styles and connections from here alone, and the chain's public face for the invoice."""
    at = urlsplit(chain_url)
    chain = f" {at.scheme}://{at.netloc}" if at.scheme in ("http", "https") and at.netloc else ""
    return (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        f"img-src 'self' data:; font-src 'self'; connect-src 'self'{chain}; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


class Guard:
    """ASGI middleware: the pages' security headers; what the API answers is left alone."""

    def __init__(self, app: ASGIApp, chain_url: Callable[[], Awaitable[str]]) -> None:
        self.app = app
        self.chain_url = chain_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"].startswith(_NOT_PAGES):
            await self.app(scope, receive, send)
            return
        policy = _policy(await self.chain_url())

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"
            await send(message)

        await self.app(scope, receive, guarded)


def install(app: FastAPI, parts: Parts) -> None:
    """Add the pages, after every route of the API."""
    app.state.templates = environment()
    known = {"chain": "?"}

    async def chain_url() -> str:
        if known["chain"] == "?":
            ledger = parts.market.ledger
            if ledger is None and parts.chain_fault:
                return ""  # it is still to come
            try:
                facts = await ledger.network() if ledger is not None else {}
            except TallyError:
                return ""  # asked again with the next page
            known["chain"] = str(facts.get("chain_url") or "")
        return known["chain"]

    app.add_middleware(Guard, chain_url=chain_url)

    async def ask_to_sign_in(request: Request, _: Exception) -> Response:
        to = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/sign-in?to={quote(to, safe='')}", 303)

    app.add_exception_handler(SignInFirst, ask_to_sign_in)
    _errors_as_pages(app)
    app.include_router(router)
    app.mount("/assets", StaticFiles(directory=folder() / "assets"), name="assets")


def _errors_as_pages(app: FastAPI) -> None:
    """A person who follows a wrong link gets a page, a program its problem details."""
    for kind in (TallyError, HTTPException):
        before = cast(
            "Callable[[Request, Exception], Awaitable[Response]]", app.exception_handlers[kind]
        )

        async def shown(
            request: Request,
            error: Exception,
            before: Callable[[Request, Exception], Awaitable[Response]] = before,
        ) -> Response:
            plain = await before(request, error)
            wants = "text/html" in request.headers.get("accept", "")
            if not wants or request.url.path.startswith((*_NOT_PAGES, "/assets")):
                return plain
            code = getattr(error, "code", NotFound.code if plain.status_code == 404 else "REFUSED")
            if isinstance(error, Unauthenticated):
                return await _to_sign_in(request)
            answer = page(
                request, "error", None, code=code, status=plain.status_code,
                message=getattr(error, "message", str(getattr(error, "detail", ""))),
                remedy=getattr(error, "remedy", ""),
            )  # fmt: skip
            answer.status_code = plain.status_code
            return answer

        app.add_exception_handler(kind, shown)


async def _to_sign_in(request: Request) -> Response:
    return RedirectResponse(f"/sign-in?to={quote(request.url.path, safe='')}", 303)
