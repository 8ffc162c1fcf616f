"""How many requests a project may send, where the devnet's pace has a limit: as Blockfrost, 429."""

from __future__ import annotations

import time
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.devnet.face.common import Answer
from contracts.devnet.node import Devnet
from contracts.devnet.pace import Bucket

_PROJECTS: Final = 10_000


class Limited:
    """Counts what goes to *prefix* by ``project_id``. The controls are never limited."""

    def __init__(self, app: ASGIApp, devnet: Devnet, prefix: str) -> None:
        self._app = app
        self._devnet = devnet
        self._prefix = prefix
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._over(scope):
            answer = Answer(429, "Usage is over limit.")
            await JSONResponse(answer.body, status_code=answer.status)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _over(self, scope: Scope) -> bool:
        pace = self._devnet.pace
        counted = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not counted or not pace.requests_a_second:
            return False
        project = Headers(scope=scope).get("project_id", "")
        known = self._buckets.get(project)
        if known is None or known.pace is not pace:
            if len(self._buckets) >= _PROJECTS:
                self._buckets.clear()
            known = self._buckets[project] = Bucket(pace, time.monotonic)
        return not known.take()
