"""The payer's API as an application: posts jobs and pays for them with the purse of its process,
and passes reads on to the market with that purse's sign-in.

It speaks the market's own paths and words, so that what is written for the market's API works here
with another address, and no key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import anyio
import httpx
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from marketplace.cli.payer_api.daybook import DayBook
from marketplace.cli.payer_api.rules import check_passed, let_in
from marketplace.client.jobs.core.quotes import CheckedQuote
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.net.http import MarketFault
from marketplace.client.sdk.market import Market
from marketplace.domain.errors import (
    Conflict,
    Fault,
    Forbidden,
    Malformed,
    NotFound,
    Refusal,
    TallyError,
    Unauthenticated,
)
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import MAX_BYTES, JobFile, Section, Table, parse
from marketplace.domain.work.jobfile.values import is_null
from marketplace.domain.work.parts import FileIn
from marketplace.jobtext import tree

log = structlog.get_logger("tally.payer_api")
_BLOB: Final = "sha256:"
_STATUS: Final[tuple[tuple[type[TallyError], int], ...]] = (
    (Unauthenticated, 401), (Forbidden, 403), (NotFound, 404), (Conflict, 409), (Malformed, 422),
    (Fault, 503),
)  # fmt: skip
_ASKED: Final = ("accept", "accept-encoding", "content-type", "content-length", "range")
_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "set-cookie"}
)
_CARRY: Final = ("POST", "PUT")  # a body, which can be read once
_UNAUTHENTICATED: Final = 401


class GangElsewhere(Refusal):
    """A job file with a gang: its members are agreed to together, by a person or a program."""

    code = "GANG_ELSEWHERE"
    remedy = "post it with `tally job run`, or from Python or TypeScript"


class BudgetMissing(Refusal):
    """A job that says no limit of its own: nobody is asked here before it is signed for."""

    code = "BUDGET_MISSING"
    remedy = "write price: {budget: 2 ADA}: nothing beyond it is signed"


class SecretsElsewhere(Refusal):
    """A job with secrets: their values would be those of the payer's own environment."""

    code = "SECRETS_ELSEWHERE"
    remedy = "post it with `tally job run`, which seals them from your own environment"


class QuoteLate(Fault):
    """No quote came in time."""

    code = "QUOTE_LATE"
    remedy = "nothing was signed: POST /v1/explain says why; post it again with a new key"


class PayerApi:
    """One market and the purse that pays there."""

    def __init__(self, market: Market, book: DayBook) -> None:
        self.market, self.book = market, book
        self._turn = anyio.Lock()
        self._client = httpx.AsyncClient(
            base_url=market.url, timeout=httpx.Timeout(None, connect=5.0), trust_env=False,
            verify=market.url.startswith("https://"),
        )  # fmt: skip

    async def aclose(self) -> None:
        """Close its connections to the market."""
        await self._client.aclose()

    async def post(self, request: Request) -> Response:
        """``POST /v1/jobs``: the job file, YAML or JSON, as the body. Answers once the quote is
        agreed to and the channel is there, as the market shows the job.
        """
        if request.url.query:
            raise Malformed("this API chooses keys and channels itself: leave the query out")
        body = await _body(request)
        asked = hashlib.sha256(body).hexdigest()
        key = request.headers.get("idempotency-key") or f"payer-api-{secrets.token_hex(16)}"
        async with self._turn:  # one purse agrees to one job at a time; a key is looked up in turn
            job = self.book.known(key, asked)
            if not job:
                spec = await self._spec(body)
                self.book.count(key, asked, spec.price.budget)
                job = await self._posted(spec, key)
        view = await self.market.runner.view(job)
        return JSONResponse(view, 201, {"Location": f"/v1/jobs/{job}"})

    async def _posted(self, spec: JobSpec, key: str) -> str:
        agreed = False

        async def about_to_sign(_offered: CheckedQuote) -> None:
            nonlocal agreed
            agreed = True

        try:
            job = await self.market.run(LoadedJob(spec, {}), shown=about_to_sign, key=key)
        except TimeoutError:
            raise QuoteLate("no quote came in time") from None
        except Refusal as refusal:
            # A key that the market knows stands for a job that it may run, and what was agreed to
            # before the refusal may be signed: both count.
            if refusal.code != "IDEMPOTENCY_KEY_REUSED" and not agreed:
                self.book.forget(key)
            raise
        self.book.took(key, job.id)
        log.info("posted", job=job.id, budget=spec.price.budget)
        return job.id

    async def _spec(self, body: bytes) -> JobSpec:
        """The job of the file *body*; its files are blobs of the account, for this process reads no
        other's path: it may read what whoever posts may not.
        """
        file = readable(body)
        if any(not one.src.startswith(_BLOB) for one in file.sources):
            raise Malformed(
                "files are named by hash here: PUT /v1/blobs/HASH, then src: sha256:HASH",
                field="files",
            )
        if not file.sources:
            return file.spec()
        blobs = {row["sha256"]: row["size"] for row in await self.market.http.all("/v1/blobs")}
        files: list[FileIn] = []
        for one in file.sources:
            sha256 = one.src.removeprefix(_BLOB)
            if sha256 not in blobs:
                raise NotFound(f"no blob {sha256}: PUT /v1/blobs/{sha256} first", field="files")
            files.append(FileIn(one.dst, sha256, int(blobs[sha256]), one.mode))
        return file.spec(files)

    async def pass_on(self, request: Request) -> Response:
        """Everything else that :mod:`.rules` lets through, answered by the market, streamed."""
        path = request.url.path
        check_passed("GET" if request.method == "HEAD" else request.method, path)
        answer = await self._asked(request, path)
        if answer.status_code == _UNAUTHENTICATED and self.market.http.renew is not None:
            await answer.aclose()
            await self.market.http.renew()
            if request.method in _CARRY:
                raise MarketFault("the sign-in had run out, and is renewed: send it again")
            answer = await self._asked(request, path)

        async def body() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()

        passed = StreamingResponse(body(), answer.status_code)
        passed.raw_headers = [
            (name.lower(), value)
            for name, value in answer.headers.raw
            if name.lower().decode() not in _HOP
        ]
        return passed

    async def _asked(self, request: Request, path: str) -> httpx.Response:
        named = {name: request.headers[name] for name in _ASKED if name in request.headers}
        named.setdefault("accept-encoding", "identity")
        url = quote(path) + (f"?{request.url.query}" if request.url.query else "")
        carries = request.method in _CARRY
        asked = self._client.build_request(
            request.method, url, content=request.stream() if carries else None,
            headers={**named, "authorization": f"Bearer {self.market.http.token}"},
        )  # fmt: skip
        try:
            return await self._client.send(asked, stream=True)
        except httpx.HTTPError as error:
            raise MarketFault(f"{self.market.url}: {type(error).__name__}") from error


def readable(body: bytes) -> JobFile:
    """The job file of *body*. :class:`GangElsewhere`, :class:`SecretsElsewhere`,
    :class:`BudgetMissing`.
    """
    said = False

    def look(top: Section) -> None:
        nonlocal said
        price = top.get("price")
        said = isinstance(price, Table) and any(
            name.text == "budget" and not is_null(value) for name, value in price.entries
        )

    file = parse(tree(body, "job"), "job", also=look)
    if file.draft.gang is not None:
        raise GangElsewhere("a gang is not posted here")
    if file.draft.secrets:
        raise SecretsElsewhere("the job names secrets", field="secrets")
    if not said:
        raise BudgetMissing("the job has no price.budget", field="price.budget")
    return file


def build(api: PayerApi, token: str, port: int) -> ASGIApp:
    """The application on *port* of loopback, for whoever has *token*."""
    routes = [
        Route("/v1/jobs", api.post, methods=["POST"]),
        Route("/{path:path}", api.pass_on, methods=["GET", "POST", "PUT", "DELETE"]),
    ]
    app = Starlette(routes=routes, exception_handlers={TallyError: _refused})

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                let_in({k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]},
                       token, port)  # fmt: skip
            except Refusal as refusal:
                await problem(refusal)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise Malformed(f"a job file has at most {MAX_BYTES} bytes")
    return body


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TallyError)
    return problem(error)


def problem(error: TallyError) -> JSONResponse:
    """*error* as the market tells its own (RFC 9457); what it refused keeps its status."""
    told = error.fields.get("status")
    kind = next((code for kinds, code in _STATUS if isinstance(error, kinds)), 422)
    status = told if isinstance(told, int) and told >= 400 else kind
    fields: dict[str, Any] = {k: v for k, v in error.fields.items() if k != "status"}
    row = {
        "type": f"urn:tally:problem:{error.code}", "title": error.code, "status": status,
        "detail": error.message, "code": error.code, "remedy": error.remedy, "fields": fields,
    }  # fmt: skip
    content = json.loads(json.dumps(row, default=str))
    return JSONResponse(content, status, media_type="application/problem+json")
