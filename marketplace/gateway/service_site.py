"""A service's address: each request goes to the replica in rotation that has the fewest under way.

A request that does no harm twice is asked again of another replica where one goes away before it
has answered: one of a method that says so (RFC 9110, section 9.2.2), or with an
``Idempotency-Key``, if its body is small enough to be kept. Any other is asked again only where
nothing of it was sent, and else refused with :class:`ReplicaLost`. Where none is in rotation a
request waits for one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from marketplace.api.http import relay
from marketplace.api.http.auth import Parts
from marketplace.api.http.streamed import Streamed
from marketplace.domain.errors import TallyError
from marketplace.domain.work.job_machine import JobState
from marketplace.gateway import http_stream, socket_stream
from marketplace.gateway.faces import Face
from marketplace.gateway.tunnel import Tunnel
from marketplace.market.base.errors import (
    Elsewhere,
    NoReplica,
    Offline,
    ReplicaLost,
    Unreached,
)
from marketplace.market.base.records import Job, Replica, Service
from marketplace.market.jobs import services
from marketplace.market.state.loads import MOST_HELD, Load

STICKY: Final = "tally_replica"
KEPT_BODY: Final = 256 * 1024
WHOLE: Final = 64 * 1024
"""An answer that says to have no more is here to its end before any of it is passed on: where its
replica goes away in the midst of it, another can give all of it.
"""
MOST_TRIES: Final = 6
_LOOK_S: Final = 1.0
_REPEATS: Final = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
_Taken = tuple[Replica, Job, ExitStack]
"""Who is asked, and what ends once it has answered: until then it counts as asked."""


@dataclass
class _Asked:
    """A request, or a socket, until it is answered."""

    service: Service
    load: Load
    until_ms: int
    kept: str  # the replica that this browser stays with; empty: none
    missed: set[str] = field(default_factory=set[str])
    tries: int = 0


class ServiceSite:
    """All services of one process."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    # ---- HTTP ------------------------------------------------------------------------------

    async def http(self, request: Request, service: Service, target: str, face: Face) -> Response:
        """*request*, whose sender may be let in, answered by a replica at *target*."""
        if _chosen(request):
            return await self._chosen_http(request, service, target, face)
        load = self.parts.market.loads.of(service.id)
        load.requests += 1
        try:
            return await self._http(request, self._asked(request, service, load), target, face)
        except TallyError:
            load.failed += 1
            load.untold = True
            raise

    async def _http(self, request: Request, asked: _Asked, target: str, face: Face) -> Response:
        repeats = request.method in _REPEATS or "idempotency-key" in request.headers
        content = await _small(request) if repeats else None
        again = repeats and (content is not None or not _has_body(request))
        while True:
            replica, job, stack = await self._replica(asked)
            try:
                answer = await self._ask(request, replica, job, target, face, content)
            except (Offline, Elsewhere) as error:
                stack.close()
                self._missed(asked, job.id, error, again)
                continue
            except BaseException:
                stack.close()
                raise
            asked.load.answered(job.id)
            answer.then(stack.close)
            if asked.service.sticky and asked.kept != job.id:
                said = f"{STICKY}={job.id}; Path=/; HttpOnly; SameSite=Lax"
                answer.raw_headers.append((b"set-cookie", said.encode()))
            return answer

    async def _ask(
        self,
        request: Request,
        replica: Replica,
        job: Job,
        target: str,
        face: Face,
        content: bytes | None,
    ) -> Streamed:
        far = await relay.target(request, self.parts, job.provider)
        if not far:
            tunnel = Tunnel(self.parts.hub, job.provider, job.lease, replica.port)
            return await http_stream.answer(
                request, tunnel, target, face, content=content, whole=WHOLE
            )
        chosen = ((relay.REPLICA, job.id),)
        answer = await relay.http(far, request, request.headers["host"], content, chosen)
        said = answer.headers.get(relay.REPLICA)
        if said is not None:
            await answer.leave()
            raise Unreached("it is not there") if said == "unreached" else Offline("it went away")
        return answer

    async def _chosen_http(
        self, request: Request, service: Service, target: str, face: Face
    ) -> Response:
        """For another process of this market, which chose the replica and asks again elsewhere."""
        try:
            replica, job = await self._chosen(request, service)
            content = None if not _has_body(request) else await _small(request)
            return await self._ask(request, replica, job, target, face, content)
        except Offline as error:
            said = "unreached" if isinstance(error, Unreached) else "lost"
            return Response(status_code=503, headers={relay.REPLICA: said})

    # ---- websockets ------------------------------------------------------------------------

    async def socket(
        self, socket: WebSocket, service: Service, target: str, headers: list[tuple[str, str]]
    ) -> None:
        """*socket* carried to a replica for as long as both hold."""
        host = socket.headers["host"]
        if _chosen(socket):
            replica, job = await self._chosen(socket, service)
            tunnel = Tunnel(self.parts.hub, job.provider, job.lease, replica.port)
            await socket_stream.carry(socket, tunnel, host, target, headers)
            return
        load = self.parts.market.loads.of(service.id)
        load.requests += 1
        asked = self._asked(socket, service, load)
        try:
            while True:
                replica, job, stack = await self._replica(asked)
                try:
                    with stack:
                        await self._carry(socket, replica, job, target, headers)
                    return
                except (Offline, Elsewhere) as error:
                    # Before it is accepted nothing of what the browser sends was passed on.
                    self._missed(asked, job.id, error, _open(socket))
        except TallyError:
            load.failed += 1
            load.untold = True
            raise

    async def _carry(
        self,
        socket: WebSocket,
        replica: Replica,
        job: Job,
        target: str,
        headers: list[tuple[str, str]],
    ) -> None:
        host = socket.headers["host"]
        if far := await relay.target(socket, self.parts, job.provider):
            await relay.websocket(far, socket, host, ((relay.REPLICA, job.id),))
            return
        tunnel = Tunnel(self.parts.hub, job.provider, job.lease, replica.port)
        await socket_stream.carry(socket, tunnel, host, target, headers)

    # ---- who is asked ----------------------------------------------------------------------

    def _asked(self, caller: HTTPConnection, service: Service, load: Load) -> _Asked:
        until = self.parts.market.now + service.hold_ms
        kept = caller.cookies.get(STICKY, "") if service.sticky else ""
        return _Asked(service, load, until, kept)

    async def _replica(self, asked: _Asked) -> _Taken:
        """The next to ask, as soon as there is one; NoReplica after the service's own patience."""
        market, load = self.parts.market, asked.load
        found = await self._pick(asked)
        if found is not None:
            return found
        if load.held >= MOST_HELD:
            raise NoReplica("no replica is in rotation, and too many wait for one")
        with (
            load.holding(),
            market.bus.listening(services.topic_of(asked.service.id)) as inbox,
        ):
            await services.tell_load_of(market, asked.service.id)
            while True:
                found = await self._pick(asked)
                if found is not None:
                    return found
                left = (asked.until_ms - market.now) / 1000
                if left <= 0:
                    raise NoReplica("no replica came into rotation in time")
                if not await inbox.wait(min(left, _LOOK_S)):
                    asked.missed.clear()  # it may answer again

    async def _pick(self, asked: _Asked) -> _Taken | None:
        market = self.parts.market
        ready = {
            one.job: one
            for one in await services.rotation(market, asked.service.id)
            if one.serving and one.job not in asked.missed
        }
        while ready:
            with ExitStack() as stack:
                name = asked.load.pick(ready, market.now, asked.kept)
                # At once: whoever chooses while this one's job is read sees that it is chosen.
                stack.enter_context(asked.load.asking(name))
                job = await market.store.get(Job, name)
                if job is not None and job.state is JobState.RUNNING:
                    return ready[name], job, stack.pop_all()
            del ready[name]
        return None

    def _missed(self, asked: _Asked, job: str, error: TallyError, again: bool) -> None:
        """Who did not answer is asked last for a while; raises where nobody else may be asked."""
        asked.load.missed(job, self.parts.market.now)
        asked.missed.add(job)
        asked.tries += 1
        if asked.tries >= MOST_TRIES or not (again or isinstance(error, Unreached)):
            raise ReplicaLost(f"the replica that was asked did not answer: {error.message}") from (
                error
            )

    async def _chosen(self, caller: HTTPConnection, service: Service) -> tuple[Replica, Job]:
        market, name = self.parts.market, caller.headers.get(relay.REPLICA, "")
        replica, job = await market.store.get(Replica, name), await market.store.get(Job, name)
        if replica is None or replica.service != service.id or job is None:
            raise Unreached("no such replica")
        return replica, job


def _chosen(caller: HTTPConnection) -> bool:
    """Whether another process of this market has chosen already. Whoever else says so gets one
    replica of those that he may reach anyway, and nobody asks again for him.
    """
    return relay.MARK in caller.headers and relay.REPLICA in caller.headers


def _open(socket: WebSocket) -> bool:
    return socket.application_state is WebSocketState.CONNECTING


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or bool(
        int(request.headers.get("content-length") or 0)
    )


async def _small(request: Request) -> bytes | None:
    """The whole body, if it says to be small; None leaves it unread."""
    if not _has_body(request):
        return b""
    said = request.headers.get("content-length")
    if said is None or int(said) > KEPT_BODY:
        return None
    return await request.body()
