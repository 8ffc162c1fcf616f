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
from marketplace.registry.storage import ENTRY, Storage
from marketplace.registry.tokens import TokenReader

COUNTED_S: Final = 1.0  # so long a count holds, with what came since
MOST_HELD_S: Final = 86_400.0
"""So long others' pushes keep what nobody needs any more from being collected. Then it is: a push
that goes on just then is told that a layer is missing, and is begun again.
"""
_MANIFEST_S: Final = 60.0
IDLE_S: Final = 900.0
"""A push that goes on shows itself within this time; a token for one lives a third of it."""
SPARE: Final = 1 << 30  # bytes of the disk that nobody's images take
_HOPS: Final = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"}
)
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PATH: Final = re.compile(r"/v2/(?P<namespace>[^/]+)/(?P<name>[^/]+)/(?P<kind>manifests|blobs)/.+")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/=+@~-]*")
_CLIMBS: Final = re.compile(r"//|/\.\.?(/|$)")
"""What is passed on is read again, by httpx and by Distribution, as another path."""
_FULL: Final = 413
_log = structlog.get_logger("registry")


class _Full(Exception):
    """More came than the quota leaves."""


class Door:
    """One registry's. The quota of a namespace stands in each token for it."""

    def __init__(
        self, served: Served, idle_s: float = IDLE_S, most_held_s: float = MOST_HELD_S
    ) -> None:
        self.served, self._idle_s, self._most_held_s = served, idle_s, most_held_s
        self.storage = Storage(served.storage)
        self._reader = TokenReader(served.certificate, served.name)
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(served.socket)),
            base_url="http://registry",
            timeout=httpx.Timeout(600, connect=10),
        )
        self._used: dict[str, tuple[float, int]] = {}  # when it was counted, and what there was
        self._since: dict[str, int] = {}  # bytes that came since
        self._pushes: dict[str, float] = {}  # repository: when a push without its manifest was seen
        self._writers = {"blobs": 0, "manifests": 0}
        self._held_at = 0.0  # since when collecting waits for pushes; 0: it does not
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
        used = await self._count(namespace, again=True)
        found = await anyio.to_thread.run_sync(self.storage.repositories, namespace)
        rows = [asdict(one) for one in found]
        return JSONResponse({"used": used, "quota": quota, "repositories": rows})

    async def _count(self, namespace: str, again: bool = False) -> int:
        now = anyio.current_time()
        at, used = self._used.get(namespace, (-COUNTED_S, 0))
        if again or now - at >= COUNTED_S:
            self._since[namespace] = 0
            used = await anyio.to_thread.run_sync(self.storage.used, namespace)
            self._used[namespace] = now, used
        return used + self._since.get(namespace, 0)

    # ---- passing on ------------------------------------------------------------------------------

    async def _pass(self, request: Request) -> Response:
        path = request.url.path
        if _CLIMBS.search(path) or not _PLAIN.fullmatch(path):
            return _error(404, "NAME_UNKNOWN", "there is no such path")
        place = _PATH.fullmatch(path)
        if request.method not in _WRITES:
            self._look(request, place)
            return await self._send(request)
        if place is None:
            return _error(404, "NAME_UNKNOWN", "images are called NAMESPACE/NAME here")
        repository = f"{place['namespace']}/{place['name']}"
        action = "delete" if request.method == "DELETE" else "push"
        header = request.headers.get("authorization", "")
        quota = self._reader.quota(header, "repository", repository, action)
        if quota is None:
            return await self._send(request)  # without the body: Distribution says what it needs
        async with self._writing(place["kind"]):
            self._changed = True
            if place["kind"] == "blobs":
                self._pushes[repository] = anyio.current_time()
            answer = _error(408, "UNAVAILABLE", f"a manifest comes within {_MANIFEST_S:g} s")
            with anyio.move_on_after(_MANIFEST_S if place["kind"] == "manifests" else None):
                if action == "delete":  # takes no room, and is how whoever has none gets some
                    answer = await self._send(request)
                else:
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
        mounted = request.query_params.get("mount", "")
        more = self.storage.size(mounted) if DIGEST.fullmatch(mounted) else 0
        if coming + more > room:
            return _full(used, quota)
        if request.method in ("POST", "PUT"):  # begins an upload, or names something
            more += ENTRY
        self._since[namespace] = self._since.get(namespace, 0) + more

        async def body() -> AsyncGenerator[bytes]:
            async for part in request.stream():
                self._since[namespace] = self._since.get(namespace, 0) + len(part)
                if self._used[namespace][1] + self._since[namespace] > used + room:
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
    async def _writing(self, kind: str) -> AsyncGenerator[None]:
        """A write of that *kind*; it waits while something is collected."""
        async with self._collecting:
            self._writers[kind] += 1
        try:
            yield
        finally:
            self._writers[kind] -= 1

    async def collect(self, work: Callable[[Served], Awaitable[None]] = collect) -> bool:
        """Delete what no manifest names, if anything changed and nothing is being pushed; whether
        it was done.
        """
        async with self._collecting:
            young = anyio.current_time() - self._idle_s
            self._pushes = {name: at for name, at in self._pushes.items() if at > young}
            if not self._changed or not await self._may_collect():
                return False
            self._changed, self._held_at = False, 0.0
            try:
                await work(self.served)
                await anyio.to_thread.run_sync(self.storage.prune)
            except TallyError:
                self._changed = True
                raise
            self._used.clear()
            return True

    async def _may_collect(self) -> bool:
        """Whether nothing is being pushed, or it was waited for that long enough. No manifest is
        being written then: whether its layers are there is looked at when it is.
        """
        now = anyio.current_time()
        if self._pushes or any(self._writers.values()):
            self._held_at = self._held_at or now
            if now - self._held_at < self._most_held_s:
                return False
            while self._writers["manifests"]:  # noqa: ASYNC110  each within a minute
                await anyio.sleep(0.1)
        return True


def _full(used: int, quota: int) -> Response:
    room = f"{used >> 20} of {quota >> 20} MiB are taken"
    if used < quota:
        room += ", or the registry's disk is full"
    return _error(_FULL, "DENIED", f"no room for this: {room}")


def _error(status: int, code: str, message: str) -> Response:
    """As Distribution says it (its API's "errors")."""
    return JSONResponse({"errors": [{"code": code, "message": message}]}, status)
