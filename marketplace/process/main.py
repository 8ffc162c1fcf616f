"""``tally market serve``: the one place that knows all parts of a market process."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog
import uvicorn
from anyio.abc import TaskStatus

from marketplace.api.http import metrics
from marketplace.api.http.auth import Parts
from marketplace.client.net.price_source import check
from marketplace.cluster_store.process import Shelves
from marketplace.domain.errors import TallyError
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.gateway import relay_looks
from marketplace.hub.adapters import AdapterHub
from marketplace.hub.payers import PayerHub
from marketplace.market.accounts import webhooks
from marketplace.market.accounts.blobs import Blobs
from marketplace.market.base.ports import Ledger
from marketplace.market.base.records import Job, Lease, OfferRecord, Sent, StockRecord
from marketplace.market.base.settings import Settings
from marketplace.market.context import MATCHER, Market
from marketplace.market.core.ending import HOLDING
from marketplace.market.jobs import preempt, services
from marketplace.market.leases.adapters import Adapters
from marketplace.market.lifecycle import routes
from marketplace.market.money import paying
from marketplace.market.placement import reconciler
from marketplace.market.upkeep import peers, series, sweeps
from marketplace.process import exchange, routing
from marketplace.process.addresses import apps_of, inside, names_of
from marketplace.process.app import build, by_host
from marketplace.process.besides import besides
from marketplace.process.chain_supervisor import (
    MAINNET,
    Connect,
    await_chain,
    claims,
    ends,
    first_look,
    follow,
)
from marketplace.process.own_registry import HttpRegistry
from marketplace.process.routing import Route
from marketplace.process.server import config as server_config
from marketplace.process.server import listener
from marketplace.process.webhooks import Deliverer
from marketplace.registry.tokens import TokenKey
from marketplace.store.database import Database
from marketplace.store.listen import listen
from marketplace.store.migrate import migrate
from marketplace.system import SystemClock, SystemIds, raise_file_limit, settled_memory

log = structlog.get_logger("market")
CONSOLE: Final = (
    "marketplace.console.pages"  # pages are an extra: a market serves its API without them
)


@dataclass(frozen=True)
class Config:
    """*db*: ``sqlite:///file`` or ``postgresql://…``; *port* 0 takes a free one, which *on_ready*
    is told with the URL, and the network's magic (0 while that is unknown). *public_url* and
    *also_urls*: where clients dial it, which all that they sign for it names; without them, where
    it listens. *forwarded_allow_ips*: proxies whose ``X-Forwarded-For`` is believed (addresses or
    networks, with commas between; ``*`` is all). *internal_url*: where the market's other processes
    reach this one. *apps_url*: the domain under which each port of a workload has an origin of its
    own (``https://apps.example``); without it, ``localhost`` where the market listens to this
    machine alone, else none. *connect*: brings the chain (and its network's magic), also when it is
    away at the start; *ledger* is one that is there already; *route* opens this process's router,
    where it is to have one. *hook_key*: 32 bytes that webhooks' secrets are derived from; without
    it there are no webhooks. *price_url*: says what an ADA is worth
    (``state.exchange``); none by default. *mesh_relay*: a relay of meshes, kept by this process;
    *shelves*: stores of clusters.
    """

    db: str
    blob_folder: str
    host: str = "127.0.0.1"
    port: int = 8000
    public_url: str = ""
    also_urls: tuple[str, ...] = ()
    internal_url: str = ""
    apps_url: str = ""
    origins: tuple[str, ...] = ()
    forwarded_allow_ips: str = "127.0.0.1"
    settings: Settings = field(default_factory=Settings)
    ledger: Ledger | None = None
    connect: Connect | None = None
    route: Route | None = None
    hook_key: bytes = field(default=b"", repr=False)
    on_ready: Callable[[str, int], None] | None = None
    console: bool = True
    price_url: str = ""
    mesh_relay: RelayPlace | None = None
    shelves: Shelves | None = None


@dataclass
class Running:
    """One market process, without its HTTP server."""

    market: Market
    parts: Parts
    database: Database


def assemble(config: Config) -> Running:
    """All parts, wired; nothing runs yet. The database must be migrated."""
    clock, ids = SystemClock(), SystemIds()
    process = ids.new("market")
    database = Database(config.db, process, clock, ids)
    settings = config.settings
    if not settings.blob_folder:
        settings = replace(settings, blob_folder=config.blob_folder)
    market = Market(database, clock, ids, process, settings, config.ledger)
    market.hook_key = config.hook_key
    market.has_chain = config.ledger is not None or config.connect is not None
    adapters, blobs = Adapters(market), Blobs(market)
    hub, payers = AdapterHub(market, adapters, blobs), PayerHub(market)
    market.providers, market.payers = hub, payers
    parts = Parts(market, adapters, blobs, hub, payers)
    parts.mainnet = settings.magic == MAINNET
    if settings.registry and config.hook_key:
        parts.registry_key = TokenKey(config.hook_key)
        market.own_registry = HttpRegistry(settings.registry, parts.registry_key)

    def told(topics: list[str], sent: list[Sent]) -> None:
        market.bus.tell(topics)
        hub.committed([s for s in sent if s.target.startswith("adapter:")])

    database.told.append(told)
    return Running(market, parts, database)


@asynccontextmanager
async def running(config: Config) -> AsyncGenerator[Running]:
    """A market process with its sweeps; everything stops with the block."""
    await anyio.to_thread.run_sync(migrate, config.db)
    blobs = anyio.Path(config.blob_folder)
    await blobs.mkdir(parents=True, exist_ok=True)
    await blobs.chmod(0o700)  # job files, logs and outputs: the owner's alone
    run = assemble(config)
    market = run.market
    await anyio.to_thread.run_sync(run.parts.blobs.sweep)
    try:
        await webhooks.check_key(market)
        there = config.connect is None or await first_look(run.parts, config.connect)
        beside = besides(market, config.mesh_relay, config.shelves)
        async with beside, anyio.create_task_group() as tasks:
            await sweeps.beat(market)
            heard = anyio.Event()
            await tasks.start(_watch_offers, run)
            tasks.start_soon(listen, run.database, _hear(run), heard)
            with anyio.move_on_after(10):
                await heard.wait()
            await sweeps.refresh(market)
            contender = sweeps.LeaderElection(market)
            await contender.turn(_monotonic())
            for every, work in _work(run, contender):
                tasks.start_soon(_forever, every, work)
            if config.price_url:
                source = check(config.price_url)
                tasks.start_soon(_forever, exchange.EVERY_S, lambda: exchange.look(market, source))
            tasks.start_soon(_on_matcher, run)
            tasks.start_soon(run.parts.hub.deliver)
            tasks.start_soon(run.parts.payers.deliver)
            tasks.start_soon(run.parts.outputs.collect)
            if config.connect is not None and not there:
                tasks.start_soon(await_chain, run.parts, config.connect)
            if config.route is not None:
                hubs = (run.parts.hub, run.parts.payers)
                await routing.start(tasks, market, *hubs, config.route)
            run.parts.ready = True
            yield run
            run.parts.ready = False
            with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                await contender.leave()
                await peers.withdraw(market, market.process)
            tasks.cancel_scope.cancel()
    finally:
        run.database.close()


def _work(
    run: Running, contender: sweeps.LeaderElection
) -> list[tuple[float, Callable[[], Awaitable[object]]]]:
    """(seconds, what) of everything that time alone brings about."""
    market = run.market
    deliverer, looks = Deliverer(market), relay_looks.RelayLooks(run.parts.hub)
    settings = market.settings

    async def contend() -> None:
        await contender.turn(_monotonic())

    return [
        (0.5, contend),
        (1.0, lambda: sweeps.quotes(market)),
        (1.0, lambda: sweeps.endings(market)),
        (2.0, lambda: sweeps.beat(market)),
        (1.0, lambda: sweeps.providers(market)),
        (1.0, lambda: sweeps.clusters(market)),
        (2.0, lambda: reconciler.jobs(market)),
        (1.0, lambda: paying.turn(market)),
        (1.0, lambda: preempt.turn(market)),
        (1.0, lambda: reconciler.gangs(market)),
        (15.0, lambda: routes.reconcile(market)),
        (15.0, lambda: sweeps.refresh(market)),
        (60.0, lambda: sweeps.forget(market)),
        (series.EVERY_S, lambda: series.look(market)),
        (1.0, lambda: services.tell_load(market)),
        (1.0, deliverer.round),
        (settings.settle_every_ms / 1000, lambda: claims(run.parts)),
        (settings.settle_every_ms / 1000, lambda: ends(run.parts)),
        (5.0, lambda: follow(market)),
        (5.0, lambda: _gauges(run)),
        (relay_looks.EVERY_S, looks.round),
    ]


async def _forever(every: float, work: Callable[[], Awaitable[object]]) -> None:
    """Again and again; what fails is logged and tried again, since a sweep is safe to repeat."""
    while True:
        try:
            await work()
        except TallyError as error:
            log.warning("sweep", error=error.line())
        except Exception:  # one record that nobody foresaw must not end the market
            log.exception("sweep")
        await anyio.sleep(every)


async def _on_matcher(run: Running) -> None:
    """Jobs posted through other processes, and room that was just given back."""
    with run.market.bus.listening(MATCHER) as inbox:
        while True:
            if await inbox.wait(5):
                try:
                    await reconciler.jobs(run.market)
                except TallyError as error:
                    log.warning("sweep", error=error.line())


async def _watch_offers(run: Running, *, task_status: TaskStatus[None]) -> None:
    """Keep the matcher's view of offers and holdings as the store has it."""
    market, wanted, event = run.market, set[str](), [anyio.Event()]

    def note(topic: str) -> None:
        wanted.add(topic)
        event[0].set()

    market.bus.on("offer:", note)
    market.bus.on("lease:", note, remote_only=True)
    market.bus.on("stock:", note, remote_only=True)
    market.bus.on("channel:", lambda topic: market.book.forget(_vk(topic)), remote_only=True)
    task_status.started()
    while True:
        await event[0].wait()
        topics, event[0] = set(wanted), anyio.Event()
        wanted.clear()
        for topic in topics:
            kind, _, name = topic.partition(":")
            try:
                await _look_again(market, kind, name)
            except TallyError as error:
                log.warning("view", topic=topic, error=error.line())


async def _look_again(market: Market, kind: str, name: str) -> None:
    if kind == "offer":
        record = await market.store.get(OfferRecord, name)
        if record is not None:
            market.directory.set_offer(record)
            market.bus.tell([MATCHER])
        return
    if kind == "stock":
        stock = await market.store.get(StockRecord, name)
        if stock is not None:
            market.directory.images.tell(stock)
        return
    lease = await market.store.get(Lease, name)
    if lease is not None and lease.state in HOLDING:
        market.directory.adopt(lease)
    elif lease is not None:
        market.directory.release(lease.id, market.now)


def _hear(run: Running) -> Callable[[list[str]], None]:
    def heard(topics: list[str]) -> None:
        if topics == ["*"]:
            run.market.bus.tell([MATCHER])
            return
        run.market.bus.tell(topics, remote=True)

    return heard


def _vk(topic: str) -> bytes:
    return bytes.fromhex(topic.partition(":")[2])


async def _gauges(run: Running) -> None:
    store = run.market.store
    metrics.CONNECTED.labels("adapter").set(len(run.parts.hub.hub.live))
    metrics.CONNECTED.labels("payer").set(len(run.parts.payers.hub.live))
    for state in JobState:
        metrics.JOBS.labels(state.name).set(await store.count(Job, state=state))
    metrics.COMMITS.set(run.database.commits)
    metrics.CHANGES.set(run.database.changes)
    metrics.MATCHING.set(1 if run.market.epoch else 0)
    metrics.OUTBOX.set(await store.count(Sent))


def _monotonic() -> int:
    return time.monotonic_ns() // 1_000_000


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process's task group decides."""

    on_started: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """None: see the class."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """And say so."""
        await super().startup(sockets)
        if self.on_started is not None and self.started:
            self.on_started()


async def serve(config: Config) -> None:
    """Until cancelled or told to stop by SIGINT or SIGTERM."""
    if not structlog.is_configured():  # standard output belongs to the command line
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    raise_file_limit()
    with listener(config.host, config.port) as door:
        port = int(door.getsockname()[1])
        url = config.public_url or f"http://{config.host}:{port}"
        async with running(config) as run:
            run.parts.public_url, run.market.names = url, names_of(config, port)
            run.market.apps = apps_of(config, run.market.names, port)
            await peers.announce(run.market, inside(config, port))
            app = build(run.parts, config.origins)
            if config.console and find_spec(CONSOLE) is not None:
                import_module(CONSOLE).install(app, run.parts)
            both = by_host(app, run.parts)
            server = _Server(server_config(both, forwarded_allow_ips=config.forwarded_allow_ips))

            def started() -> None:
                log.info("serving", url=url)
                if config.on_ready is not None:
                    known = run.parts.network_known
                    config.on_ready(url, run.market.settings.magic if known else 0)

            server.on_started = started
            with settled_memory():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_signals, server)
                    await server.serve(sockets=[door])
                    tasks.cancel_scope.cancel()


async def _signals(server: uvicorn.Server) -> None:
    try:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                server.should_exit = True
    except ValueError:
        return  # not in the main thread: whoever runs this thread stops it by cancelling


def folder_of(db: str, home: Path) -> str:
    """Where blobs lie when nobody says: beside the SQLite file, or in *home*."""
    if db.startswith("sqlite:///"):
        return str(Path(db.removeprefix("sqlite:///")).parent / "blobs")
    return str(home / "blobs")
