"""Ports of a workload at one URL through the market: ``/p/{job}/{port}/…``, HTTP and websockets.

What a workload serves is a stranger's page on the market's own host, so every document is put in a
sandbox of its own (CSP), and neither the caller's credential nor the market's cookies reach it.
The prefix is stripped; ``X-Forwarded-Prefix`` names it. Where ports have origins of their own
(:mod:`app_origins`), a person who comes here is sent on; programs are answered here as well.
"""

from __future__ import annotations

from typing import Final, cast
from urllib.parse import quote

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import RedirectResponse, Response
from starlette.requests import HTTPConnection

from marketplace.api.http import relay
from marketplace.api.http.auth import Parts
from marketplace.domain.app_origin import AppDomain, Place
from marketplace.domain.errors import Conflict, Fault, NotFound, TallyError, Unauthenticated
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway import http_stream, socket_stream
from marketplace.gateway.faces import UnderTheMarket, query
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.accounts import access, ports
from marketplace.market.base.records import Job

router = APIRouter(include_in_schema=False)
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
COOKIE: Final = "tally_port"


async def _target(parts: Parts, job_id: str, port: int, given: tuple[str, str]) -> Job:
    """The running job, if this caller may reach this port of it; *given*: :func:`_given`."""
    token, cookie = given
    job = await parts.market.store.get(Job, job_id)
    if job is None:
        raise NotFound("no such port")
    if ports.declared(job, port) != "public":
        if token:
            who = await access.caller_of(parts.market, token)
        elif cookie:
            who = await ports.port_caller(parts.market, cookie, job_id, port)
        else:
            raise Unauthenticated("this port needs a bearer header, or ?token=… at its first load")
        who.may("jobs")  # as exec: what a port serves may be a shell
        if who.account != job.account:
            raise NotFound("no such port")
    if job.state is not JobState.RUNNING:
        raise Conflict(f"the job is {job.state.name}, not RUNNING")
    return job


def _given(caller: HTTPConnection, in_address: bool) -> tuple[str, str]:
    """(session token or API key, this port's own token). *in_address*: where a browser has no other
    way to say who it is, its first load of a page and a websocket, the first may be ``?token=``.
    """
    bearer = caller.headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip(), ""
    asked = caller.query_params.get("token", "") if in_address else ""
    return asked, "" if asked else caller.cookies.get(COOKIE, "")


async def _remember(
    response: Response, request: Request, job: Job, port: int, prefix: str
) -> Response:
    """With a cookie that opens this port and no other, nor anything else of the market's."""
    if ports.declared(job, port) == "public":
        return response  # nobody looked at the token: it may be anything
    parts, token = cast(Parts, request.app.state.parts), request.query_params["token"]
    try:
        made = await ports.port_token(parts.market, token, job.id, port)
    except Fault:
        return response  # the page is shown; the next one asks again
    response.set_cookie(
        COOKIE, made, path=f"{prefix}/", httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


async def _sent_on(request: Request, domain: AppDomain, job: Job, port: int, token: str) -> str:
    """The page that was asked for, at the port's own origin."""
    parts = cast(Parts, request.app.state.parts)
    raw = cast(bytes, request.scope["raw_path"]).decode("ascii").split("/", 4)
    place = Place(job.id, port)
    page = "/" + (raw[4] if len(raw) > 4 else "") + query(request.url.query, "token")
    if ports.declared(job, port) == "public":
        return domain.origin(place) + page
    parts.rates.spend(f"ticket:{job.account}", parts.market.settings.logins_per_minute)
    made, _ = await ports.ticket(parts.market, token, place)
    return f"{domain.entrance(place, made)}&to={quote(page, safe='')}"


@router.api_route("/p/{job_id}/{port}/{path:path}", methods=METHODS)
async def http(job_id: str, port: int, path: str, request: Request) -> Response:
    """One request, streamed both ways for as long as it takes."""
    parts = cast(Parts, request.app.state.parts)
    reads = request.method in ("GET", "HEAD")
    who = _given(request, in_address=reads)
    job = await _target(parts, job_id, port, who)
    prefix, domain = f"/p/{job_id}/{port}", parts.market.apps
    given = bool(who[0]) and who[0] == request.query_params.get("token")
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        if domain is not None and (given or ports.declared(job, port) == "public"):
            return RedirectResponse(await _sent_on(request, domain, job, port, who[0]), 303)
        if given:
            # A page could read the address that it was shown at, and its scripts are a stranger's.
            raw = cast(bytes, request.scope["raw_path"]).decode("ascii")
            clean = RedirectResponse(raw + query(request.url.query, "token"), 303)
            return await _remember(clean, request, job, port, prefix)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    tunnel = Tunnel(parts.hub, job.provider, job.lease, port)
    target = _quoted(f"/{path}") + query(request.url.query, "token")
    response = await http_stream.answer(request, tunnel, target, UnderTheMarket(prefix))
    return await _remember(response, request, job, port, prefix) if given else response


def _quoted(path: str) -> str:
    raw = path.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if 33 <= b < 127 and b not in b"%?#" else f"%{b:02X}" for b in raw)


@router.websocket("/p/{job_id}/{port}/{path:path}")
async def websocket(job_id: str, port: int, path: str, socket: WebSocket) -> None:
    """A websocket to a websocket, for as long as both hold. The workload hears of no cookie: a page
    here has no name that one could be kept under.
    """
    parts = cast(Parts, socket.app.state.parts)
    try:
        job = await _target(parts, job_id, port, _given(socket, in_address=True))
        if far := await relay.target(socket, parts, job.provider):
            await relay.websocket(far, socket)
            return
        tunnel = Tunnel(parts.hub, job.provider, job.lease, port)
        target = _quoted(f"/{path}") + query(socket.url.query, "token")
        await socket_stream.carry(socket, tunnel, f"workload:{port}", target, [])
    except TallyError as error:
        await socket.close(1008, error.code[:120])
