"""`/docs`: the API's reference, of the document that this market serves, as a page like all others:
nothing is loaded but the console's own files, and it reads without JavaScript."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape

from marketplace.api.http.auth import public
from marketplace.api.schemas import reading
from marketplace.api.schemas.reading import Json
from marketplace.console.page import MaybeViewer, page

router = APIRouter(include_in_schema=False)
_PIECES: Final = re.compile(r"(`[^`]+`|\[\w+\]\(#[\w-]+\))")
_LINK: Final = re.compile(r"\[(\w+)\]\((#[\w-]+)\)")


@router.get("/docs")
async def docs(
    request: Request, who: MaybeViewer, _: Annotated[None, Depends(public)]
) -> HTMLResponse:
    """Every route with what it takes and answers, every shape with its fields."""
    openapi = cast(FastAPI, request.app).openapi()
    by_tag: dict[str, list[dict[str, Any]]] = {}
    for tag, method, path, operation in reading.operations(openapi):
        by_tag.setdefault(tag, []).append(_operation(openapi, method, path, operation))
    shapes = [_shape(name, model) for name, model in reading.shapes_of(openapi)]
    return page(
        request, "docs", who, tags=by_tag, shapes=shapes, marked=marked
    )  # fmt: skip


def marked(text: str) -> Markup:
    """One line of the document's Markdown (code and links to shapes); all else is escaped."""
    line = Markup()
    for piece in _PIECES.split(text):
        if piece.startswith("`"):
            line += Markup("<code>{}</code>").format(piece.strip("`"))
        elif link := _LINK.fullmatch(piece):
            line += Markup('<a href="{}">{}</a>').format(link[2], link[1])
        else:
            line += escape(piece)
    return line


def _operation(openapi: Json, method: str, path: str, operation: Json) -> dict[str, Any]:
    rows = [
        {"name": p["name"], "type": reading.type_of(p["schema"]), "where": p["in"],
         "needed": bool(p.get("required")), "about": p.get("description") or ""}
        for p in reading.parameters_of(operation)
    ]  # fmt: skip
    examples: list[tuple[str, str]] = []
    for kind, name, model in reading.bodies_of(openapi, operation):
        rows += _rows(model, "body") if name.endswith("Body") else []
        if model:
            about = f"body, {kind}" + ("" if name.endswith("Body") else f", {name}")
            examples.append((about, _pretty(reading.example_of(openapi, model))))
    for status, media in reading.examples_of(operation):
        examples.append((f"answer, {status}", _pretty(media)))
    once = any(p["name"] == "Idempotency-Key" for p in operation.get("parameters") or ())
    return {
        "id": f"{method}-{path}", "method": method.upper(), "path": path, "rows": rows,
        "about": reading.summary_of(operation), "signed_in": bool(operation.get("security")),
        "once": once, "examples": examples, "answers": reading.answers_of(operation),
    }  # fmt: skip


def _shape(name: str, model: Json) -> dict[str, Any]:
    rows = _rows(model, "")
    others = cast("Json | None", model.get("additionalProperties") or None)
    if others:
        about = str(others.get("description") or "")
        kind = reading.type_of(others)
        rows.append(
            {"name": "any other", "type": kind, "where": "", "needed": True, "about": about}
        )
    return {
        "name": name, "about": str(model.get("description", "")), "rows": rows,
        "values": reading.type_of(model) if "enum" in model else "",
    }  # fmt: skip


def _rows(model: Json, where: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": reading.type_of(about), "where": where, "needed": needed,
         "about": about.get("description") or ""}
        for name, about, needed in reading.fields_of(model)
    ]  # fmt: skip


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
