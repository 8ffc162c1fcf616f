"""One TCP connection to a port of a workload, as a websocket of bytes: ``tally job forward``.

It takes a bearer header and nothing else, no cookie and nothing in the address, so no page in a
browser can open it. Even a port that is public to HTTP is its owner's alone here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, cast

import anyio
from fastapi import APIRouter, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState

from marketplace.api.http import problems, relay
from marketplace.api.http.auth import Parts
from marketplace.domain.errors import (
    Conflict,
    Fault,
    NotFound,
    Refusal,
    TallyError,
    Unauthenticated,
)
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.accounts import access
from marketplace.market.base.errors import Offline
from marketplace.market.base.records import Job
from marketplace.market.jobs.jobs import owned_job

router = APIRouter(include_in_schema=False)
AGAIN_S: float = 30
# Of a close: RFC 6455, sections 5.5 and 7.4.1, and the registry of its codes at IANA.
_DONE: Final = 1000
_ONLY_BYTES: Final = 1003
_NO_MORE: Final = 1008  # "policy violation"
_NO_MORE_BEHIND: Final = 1014  # "bad gateway"
_REASON: Final = 123  # bytes at most


@router.websocket("/v1/jobs/{job_id}/ports/{port}/stream")
async def stream(job_id: str, port: int, socket: WebSocket) -> None:
    """Bytes both ways, for as long as both ends hold. A refusal is a problem in the handshake's
    answer; what goes wrong later is the reason of the close.
    """
    parts = cast(Parts, socket.app.state.parts)
    try:
        token = _bearer(socket)
        job = await _running(parts, job_id, port, token)
        if far := await relay.target(socket, parts, job.provider):
            await relay.websocket(far, socket)
            return
        async with Tunnel(parts.hub, job.provider, job.lease, port) as tunnel:
            await socket.accept()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stays_allowed, parts, job, port, token, socket)
                await _carry(tunnel, socket)
                tasks.cancel_scope.cancel()
    except TallyError as error:
        if socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(problems.of(error))
        else:
            await _close(socket, _NO_MORE_BEHIND, error.message)


def _bearer(caller: HTTPConnection) -> str:
    kind, _, token = caller.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a stream of bytes needs a bearer header")
    return token.strip()


async def _running(parts: Parts, job_id: str, port: int, token: str) -> Job:
    who = await access.caller_of(parts.market, token)
    who.may("jobs")  # as exec: what a port takes may be a shell
    job = await owned_job(parts.market, who, job_id)
    if all(one.port != port for one in job.parsed.ports):
        raise NotFound("no such port")
    if job.state is not JobState.RUNNING:
        raise Conflict(f"the job is {job.state.name}, not RUNNING")
    return job


async def _stays_allowed(parts: Parts, job: Job, port: int, token: str, socket: WebSocket) -> None:
    """A key that is revoked, or over, ends what it has opened."""
    while True:
        await anyio.sleep(AGAIN_S)
        try:
            await _running(parts, job.id, port, token)
        except Refusal as no:
            await _close(socket, _NO_MORE, no.message)
            return
        except Fault:
            continue  # nobody can say now: it is asked again


async def _carry(tunnel: Tunnel, socket: WebSocket) -> None:
    """Until either end closes, or the caller says anything but bytes."""
    async with anyio.create_task_group() as tasks:

        async def outward() -> None:
            await _outward(tunnel, socket)
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        with suppress(WebSocketDisconnect, RuntimeError):  # the caller is gone
            while data := await tunnel.receive():
                await socket.send_bytes(data)
            await _close(socket, _NO_MORE_BEHIND if tunnel.error else _DONE, tunnel.error)
        tasks.cancel_scope.cancel()


async def _outward(tunnel: Tunnel, socket: WebSocket) -> None:
    try:
        while (message := await socket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                await _close(socket, _ONLY_BYTES, "bytes only")
                return
            await tunnel.send(data)
    except Offline as gone:
        await _close(socket, _NO_MORE_BEHIND, gone.message)
    except (WebSocketDisconnect, RuntimeError):
        return


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    """With as much of *reason* as a close can carry, of which a part may be a stranger's words."""
    shown = "".join(c if c.isprintable() else " " for c in reason)
    with suppress(RuntimeError):  # it is closed already
        await socket.close(code, shown.encode()[:_REASON].decode(errors="ignore"))
