"""Ports of workloads and services, at origins of their own, told apart by the request's ``Host``.

There a workload is a site like any other: cookies, storage, service workers, websockets. Of the
market a browser knows one cookie there, which opens this port and nothing else; it is set by
:data:`~marketplace.domain.app_origin.ENTER` for a ticket or a link. Other workloads are neighbours
on the same site, to whose requests a browser would add that cookie as well: so it counts only where
the page that asks is this origin's own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import anyio
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketState

from marketplace.api.http import problems, relay
from marketplace.api.http.auth import Parts
from marketplace.domain.app_origin import ENTER, AppDomain, Place
from marketplace.domain.errors import (
    Fault,
    Forbidden,
    Malformed,
    NotFound,
    Refusal,
    TallyError,
    Unauthenticated,
)
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway import app_pages, http_stream, socket_stream
from marketplace.gateway.faces import OwnOrigin, market_bearer
from marketplace.gateway.service_site import ServiceSite
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.accounts import access, ports
from marketplace.market.base.errors import AppNotRunning, AppOver
from marketplace.market.base.records import Job, Service
from marketplace.market.jobs import services

AGAIN_S: float = 30
_POLICY_VIOLATION: Final = 1008  # RFC 6455, section 7.4.1
_OVER: Final = (JobState.ENDING, JobState.ENDED)


class ByHost:
    """ASGI: what is for a name under the domain of workloads goes to *apps*, and never to *market*,
    whose pages and API have no business there.
    """

    def __init__(self, market: ASGIApp, apps: ASGIApp, parts: Parts) -> None:
        self.market, self.apps, self.parts = market, apps, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket."""
        domain = self.parts.market.apps
        if domain is not None and scope["type"] in ("http", "websocket"):
            if domain.holds(Headers(scope=scope).get("host", "")):
                await self.apps(scope, receive, send)
                return
        await self.market(scope, receive, send)


class AppSite:
    """ASGI: all origins of workloads."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self._services = parts, ServiceSite(parts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket for as long as it lasts."""
        if scope["type"] == "http":
            response = await self._answered(Request(scope, receive))
            await response(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(WebSocket(scope, receive, send))

    async def _answered(self, request: Request) -> Response:
        place: Place | None = None
        try:
            place = self._place(request)
            if request.url.path == ENTER:
                return await self._enter(request, place)
            return await self._http(request, place)
        except TallyError as error:
            if not app_pages.wanted(request):
                return problems.of(error)
            return app_pages.page(error, self.parts.public_url, place)

    async def _http(self, request: Request, place: Place) -> Response:
        host = request.headers["host"]
        if place.name:
            service = await self._service(request, place, request.method)
            face = OwnOrigin(self._domain.scheme, host)
            return await self._services.http(request, service, _target(request), face)
        job = await self._running(request, place, request.method)
        if far := await relay.target(request, self.parts, job.provider):
            return await relay.http(far, request, host)
        tunnel = Tunnel(self.parts.hub, job.provider, job.lease, place.port)
        face = OwnOrigin(self._domain.scheme, host)
        return await http_stream.answer(request, tunnel, _target(request), face)

    async def _socket(self, socket: WebSocket) -> None:
        try:
            place = self._place(socket)
            host = socket.headers["host"]
            if place.name:
                await self._service_socket(socket, place)
                return
            job = await self._running(socket, place, "websocket")
            if far := await relay.target(socket, self.parts, job.provider):
                await relay.websocket(far, socket, host)
                return
            tunnel = Tunnel(self.parts.hub, job.provider, job.lease, place.port)
            asked = OwnOrigin(self._domain.scheme, host).asked(socket.headers)
            async with self._while_allowed(socket, place):
                await socket_stream.carry(socket, tunnel, host, _target(socket), asked)
        except TallyError as error:
            if socket.application_state is WebSocketState.CONNECTING:
                await socket.send_denial_response(problems.of(error))
            else:
                with suppress(RuntimeError):  # it is closed already
                    await socket.close(_POLICY_VIOLATION, error.code[:120])

    async def _service_socket(self, socket: WebSocket, place: Place) -> None:
        service = await self._service(socket, place, "websocket")
        asked = OwnOrigin(self._domain.scheme, socket.headers["host"]).asked(socket.headers)
        async with self._while_allowed(socket, place):
            await self._services.socket(socket, service, _target(socket), asked)

    @asynccontextmanager
    async def _while_allowed(self, socket: WebSocket, place: Place) -> AsyncGenerator[None]:
        """A link that is ended, or a key that is revoked, ends what it has opened: the refusal."""
        refused: list[Refusal] = []

        async def look(scope: anyio.CancelScope) -> None:
            while not refused:
                await anyio.sleep(AGAIN_S)
                try:
                    if place.name:
                        await self._service(socket, place, "websocket")
                    else:
                        await self._running(socket, place, "websocket")
                except Refusal as no:
                    refused.append(no)
                    scope.cancel()
                except Fault:
                    continue  # nobody can say now: it is asked again

        fault: TallyError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look, tasks.cancel_scope)
            try:
                yield
            except TallyError as error:  # not as one of a group
                fault = error
            tasks.cancel_scope.cancel()
        if refused or fault is not None:
            raise refused[0] if refused else cast(TallyError, fault)

    async def _enter(self, request: Request, place: Place) -> Response:
        """A ticket or a link for a cookie, and on to the page that was meant."""
        if request.method != "GET":
            raise Malformed("an entrance is loaded as a page")
        to = request.query_params.get("to", "/")
        if not to.startswith("/") or to[1:2] in ("/", "\\"):
            raise Malformed("`to` is a path of this origin")
        kept, until = await ports.enter(
            self.parts.market, request.query_params.get("key", ""), place
        )
        response = RedirectResponse(to, 303, {"Referrer-Policy": "no-referrer"})
        response.headers["Cache-Control"] = "no-store"
        response.set_cookie(
            self._cookie, kept, max_age=max(1, (until - self.parts.market.now) // 1000), path="/",
            httponly=True, samesite="lax", secure=self._domain.secure,
        )  # fmt: skip
        return response

    @property
    def _domain(self) -> AppDomain:
        return cast(AppDomain, self.parts.market.apps)

    @property
    def _cookie(self) -> str:
        # A browser takes one of this prefix for no other host than this (RFC 6265bis, 4.1.3.2): no
        # neighbour can put his own in its place. Without TLS there is no such thing.
        return "__Host-tally_app" if self._domain.secure else "tally_app"

    def _place(self, caller: HTTPConnection) -> Place:
        place = self._domain.place(caller.headers.get("host", ""))
        if place is None:
            raise NotFound("no workload has this address")
        return place

    async def _running(self, caller: HTTPConnection, place: Place, method: str) -> Job:
        """The job, if this caller may reach this port of it, and it runs."""
        job = await self.parts.market.store.get(Job, place.job)
        if job is None:
            raise NotFound("no workload has this address")
        if ports.declared(job, place.port) != "public":
            await self._let_in(caller, job, place.port, method)
        if job.state in _OVER:
            raise AppOver("the job that this page was of has ended")
        if job.state is not JobState.RUNNING:
            raise AppNotRunning(f"its job is {job.state.name}")
        return job

    async def _service(self, caller: HTTPConnection, place: Place, method: str) -> Service:
        """The service, if this caller may reach it."""
        market = self.parts.market
        service = await services.at(market, place)
        if service.auth != "public":
            await self._let_in(caller, service, place.port, method)
        return service

    async def _let_in(
        self, caller: HTTPConnection, owned: ports.Owned, port: int, method: str
    ) -> None:
        market = self.parts.market
        token = market_bearer(caller.headers.get("authorization", ""))
        kept = caller.cookies.get(self._cookie, "")
        if token:
            who = await access.caller_of(market, token)
            who.may("jobs")  # as exec: what a port serves may be a shell
            if who.account != owned.account:
                raise NotFound("no workload has this address")
        elif not kept:
            raise Unauthenticated("this page is its owner's: open it from its job, or its service")
        elif not _from_here(caller.headers, method):
            raise Forbidden("another site's page asks for this one")
        else:
            await ports.may_pass(market, kept, owned, port)


def _from_here(headers: Headers, method: str) -> bool:
    """Whether a page of this very origin asks, or a person who goes to it: by what browsers say
    since 2023 (Fetch Metadata Request Headers, W3C), and the older ones' ``Origin``.
    """
    goes_to = (
        method == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none") and not goes_to:
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers["host"].lower()


def _target(caller: HTTPConnection) -> str:
    """Path and query as they came; Malformed for what is no path (``*``, another's address)."""
    raw = cast(bytes, caller.scope["raw_path"]).decode("ascii")
    if not raw.startswith("/"):
        raise Malformed("what is asked for is a path")
    return raw + (f"?{caller.url.query}" if caller.url.query else "")
