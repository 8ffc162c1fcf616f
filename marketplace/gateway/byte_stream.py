"""One TCP connection to a port of a workload, or one terminal in it, as a websocket of bytes:
``tally job forward``, ``tally job shell``.

It takes a bearer header and nothing else, no cookie and nothing in the address, so no page in a
browser can open it. Even a port that is public to HTTP is its owner's alone here. A terminal may
be opened by the console as well: a browser sends no header of its own with a websocket, and so the
token is the first message of one that speaks :data:`SPOKEN`. A stranger's page has none to send.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final, cast

import anyio
from fastapi import APIRouter, Query, WebSocket
from pydantic import BaseModel, Field, ValidationError
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
from marketplace.domain.protocol import codec
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway.tunnel import Seat, Tunnel
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
MOST_WORDS: Final = 64
SPOKEN: Final = "tally.terminal"
TOKEN_S: float = 10
"""How long a browser has to say whose it is."""
MOST_CELLS: Final = 1000
_Cells = Annotated[int, Field(ge=1, le=MOST_CELLS, strict=True)]


class _Window(BaseModel):
    """What a caller says of its window."""

    rows: _Cells
    columns: _Cells


class _Said(BaseModel):
    """What a browser says first."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


class NoShell(Conflict):
    """An adapter that has no terminals."""

    code = "NO_SHELL"
    remedy = "run single commands with `tally job exec`, or ask the provider to upgrade"


@router.websocket("/v1/jobs/{job_id}/ports/{port}/stream")
async def stream(job_id: str, port: int, socket: WebSocket) -> None:
    """Bytes both ways, for as long as both ends hold. A refusal is a problem in the handshake's
    answer; what goes wrong later is the reason of the close.
    """
    await _serve(socket, job_id, port)


@router.websocket("/v1/jobs/{job_id}/shell")
async def shell(
    job_id: str,
    socket: WebSocket,
    command: Annotated[list[str], Query(min_length=1, max_length=MOST_WORDS)],
    rows: Annotated[int, Query(ge=1, le=MOST_CELLS)] = 24,
    columns: Annotated[int, Query(ge=1, le=MOST_CELLS)] = 80,
) -> None:
    """The same with a terminal in the workload, where *command* runs until it ends or the caller is
    gone. A message of text is ``{"rows": …, "columns": …}``: the caller's window has that size now.
    From a browser the first one is ``{"token": …}``, and a refusal is the reason of the close.
    """
    seat = Seat(tuple(command), rows, columns)
    if SPOKEN not in socket.scope["subprotocols"] or "authorization" in socket.headers:
        await _serve(socket, job_id, seat)
        return
    await socket.accept(subprotocol=SPOKEN)
    try:
        token = await _said_first(socket)
        await _serve(socket, job_id, seat, token)
    except Refusal as no:
        await _close(socket, _NO_MORE, f"{no.code}: {no.message}")
    except WebSocketDisconnect:
        return


async def _said_first(socket: WebSocket) -> str:
    """The token of a browser that has shaken hands. Unauthenticated."""
    text: str | None = None
    with anyio.move_on_after(TOKEN_S):
        text = (await socket.receive()).get("text")
    try:
        return _Said.model_validate_json(text or "").token
    except ValidationError:
        raise Unauthenticated("the first message is a token") from None


async def _serve(socket: WebSocket, job_id: str, to: int | Seat, said: str = "") -> None:
    """*said*: the token of one that is accepted already; Refusal is then its caller's to tell."""
    parts = cast(Parts, socket.app.state.parts)
    try:
        token = said or _bearer(socket)
        job = await _running(parts, job_id, to, token)
        if far := await relay.target(socket, parts, job.provider):
            named = (("authorization", f"Bearer {said}"),) if said else ()
            await relay.websocket(far, socket, beside=named)
            return
        if isinstance(to, Seat) and not parts.hub.able(job.provider, codec.SHELL):
            raise NoShell("its provider's adapter is of a version without terminals")
        async with Tunnel(parts.hub, job.provider, job.lease, to) as tunnel:
            if not said:
                await socket.accept()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stays_allowed, parts, job, to, token, socket)
                await _carry(tunnel, socket, isinstance(to, Seat))
                tasks.cancel_scope.cancel()
    except TallyError as error:
        if socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(problems.of(error))
        elif said and isinstance(error, Refusal):
            raise
        else:
            await _close(socket, _NO_MORE_BEHIND, error.message)


def _bearer(caller: HTTPConnection) -> str:
    kind, _, token = caller.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a stream of bytes needs a bearer header")
    return token.strip()


async def _running(parts: Parts, job_id: str, to: int | Seat, token: str) -> Job:
    who = await access.caller_of(parts.market, token)
    who.may("jobs")  # as exec: what a port takes may be a shell
    job = await owned_job(parts.market, who, job_id)
    if not isinstance(to, Seat) and all(one.port != to for one in job.parsed.ports):
        raise NotFound("no such port")
    if job.state is not JobState.RUNNING:
        raise Conflict(f"the job is {job.state.name}, not RUNNING")
    return job


async def _stays_allowed(
    parts: Parts, job: Job, to: int | Seat, token: str, socket: WebSocket
) -> None:
    """A key that is revoked, or over, ends what it has opened."""
    while True:
        await anyio.sleep(AGAIN_S)
        try:
            await _running(parts, job.id, to, token)
        except Refusal as no:
            await _close(socket, _NO_MORE, no.message)
            return
        except Fault:
            continue  # nobody can say now: it is asked again


async def _carry(tunnel: Tunnel, socket: WebSocket, seat: bool) -> None:
    """Until either end closes, or the caller says what it may not."""
    async with anyio.create_task_group() as tasks:

        async def outward() -> None:
            await _outward(tunnel, socket, seat)
            tasks.cancel_scope.cancel()

        tasks.start_soon(outward)
        with suppress(WebSocketDisconnect, RuntimeError):  # the caller is gone
            while data := await tunnel.receive():
                await socket.send_bytes(data)
            await _close(socket, _NO_MORE_BEHIND if tunnel.error else _DONE, tunnel.error)
        tasks.cancel_scope.cancel()


async def _outward(tunnel: Tunnel, socket: WebSocket, seat: bool) -> None:
    try:
        while (message := await socket.receive())["type"] == "websocket.receive":
            data, text = message.get("bytes"), message.get("text")
            if data is not None:
                await tunnel.send(data)
            elif not seat or text is None or (screen := _screen(text)) is None:
                allowed = "bytes, or a window's size" if seat else "bytes only"
                await _close(socket, _ONLY_BYTES, allowed)
                return
            else:
                tunnel.resize(*screen)
    except Offline as gone:
        await _close(socket, _NO_MORE_BEHIND, gone.message)
    except (WebSocketDisconnect, RuntimeError):
        return


def _screen(text: str) -> tuple[int, int] | None:
    """The size of the caller's window; None for anything else."""
    try:
        said = _Window.model_validate_json(text)
    except ValidationError:
        return None
    return said.rows, said.columns


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    """With as much of *reason* as a close can carry, of which a part may be a stranger's words."""
    shown = "".join(c if c.isprintable() else " " for c in reason)
    with suppress(RuntimeError):  # it is closed already
        await socket.close(code, shown.encode()[:_REASON].decode(errors="ignore"))
