"""A request's id is in whatever the log says meanwhile, and in what is answered when all fails."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import anyio
import httpx
import structlog
from fastapi import FastAPI
from structlog.testing import capture_logs

from marketplace.api.http import problems
from marketplace.api.http.told import HEADER, Told
from marketplace.domain.errors import Fault

SECRET = "what nobody is told"


def _app() -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.add_middleware(Told)

    async def fault() -> None:
        structlog.get_logger("room").warning("on the way")
        raise Fault("the disk is slow")

    async def bug() -> None:
        raise ZeroDivisionError(SECRET)

    app.add_api_route("/fault", fault)
    app.add_api_route("/bug", bug)
    return app


def _merged(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return structlog.contextvars.merge_contextvars(None, "", event)


async def _ask(path: str) -> tuple[httpx.Response, list[MutableMapping[str, Any]]]:
    transport = httpx.ASGITransport(_app(), raise_app_exceptions=False)
    with capture_logs(processors=[_merged]) as said:
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get(path), said


def test_the_log_names_the_request_of_a_fault() -> None:
    answer, said = anyio.run(_ask, "/fault")
    assert answer.status_code == 503
    assert [line["event"] for line in said] == ["on the way", "fault"]
    assert {line["request"] for line in said} == {answer.headers[HEADER]}
    assert answer.json()["request_id"] == answer.headers[HEADER]


def test_what_nobody_expected_is_told_by_its_id_alone() -> None:
    answer, said = anyio.run(_ask, "/bug")
    assert answer.status_code == 500 and SECRET not in answer.text
    assert answer.json()["code"] == "UNEXPECTED"
    assert answer.json()["request_id"] == answer.headers[HEADER]
    assert [line["request"] for line in said] == [answer.headers[HEADER]]
