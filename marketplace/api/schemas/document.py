"""The OpenAPI document: what FastAPI makes of the routes, with what it cannot know.

Problem details stand in place of the framework's own error shape; bodies that routes read by
themselves, and what streams carry, have their shapes; each answer has an example. The examples are
real: ``tests/integration/market/test_every_answer.py`` walks through every operation, and what it
is answered is written to ``examples.json`` with ``TALLY_WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from marketplace.api.schemas.jobs import STREAMED
from marketplace.api.schemas.requests import POSTED

Json = dict[str, Any]
_COMPONENT: Final = "#/components/schemas/{model}"
_EXAMPLES: Final = Path(__file__).with_name("examples.json")


def install(app: FastAPI, problem: type[BaseModel]) -> None:
    """Have *app* tell this document; it is made when it is first asked for. *problem*: the shape of
    every refusal and fault."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = _made(app, problem)
        return app.openapi_schema

    app.openapi = openapi


def _made(app: FastAPI, problem: type[BaseModel]) -> Json:
    schema = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    parts = cast(Json, schema.setdefault("components", {}).setdefault("schemas", {}))
    parts.pop("HTTPValidationError", None)
    parts.pop("ValidationError", None)
    for model in (problem, *STREAMED, *POSTED):
        shape = model.model_json_schema(ref_template=_COMPONENT)
        parts |= shape.pop("$defs", {}) | {model.__name__: shape}
    schema["components"]["schemas"] = parts
    for name, example in cast(Json, json.loads(_EXAMPLES.read_text(encoding="utf-8"))).items():
        method, path, status = name.split(" ")
        operation = cast(Json, schema["paths"].get(path, {}).get(method) or {})
        answer = cast(Json, operation.get("responses", {}).get(status) or {})
        for kind, media in cast("dict[str, Json]", answer.get("content") or {}).items():
            if kind == "application/json":
                media["example"] = example
    return schema
