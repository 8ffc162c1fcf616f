"""Refusals and faults as RFC 9457 problem details, carrying the stable code and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from marketplace.api.http.told import HEADER, request_id
from marketplace.api.schemas.shape import told
from marketplace.chain.signin import SignInRefused
from marketplace.domain.errors import (
    Conflict,
    Fault,
    Forbidden,
    IllegalTransition,
    Malformed,
    NotFound,
    TallyError,
    Unauthenticated,
)
from marketplace.domain.signin import OtherMarket
from marketplace.market.base.errors import (
    AppOver,
    QuoteGone,
    RateLimited,
    TooLarge,
    TooManyQuotes,
    UnpaidWait,
)

log = structlog.get_logger("api")
MEDIA: Final = "application/problem+json"
_STATUS: Final[tuple[tuple[type[TallyError], int], ...]] = (
    (Unauthenticated, 401),
    (SignInRefused, 401),
    (OtherMarket, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (AppOver, 410),
    (Conflict, 409),
    (IllegalTransition, 409),
    (QuoteGone, 409),
    (TooLarge, 413),
    (RateLimited, 429),
    (TooManyQuotes, 429),
    (UnpaidWait, 429),
    (Malformed, 422),
    (Fault, 503),
)
_TELL: Final = "tell the market's operator the request's id"
_CODES: Final = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 401: "UNAUTHENTICATED"}


class Problem(BaseModel):
    """What went wrong, stably coded; `remedy` says what to do about it."""

    type: str = told("a URN of the code", examples=["urn:tally:problem:NO_MATCH"])
    title: str = told("the code", examples=["NO_MATCH"])
    status: int = told("the HTTP status", examples=[422])
    detail: str = told("the cause, in one line", examples=["0 of 3 hosts: 3 lack the model"])
    code: str = told("stable: programs may rely on it", examples=["NO_MATCH"])
    remedy: str = told(
        "what to do about it; may be empty",
        examples=["check the id; lists show what is yours"],
    )
    request_id: str = told(
        "names this request in the market's log; in `Request-Id` too",
        examples=["req_6f1c0d2b9a3e4f58"],
    )
    fields: dict[str, Any] = told(
        "plain facts of that code, e.g. `retry_after_ms` (ms), `explain` (as `Refused`) or `field`"
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's entry for each problem status that an operation may answer."""
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    words = {
        400: "Malformed request", 401: "Not signed in", 403: "Not allowed", 404: "No such thing",
        409: "Conflict", 413: "Too large", 422: "Refused", 429: "Too many requests",
        503: "The world failed; try again",
    }  # fmt: skip
    return {s: {"description": words[s], "content": content} for s in statuses}


EVERYWHERE: Final = (400, 401, 403, 404, 409, 413, 422, 429, 503)


def status_of(error: TallyError) -> int:
    """The HTTP status of a refusal or fault."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 422)


def problem(
    status: int, code: str, detail: str, remedy: str = "", fields: Mapping[str, Any] | None = None
) -> JSONResponse:
    """The response."""
    body = {
        "type": f"urn:tally:problem:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": remedy,
        "request_id": request_id(),
        "fields": _plain(fields or {}),
    }
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 429:
        wait = int((fields or {}).get("retry_after_ms", 1000))
        headers["Retry-After"] = str(-(-wait // 1000))
    return JSONResponse(body, status, headers, media_type=MEDIA)


def install(app: FastAPI) -> None:
    """Every way of failing becomes a problem; nothing unexpected leaks its text."""

    async def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, TallyError)
        if isinstance(error, Fault):
            log.error("fault", error=error.line())
        else:
            log.debug("refused", code=error.code, message=error.message)
        return of(error)

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(x) for x in first["loc"])
        return problem(
            422, "MALFORMED", f"{where}: {first['msg']}", Malformed.remedy, {"field": where}
        )

    async def plain(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, "REFUSED" if error.status_code < 500 else "FAULT")
        answer = problem(error.status_code, code, str(error.detail))
        answer.headers.update(error.headers or {})
        return answer

    async def broke(_: Request, __: Exception) -> JSONResponse:
        # The server logs the exception itself; the caller is told nothing of it but where to look.
        log.error("unexpected", what="the exception that follows")
        answer = problem(500, "UNEXPECTED", "this market has a fault of its own", _TELL)
        answer.headers[HEADER] = request_id()
        return answer

    app.add_exception_handler(Exception, broke)
    app.add_exception_handler(TallyError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)


def of(error: TallyError) -> JSONResponse:
    """A refusal or fault as its problem."""
    return problem(status_of(error), error.code, error.message, error.remedy, error.fields)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in cast("Mapping[object, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in cast("Iterable[Any]", value)]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
