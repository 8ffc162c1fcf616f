"""Prometheus: requests by route and status, and what the market holds."""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS: Final = Counter(
    "tally_http_requests_total",
    "Requests by route, method and status",
    ["route", "method", "status"],
)
SECONDS: Final = Histogram("tally_http_seconds", "Seconds to the response's head", ["route"])
CONNECTED: Final = Gauge("tally_connections", "Live sockets by role", ["role"])
JOBS: Final = Gauge("tally_jobs", "Jobs by state", ["state"])
COMMITS: Final = Gauge("tally_store_commits", "Transactions committed by this process")
CHANGES: Final = Gauge("tally_store_changes", "Changes committed by this process")
MATCHING: Final = Gauge("tally_matching", "1 while this process holds the matcher's lock")
OUTBOX: Final = Gauge("tally_outbox", "Messages that wait for an acknowledgement")


class Count:
    """ASGI middleware: every request by its route's template, never by its raw path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = str(getattr(scope.get("route"), "path", "none"))
                REQUESTS.labels(route, scope["method"], str(message["status"])).inc()
                SECONDS.labels(route).observe(time.perf_counter() - start)
            await send(message)

        await self.app(scope, receive, noted)
