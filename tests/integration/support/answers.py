"""Every answer of a market under test, held against its OpenAPI document.

The document lets later versions add fields; here none may be there that it does not name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

import jsonschema_rs
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

Json = dict[str, Any]
STREAM = "text/event-stream"
READ = {"application/json", "application/problem+json", STREAM}
_EVENT = re.compile(r"^event: (.*)\ndata: (.*)\n\n", re.MULTILINE)
Answered = tuple[str, str, str]
"""Method, path as the document has it, and status."""


def strict(schema: Any) -> Any:
    """*schema* with no other properties than those it names, however deep."""
    if isinstance(schema, list):
        return [strict(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    closed = {k: strict(v) for k, v in cast(Json, schema).items()}
    if closed.get("type") == "object" and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed


@dataclass(frozen=True)
class Document:
    """What a market's answers are, and their judges, each made when it is first needed."""

    said: Json
    judges: dict[str, jsonschema_rs.Draft202012Validator] = field(default_factory=dict)


_documents: dict[bool, Document] = {}
"""By whether there is a console. Nothing else makes the routes of one market another's, and most of
a market's start is the making of its document: it is made once a process.
"""


def _document(app: FastAPI, console: bool) -> Document:
    if console not in _documents:
        _documents[console] = Document(strict(app.openapi()))
    return _documents[console]


class Answers:
    """ASGI: *app*, and what it answered otherwise than its document says.

    *seen* takes every answer of a documented operation, with the longest body if that is JSON.
    """

    def __init__(
        self, app: FastAPI, console: bool = False, seen: dict[Answered, bytes] | None = None
    ) -> None:
        self.app = app
        document = _document(app, console)
        self.document, self._judges = document.said, document.judges
        self.wrong: list[str] = []
        self.seen = seen if seen is not None else dict[Answered, bytes]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, body = 0, "", bytearray()

        async def noted(message: Message) -> None:
            nonlocal status, kind
            if message["type"] == "http.response.start":
                status = int(message["status"])
                headers = {k.lower(): v.decode() for k, v in message["headers"]}
                kind = headers.get(b"content-type", "").partition(";")[0]
            elif message["type"] == "http.response.body" and kind in READ:
                body.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, noted if scope["type"] == "http" else send)
        if status:
            path = str(getattr(scope.get("route"), "path", ""))
            self._look(scope["method"].lower(), path, str(status), kind, bytes(body))

    def _look(self, method: str, path: str, status: str, kind: str, body: bytes) -> None:
        operation = self.document["paths"].get(path, {}).get(method)
        if operation is None:
            return
        name = f"{method} {path} {status}"
        known = self.seen.setdefault((method, path, status), b"")
        if kind.endswith("json") and len(body) > len(known):
            self.seen[method, path, status] = body
        answer = operation["responses"].get(status)
        if answer is None or kind not in answer.get("content", {}):
            self.wrong.append(f"{name}: {kind} is not documented")
            return
        media = answer["content"][kind]
        if kind.endswith("json"):
            self._judge(name, media["schema"], json.loads(body))
        elif kind == STREAM:
            events = {
                event["properties"]["event"]["const"]: event["properties"]["data"]["contentSchema"]
                for event in media["itemSchema"]["anyOf"]
            }
            for event, data in _EVENT.findall(body.decode()):
                self._judge(f"{name} {event}", events.get(event, False), json.loads(data))

    def _judge(self, name: str, schema: Any, value: Any) -> None:
        if name not in self._judges:
            whole = {**schema, "components": self.document["components"]} if schema else schema
            self._judges[name] = jsonschema_rs.Draft202012Validator(whole)
        for fault in self._judges[name].iter_errors(value):
            at = ".".join(str(x) for x in fault.instance_path)
            self.wrong.append(f"{name}: {at}: {fault.message[:600]}")
