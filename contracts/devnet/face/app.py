"""The ASGI application over one devnet."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from contracts.devnet.engine import LedgerRefusal
from contracts.devnet.face import blocks, control, scripts, transactions, wallets
from contracts.devnet.face.common import NOT_FOUND, Answer
from contracts.devnet.node import Devnet, DevnetRefusal

API = "/api/v0"


def application(devnet: Devnet) -> FastAPI:
    """Blockfrost's routes under /api/v0, the controls under /devnet."""
    app = FastAPI(title="Tally devnet", docs_url=None, redoc_url=None)
    app.state.devnet = devnet
    # Browser wallets talk to a chain's API from their own origin.
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    app.include_router(control.router)
    # blocks comes last: it ends with the route that answers everything unknown.
    for part in (transactions, scripts, wallets, blocks):
        app.include_router(part.router, prefix=API)
    app.add_exception_handler(Answer, _answer)
    app.add_exception_handler(DevnetRefusal, _refused)
    app.add_exception_handler(LedgerRefusal, _ledger_refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
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
    assert isinstance(problem, HTTPException)
    message = NOT_FOUND if problem.status_code == 404 else str(problem.detail)
    return _shaped(Answer(problem.status_code, message))
