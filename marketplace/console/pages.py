"""The console: pages rendered here from the same functions as the API, so that they read without
JavaScript; ``web/assets`` adds what a wallet and a live page need. No build step, no inline script.

A page of an account knows its reader by a cookie that only these pages take, and only for reading:
whatever changes something goes through ``/v1`` with a bearer token, so there is nothing to forge
across sites.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marketplace.api.http.auth import Parts, PartsDep, public
from marketplace.api.routes import public as market_routes
from marketplace.console import account_pages, api_page, series, supply_pages, work_pages
from marketplace.console.assets import Assets
from marketplace.console.page import MaybeViewer, SignInFirst, page
from marketplace.console.presets import images_here, presets, sessions
from marketplace.console.rendering import environment
from marketplace.domain.errors import Malformed, NotFound, TallyError, Unauthenticated
from marketplace.domain.isolation import Isolation
from marketplace.domain.site import origin_of
from marketplace.market.upkeep import series as upkeep

_NOT_PAGES: Final = ("/v1", "/openapi.json", "/p/", "/metrics", "/healthz", "/readyz")
CHAIN_COOKIE: Final = "tally_chain"
"""The origin of the chain's face that this browser's owner chose (`web/assets/chain/chosen.js`)."""

router = APIRouter(include_in_schema=False, dependencies=[Depends(public)])


# ---- for everybody ---------------------------------------------------------------------------


@router.get("/")
async def market(request: Request, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """Devices, how much of them is and was in use, and what was paid lately."""
    now = parts.market.now

    async def days() -> dict[str, Any]:
        means = await upkeep.utilisation(parts.market, series.DAYS_SHOWN, series.DAY_MS)
        return series.in_use(means, now)

    devices = (await market_routes.devices(parts))["items"]
    trades = (await market_routes.prices(parts, limit=50))["items"]
    stats = await market_routes.stats(parts)
    used = await series.minutely(request.app, "in_use", now, days)
    return page(request, "market", who, devices=devices, trades=trades, stats=stats, used=used)


_INSIDE: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path of ours. Browsers take any number of slashes, either way round, for another host's, and
leave out what cannot be seen.
"""


@router.get("/sign-in")
async def sign_in(
    request: Request, who: MaybeViewer, to: Annotated[str, Query(max_length=300)] = "/jobs"
) -> HTMLResponse:
    """With any CIP-30 wallet."""
    return page(request, "sign-in", who, to=to if _INSIDE.fullmatch(to) else "/jobs")


@router.get("/jobs/new")
async def new_job(request: Request, parts: PartsDep, who: MaybeViewer) -> HTMLResponse:
    """The form; its quote is live."""
    devices = (await market_routes.devices(parts))["items"]
    images = images_here(parts.market)  # what a provider has by name is asked for by its digest
    regions = {one.region or one.host.region for _, one in parts.market.directory.offers()}
    return page(
        request, "new", who, devices=devices, images=sorted(images.items()),
        isolations=[*Isolation], regions=sorted(regions - {""}), presets=presets(),
        sessions=sessions(images),
    )  # fmt: skip


# ---- wiring ------------------------------------------------------------------------------------


def _policy(*chain_urls: str) -> str:
    """Scripts, styles and connections from here alone, and the chain's faces: the public one that
    this market names, and the one that this browser's owner chose to read the chain at.
    """
    chain = "".join(f" {origin}" for origin in dict.fromkeys(map(_place, chain_urls)) if origin)
    return (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        f"img-src 'self' data:; font-src 'self'; connect-src 'self'{chain}; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'; frame-src 'self'"
    )


def _place(url: str) -> str:
    """Its origin; empty for anything else, whoever wrote it."""
    try:
        return origin_of(url)
    except Malformed:
        return ""


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
        chosen = Request(scope).cookies.get(CHAIN_COOKIE, "")
        screen = scope["path"] == work_pages.SCREEN
        policy = work_pages.SCREEN_POLICY if screen else _policy(await self.chain_url(), chosen)

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
    app.state.templates = environment(lambda: parts.market.now, lambda: parts.market.exchange)
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
    app.include_router(supply_pages.router)
    app.include_router(work_pages.router)
    app.include_router(account_pages.router)
    app.include_router(api_page.router)
    app.mount("/assets", Assets(), name="assets")


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
