"""Ports of a workload at one URL through the market: ``/p/{job}/{port}/…``, HTTP and websockets.

What a workload serves is a stranger's page on the market's own host, so every document is put in a
sandbox of its own (CSP), and neither the caller's credential nor the market's cookies reach it.
The prefix is stripped; ``X-Forwarded-Prefix`` names it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final, cast
from urllib.parse import unquote_plus

import anyio
import h11
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from marketplace.api.http import relay
from marketplace.api.http.auth import Parts
from marketplace.domain.errors import Conflict, Fault, NotFound, TallyError, Unauthenticated
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.accounts import access
from marketplace.market.base.errors import Offline
from marketplace.market.base.records import Job

router = APIRouter(include_in_schema=False)
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
COOKIE: Final = "tally_port"
SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals"
_SITE_WIDE: Final = frozenset(  # answers that speak for the whole host, which is the market's
    {"content-security-policy", "clear-site-data", "strict-transport-security", "alt-svc", "nel",
     "report-to", "reporting-endpoints", "service-worker-allowed", "www-authenticate"}
)  # fmt: skip
_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "transfer-encoding", "upgrade", "authorization", "cookie"}
)  # fmt: skip


async def _target(parts: Parts, job_id: str, port: int, given: tuple[str, str]) -> Job:
    """The running job, if this caller may reach this port of it; *given*: :func:`_given`."""
    token, cookie = given
    job = await parts.market.store.get(Job, job_id)
    declared = {p.port: p.auth for p in job.parsed.ports} if job is not None else {}
    if job is None or port not in declared:
        raise NotFound("no such port")
    if declared[port] != "public":
        if token:
            who = await access.caller_of(parts.market, token)
        elif cookie:
            who = await access.port_caller(parts.market, cookie, job_id, port)
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


def _query(raw: str) -> str:
    kept = [part for part in raw.split("&") if part and unquote_plus(part.split("=")[0]) != "token"]
    return "?" + "&".join(kept) if kept else ""


def _foreign_cookies(value: str) -> str:
    kept = [c.strip() for c in value.split(";") if not c.strip().lower().startswith("tally_")]
    return "; ".join(kept)


def _own_cookie(value: str, prefix: str) -> str:
    """A workload's cookie, for its own paths; nothing for one of the market's names, or of none: a
    browser sends that one's value alone, which may read as a name (RFC 6265bis, 5.7).
    """
    pair, *attributes = [part.strip() for part in value.split(";")]
    name, named, _ = pair.partition("=")
    if not named or not name.strip() or name.strip().lower().startswith("tally_"):
        return ""
    kept = [a for a in attributes if a.partition("=")[0].strip().lower() not in ("path", "domain")]
    return "; ".join([pair, *kept, f"Path={prefix}/"])


def _shown(head: h11.Response, prefix: str) -> list[tuple[bytes, bytes]]:
    """The workload's headers that are a browser's business."""
    shown: list[tuple[bytes, bytes]] = []
    for name, value in head.headers:
        lower = name.lower()
        if lower == b"set-cookie":
            value = _own_cookie(value.decode("latin-1"), prefix).encode("latin-1")
        if value and lower.decode() not in _HOP | _SITE_WIDE:
            shown.append((lower, value))
    return shown


async def _remember(
    response: Response, request: Request, job: Job, port: int, prefix: str
) -> Response:
    """With a cookie that opens this port and no other, nor anything else of the market's."""
    if any(p.port == port and p.auth == "public" for p in job.parsed.ports):
        return response  # nobody looked at the token: it may be anything
    parts, token = cast(Parts, request.app.state.parts), request.query_params["token"]
    try:
        made = await access.port_token(parts.market, token, job.id, port)
    except Fault:
        return response  # the page is shown; the next one asks again
    response.set_cookie(
        COOKIE, made, path=f"{prefix}/", httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


@router.api_route("/p/{job_id}/{port}/{path:path}", methods=METHODS)
async def http(job_id: str, port: int, path: str, request: Request) -> Response:
    """One request, streamed both ways for as long as it takes."""
    parts = cast(Parts, request.app.state.parts)
    reads = request.method in ("GET", "HEAD")
    who = _given(request, in_address=reads)
    job = await _target(parts, job_id, port, who)
    prefix, given = (
        f"/p/{job_id}/{port}",
        bool(who[0]) and who[0] == request.query_params.get("token"),
    )
    if given and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        # A page could read the address that it was shown at, and its scripts are a stranger's.
        clean = cast(bytes, request.scope["raw_path"]).decode("ascii") + _query(request.url.query)
        return await _remember(RedirectResponse(clean, 303), request, job, port, prefix)
    if far := await relay.target(request, parts, job.provider):
        return await relay.http(far, request)
    stack = AsyncExitStack()
    try:
        tunnel = await stack.enter_async_context(Tunnel(parts.hub, job.provider, job.lease, port))
        talk = h11.Connection(h11.CLIENT)
        await _ask(talk, tunnel, request, f"/{path}", prefix)
        head = await _head(talk, tunnel)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await stack.aclose()
        raise

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                event = await _event(talk, tunnel)
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif not isinstance(event, h11.InformationalResponse):
                    return
        finally:
            with anyio.CancelScope(shield=True):
                await stack.aclose()

    response = StreamingResponse(body(), head.status_code)
    response.raw_headers = _shown(head, prefix)
    response.headers["Content-Security-Policy"] = SANDBOX
    response.headers["X-Content-Type-Options"] = "nosniff"
    return await _remember(response, request, job, port, prefix) if given else response


async def _ask(
    talk: h11.Connection, tunnel: Tunnel, request: Request, path: str, prefix: str
) -> None:
    """The request line, the headers that are the workload's business, and the body."""
    headers = [
        (n, v) for n, v in request.headers.items()
        if n.lower() not in _HOP and not (n.lower() == "referer" and "token=" in v)
    ]  # fmt: skip
    cookies = _foreign_cookies(request.headers.get("cookie", ""))
    if cookies:
        headers.append(("cookie", cookies))
    chunked = "transfer-encoding" in request.headers
    if chunked:
        headers.append(("transfer-encoding", "chunked"))
    headers += [("x-forwarded-prefix", prefix), ("connection", "close")]
    raw_path = path.encode("utf-8", "surrogatepass")
    quoted = "".join(chr(b) if 33 <= b < 127 and b not in b"%?#" else f"%{b:02X}" for b in raw_path)
    target = quoted + _query(request.url.query)
    out = talk.send(h11.Request(method=request.method, target=target, headers=headers))
    tunnel.send(out or b"")
    if chunked or int(request.headers.get("content-length") or 0):
        async for chunk in request.stream():
            if chunk:
                await tunnel.room()
                tunnel.send(talk.send(h11.Data(data=chunk)) or b"")
    tunnel.send(talk.send(h11.EndOfMessage()) or b"")


async def _event(talk: h11.Connection, tunnel: Tunnel) -> object:
    while True:
        try:
            event = talk.next_event()
        except h11.RemoteProtocolError as error:
            raise Offline("the workload does not speak HTTP there") from error
        if event is not h11.NEED_DATA:
            return event
        talk.receive_data(await tunnel.receive())


async def _head(talk: h11.Connection, tunnel: Tunnel) -> h11.Response:
    while True:
        event = await _event(talk, tunnel)
        if isinstance(event, h11.Response):
            return event
        if not isinstance(event, h11.InformationalResponse):
            raise Offline("nothing answers on that port of the workload")


@router.websocket("/p/{job_id}/{port}/{path:path}")
async def websocket(job_id: str, port: int, path: str, socket: WebSocket) -> None:
    """A websocket to a websocket, for as long as both hold."""
    parts = cast(Parts, socket.app.state.parts)
    try:
        job = await _target(parts, job_id, port, _given(socket, in_address=True))
        if far := await relay.target(socket, parts, job.provider):
            await relay.websocket(far, socket)
            return
        async with Tunnel(parts.hub, job.provider, job.lease, port) as tunnel:
            offered = [s for s in socket.headers.get("sec-websocket-protocol", "").split(",") if s]
            uri = parse_uri(f"ws://workload:{port}/{path}{_query(socket.url.query)}")
            spoken = [Subprotocol(name.strip()) for name in offered]
            talk = ClientProtocol(uri, subprotocols=spoken or None)
            talk.send_request(talk.connect())
            _flush(talk, tunnel)
            early: list[Frame] = []
            while talk.state.name == "CONNECTING" and talk.handshake_exc is None:
                data = await tunnel.receive()
                talk.receive_data(data) if data else talk.receive_eof()
                early += [e for e in talk.events_received() if isinstance(e, Frame)]
            if talk.handshake_exc is not None:
                raise Offline("the workload refused the websocket")
            await socket.accept(subprotocol=talk.subprotocol)
            await _pump(talk, tunnel, socket, early)
    except TallyError as error:
        await socket.close(1008, error.code[:120])


async def _pump(
    talk: ClientProtocol, tunnel: Tunnel, socket: WebSocket, early: list[Frame]
) -> None:
    async with anyio.create_task_group() as tasks:

        async def outward() -> None:
            try:
                while True:
                    message = await socket.receive()
                    if message["type"] == "websocket.disconnect":
                        break
                    await tunnel.room()
                    text, data = message.get("text"), message.get("bytes")
                    if text is not None:
                        talk.send_text(text.encode())
                    else:
                        talk.send_binary(data or b"")
                    _flush(talk, tunnel)
            except (WebSocketDisconnect, RuntimeError, Offline):
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        await _inward(talk, tunnel, socket, early)
        tasks.cancel_scope.cancel()


async def _inward(
    talk: ClientProtocol, tunnel: Tunnel, socket: WebSocket, early: list[Frame]
) -> None:
    whole, kind, frames = b"", Opcode.BINARY, early
    try:
        while True:
            for event in frames:
                if event.opcode in (Opcode.TEXT, Opcode.BINARY):
                    whole, kind = bytes(event.data), event.opcode
                elif event.opcode is Opcode.CONT:
                    whole += bytes(event.data)
                elif event.opcode is Opcode.CLOSE:
                    await socket.close()
                    return
                else:
                    continue
                if event.fin and kind is Opcode.TEXT:
                    await socket.send_text(whole.decode(errors="replace"))
                elif event.fin:
                    await socket.send_bytes(whole)
            data = await tunnel.receive()
            if not data:
                break
            talk.receive_data(data)
            _flush(talk, tunnel)
            frames = [e for e in talk.events_received() if isinstance(e, Frame)]
        await socket.close()
    except (WebSocketDisconnect, RuntimeError, Offline):
        return


def _flush(talk: ClientProtocol, tunnel: Tunnel) -> None:
    for data in talk.data_to_send():
        if data:
            tunnel.send(data)
