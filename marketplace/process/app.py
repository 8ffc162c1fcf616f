"""The FastAPI application of one market process: it translates, and decides nothing."""

from __future__ import annotations

from fastapi import Depends, FastAPI, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope
from starlette.websockets import WebSocketDisconnect

from marketplace.api.http import metrics, problems
from marketplace.api.http.auth import Parts
from marketplace.api.http.limits import Bodies, Crowd, client_of
from marketplace.api.http.queries import known_names
from marketplace.api.http.told import HEADER, LIMITS, Told
from marketplace.api.routes import (
    account,
    channels,
    clusters,
    gangs,
    images,
    jobfiles,
    jobs,
    leases,
    ports,
    public,
    routing,
    services,
    spend,
    stores,
)
from marketplace.api.schemas import document
from marketplace.domain.protocol.codec import MAX_FRAME
from marketplace.gateway import byte_stream, port_paths
from marketplace.gateway.app_origins import AppSite, ByHost
from marketplace.hub.sockets import Closed, Hub
from marketplace.market.base.errors import RateLimited
from marketplace.process.chain_supervisor import Gate
from marketplace.version import release


def build(parts: Parts, origins: tuple[str, ...] = ()) -> FastAPI:
    """All routes over *parts*. *origins*: other sites whose pages may call the API (CORS)."""
    app = FastAPI(
        title="Tally market",
        version=release(),
        summary="Rent out and rent GPUs and CPU nodes, paid by the metered second on Cardano",
        docs_url=None,  # the framework's page runs foreign code; the console has one of its own
        redoc_url=None,
    )
    app.state.parts = parts
    problems.install(app)
    app.add_middleware(Gate, parts=parts)
    app.add_middleware(metrics.Count)
    app.add_middleware(Bodies)
    app.add_middleware(Crowd, addresses=parts.addresses)
    app.add_middleware(Told)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
            expose_headers=["Location", "Retry-After", "X-Next-Offset", "X-Lease", HEADER, *LIMITS],
            max_age=600,
        )
    app.include_router(public.health)  # whoever probes may add to the address what he likes
    for router in (
        public.router, account.router, spend.router, jobs.router, jobfiles.router, leases.router,
        gangs.router, clusters.router, images.router, ports.names, ports.router,
        services.router, stores.router, channels.router, routing.router,
    ):  # fmt: skip
        app.include_router(router, dependencies=[Depends(known_names)])
    app.include_router(port_paths.router)
    app.include_router(byte_stream.router)
    _sockets(app, parts)
    document.install(app, problems.Problem)
    return app


def by_host(market: ASGIApp, parts: Parts) -> ASGIApp:
    """*market* (with its pages), and the workloads' own origins beside it, within the same
    limits.
    """

    def flows(_: Scope) -> bool:
        return True

    site: ASGIApp = Gate(AppSite(parts), parts)
    site = Bodies(metrics.Count(site), flows)
    return ByHost(market, Told(Crowd(site, parts.addresses, flows)), parts)


def _sockets(app: FastAPI, parts: Parts) -> None:
    @app.websocket("/v1/provider")
    async def provider(websocket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction] (a route)
        await _serve(websocket, parts, parts.hub.hub)

    @app.websocket("/v1/payer")
    async def payer(websocket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction] (a route)
        await _serve(websocket, parts, parts.payers.hub)


async def _serve(websocket: WebSocket, parts: Parts, hub: Hub) -> None:
    """Handshakes are few per address: each may end in a signature to check, and one may be refused
    for its first bytes only to come again."""
    address = client_of(websocket.scope)
    try:
        parts.rates.spend(f"hello:{address}", parts.market.settings.hellos_per_minute)
    except RateLimited as busy:
        await websocket.send_denial_response(problems.of(busy))
        return
    await websocket.accept()
    await hub.serve(Wire(websocket), address)


class Wire:
    """Starlette's websocket as the hub's ``Socket``."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket

    async def receive(self) -> bytes:
        """The next binary frame; Closed for anything else."""
        try:
            frame = await self.websocket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:
            raise Closed from error
        if len(frame) > MAX_FRAME:
            raise Closed
        return frame

    async def send(self, frame: bytes) -> None:
        """Write one."""
        try:
            await self.websocket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise Closed from error

    def proven(self) -> None:
        """From here on it may send frames of full size."""
        admit = self.websocket.scope.get("state", {}).get("proven")
        if admit is not None:
            admit()

    async def close(self) -> None:
        """Nothing if it is closed."""
        try:
            await self.websocket.close()
        except (WebSocketDisconnect, RuntimeError):
            return
