"""The door before Distribution: it keeps each namespace within its quota, says what lies in one,
and knows when nothing is being pushed, so that what no manifest names can be collected.

All else is Distribution's own: requests pass as they are, and it checks each token itself. A body
is read only for a token that allows the push; what is uploaded is counted as it comes, so nobody
gets beyond his quota by one endless layer.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Final

import anyio
import anyio.to_thread
import httpx
import structlog
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from marketplace.domain.errors import TallyError
from marketplace.domain.work.image_names import DIGEST
from marketplace.registry.distribution import Served, collect
from marketplace.registry.storage import Storage
from marketplace.registry.tokens import TokenReader

IDLE_S: Final = 900.0
"""A push that goes on shows itself within this time; a token for one lives a third of it."""
SPARE: Final = 1 << 30  # bytes of the disk that nobody's images take
_HOPS: Final = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"}
)
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PATH: Final = re.compile(r"/v2/(?P<namespace>[^/]+)/(?P<name>[^/]+)/(?P<kind>manifests|blobs)/.+")
_FULL: Final = 413
_log = structlog.get_logger("registry")


class _Full(Exception):
    """More came than the quota leaves."""


class Door:
    """One registry's. The quota of a namespace stands in each token for it."""

    def __init__(self, served: Served, idle_s: float = IDLE_S) -> None:
        self.served, self._idle_s = served, idle_s
        self.storage = Storage(served.storage)
        self._reader = TokenReader(served.certificate, served.name)
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(served.socket)),
            base_url="http://registry",
            timeout=httpx.Timeout(600, connect=10),
        )
        self._used: dict[str, int] = {}  # as last counted
        self._since: dict[str, int] = {}  # and bytes that came since
        self._pushes: dict[str, float] = {}  # repository: when a push without its manifest was seen
        self._writers = 0
        self._collecting = anyio.Lock()
        self._changed = False

    @property
    def app(self) -> Starlette:
        """What a server serves."""
        methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
        return Starlette(
            routes=[
                Route("/images/{namespace}", self._inventory),
                Route("/v2/", self._pass, methods=methods),
                Route("/v2/{rest:path}", self._pass, methods=methods),
            ]
        )

    async def aclose(self) -> None:
        """The connections to Distribution."""
        await self._client.aclose()

    # ---- what lies here --------------------------------------------------------------------------

    async def _inventory(self, request: Request) -> Response:
        namespace = str(request.path_params["namespace"])
        header = request.headers.get("authorization", "")
        quota = self._reader.quota(header, "namespace", namespace, "list")
        if quota is None:
            return _error(401, "UNAUTHORIZED", "this needs the market's token for the namespace")
        used = await self._count(namespace)
        found = await anyio.to_thread.run_sync(self.storage.repositories, namespace)
        rows = [asdict(one) for one in found]
        return JSONResponse({"used": used, "quota": quota, "repositories": rows})

    async def _count(self, namespace: str) -> int:
        self._since[namespace] = 0
        self._used[namespace] = await anyio.to_thread.run_sync(self.storage.used, namespace)
        return self._used[namespace]

    # ---- passing on ------------------------------------------------------------------------------

    async def _pass(self, request: Request) -> Response:
        place = _PATH.fullmatch(request.url.path)
        if request.method not in _WRITES or place is None:
            self._look(request, place)
            return await self._send(request)
        repository = f"{place['namespace']}/{place['name']}"
        action = "delete" if request.method == "DELETE" else "push"
        header = request.headers.get("authorization", "")
        quota = self._reader.quota(header, "repository", repository, action)
        if quota is None:
            return await self._send(request)  # without the body: Distribution says what it needs
        async with self._writing():
            self._changed = True
            if place["kind"] == "blobs":
                self._pushes[repository] = anyio.current_time()
            answer = await self._write(request, place["namespace"], quota)
            if place["kind"] == "manifests" and answer.status_code < 400:
                self._pushes.pop(repository, None)
        return answer

    def _look(self, request: Request, place: re.Match[str] | None) -> None:
        """A client that may push and asks what is there goes on by what it is told."""
        if place is None or place["kind"] != "blobs" or request.method != "HEAD":
            return
        repository = f"{place['namespace']}/{place['name']}"
        header = request.headers.get("authorization", "")
        if self._reader.quota(header, "repository", repository, "push") is not None:
            self._pushes[repository] = anyio.current_time()

    async def _write(self, request: Request, namespace: str, quota: int) -> Response:
        used = await self._count(namespace)
        free = await anyio.to_thread.run_sync(shutil.disk_usage, self.served.root)
        room = min(quota - used, free.free - SPARE)
        coming = int(request.headers.get("content-length") or 0)
        if DIGEST.fullmatch(mounted := request.query_params.get("mount", "")):
            coming += self.storage.size(mounted)
        if request.method != "DELETE" and coming > room:
            return _full(used, quota)

        async def body() -> AsyncGenerator[bytes]:
            async for part in request.stream():
                self._since[namespace] = self._since.get(namespace, 0) + len(part)
                if self._used.get(namespace, 0) + self._since[namespace] > used + room:
                    raise _Full
                yield part

        try:
            return await self._send(request, body())
        except _Full:
            return _full(used, quota)

    async def _send(self, request: Request, body: AsyncGenerator[bytes] | None = None) -> Response:
        headers = [(k, v) for k, v in request.headers.items() if k not in _HOPS]
        if body is None:
            headers = [(k, v) for k, v in headers if k != "content-length"]
        headers.append(("host", self.served.name))
        asked = self._client.build_request(
            request.method, httpx.URL(path=request.url.path, query=request.url.query.encode()),
            headers=headers, content=body,
        )  # fmt: skip
        try:
            answer = await self._client.send(asked, stream=True)
        except httpx.HTTPError as error:
            _log.warning("no answer", cause=str(error)[:300])
            return _error(502, "UNAVAILABLE", "the registry does not answer: try again")
        except ClientDisconnect:
            return Response(status_code=499)
        kept = {k: v for k, v in answer.headers.items() if k not in _HOPS}
        return StreamingResponse(
            answer.aiter_raw(1 << 20), answer.status_code, kept,
            background=BackgroundTask(answer.aclose),
        )  # fmt: skip

    # ---- collecting ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[None]:
        """A write; it waits while something is collected."""
        async with self._collecting:
            self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1

    async def collect(self, work: Callable[[Served], Awaitable[None]] = collect) -> bool:
        """Delete what no manifest names, if anything changed and nothing is being pushed; whether
        it was done.
        """
        async with self._collecting:
            young = anyio.current_time() - self._idle_s
            self._pushes = {name: at for name, at in self._pushes.items() if at > young}
            if not self._changed or self._writers or self._pushes:
                return False
            self._changed = False
            try:
                await work(self.served)
                await anyio.to_thread.run_sync(self.storage.prune)
            except TallyError:
                self._changed = True
                raise
            self._used.clear()
            return True


def _full(used: int, quota: int) -> Response:
    room = f"{used >> 20} of {quota >> 20} MiB are taken"
    if used < quota:
        room += ", or the registry's disk is full"
    return _error(_FULL, "DENIED", f"no room for this: {room}")


def _error(status: int, code: str, message: str) -> Response:
    """As Distribution says it (its API's "errors")."""
    return JSONResponse({"errors": [{"code": code, "message": message}]}, status)
