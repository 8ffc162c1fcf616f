"""The ASGI application over one devnet."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.devnet.face import (
    accounts,
    assets,
    blocks,
    control,
    epochs,
    evaluation,
    mempool,
    metadata,
    scripts,
    transactions,
    wallets,
)
from contracts.devnet.face.common import BACKEND_FAILED, NO_SUCH_PATH, NOT_FOUND, Answer
from contracts.devnet.face.limit import Limited
from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.node import Devnet, DevnetRefusal

API = "/api/v0"
_PARTS = (
    evaluation,
    transactions,
    mempool,
    metadata,
    scripts,
    wallets,
    accounts,
    assets,
    blocks,
    epochs,
)


class HeadAsGet:
    """Answers HEAD wherever GET is answered, without the body: as Blockfrost does, and as health
    checks ask.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, without_body)


def application(devnet: Devnet) -> FastAPI:
    """Blockfrost's routes under /api/v0, the controls under /devnet."""
    app = FastAPI(
        title="Tally devnet",
        description=(
            "Blockfrost's API over an embedded Cardano ledger; docs/devnet.md says what differs."
        ),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.devnet = devnet
    app.add_middleware(Limited, devnet=devnet, prefix=f"{API}/")
    # Browser wallets talk to a chain's API from their own origin.
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    app.add_middleware(HeadAsGet)
    app.include_router(control.router)
    for part in _PARTS:
        app.include_router(part.router, prefix=API)
    app.add_exception_handler(Answer, _answer)
    app.add_exception_handler(DevnetRefusal, _refused)
    app.add_exception_handler(LedgerRefusal, _ledger_refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)
    return app


def _shaped(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.body, status_code=answer.status)


def _answer(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, Answer)
    return _shaped(problem)


def _refused(request: Request, problem: Exception) -> JSONResponse:
    return _shaped(Answer(400, str(problem), code=DevnetRefusal.code))


def _ledger_refused(request: Request, problem: Exception) -> JSONResponse:
    return _shaped(Answer(400, str(problem), code=LedgerRefusal.code))


def _invalid(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problem.errors())
    return _shaped(Answer(400, told))


def _http(request: Request, problem: Exception) -> JSONResponse:
    """Blockfrost answers 400, not 404, to a path or a method that it does not serve: else
    "unserved" looks like "empty".
    """
    assert isinstance(problem, HTTPException)
    unserved = problem.status_code in (404, 405)
    if unserved and f"{request.url.path}/".startswith(f"{API}/"):
        return _shaped(Answer(400, NO_SUCH_PATH))
    message = NOT_FOUND if problem.status_code == 404 else str(problem.detail)
    return _shaped(Answer(problem.status_code, message))


def _broken(request: Request, problem: Exception) -> JSONResponse:
    """In Blockfrost's shape; the server's log has the trace."""
    return _shaped(Answer(500, BACKEND_FAILED))
