"""The adapter's process: the only place that knows all of its parts.

``main(config)`` serves until SIGTERM or Ctrl-C and returns the exit code; workloads live on and are
taken over by the next run.  ``python -m adapter`` and ``tally adapter run`` both end here.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from socketserver import TCPServer
from typing import Any, Final

import anyio
import anyio.to_thread
import structlog

from adapter.config import Config, ConfigRefused
from adapter.core.state import Limits, Own, State
from adapter.core.ticks import awaits_money
from adapter.core.workload import Runtime
from adapter.daemon import metrics
from adapter.daemon.daemon import Daemon
from adapter.daemon.earnings import Fees
from adapter.daemon.link import socket_link
from adapter.daemon.ports import Chain, Parts
from adapter.daemon.reload import Settings
from adapter.daemon.status import StatusSocket
from adapter.daemon.stocktaking import Stocktaking
from adapter.daemon.till import Till
from adapter.devices.inventory import Inventory, Place
from adapter.devices.scrub import Quarantine
from adapter.equipment import Scrubber, devices, divide, meshes, runtimes, stores
from adapter.host.keys import Keys, load_keys
from adapter.host.single import only_one
from adapter.journal.journal import Journal
from adapter.metering.meter import Metering
from adapter.money.deferred_chain import DeferredChain
from adapter.offering import check_direct, check_mesh, fee_address, make_offer, payout_address
from adapter.runtime.docker.market_images import MarketImages
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.volumes.runtime import set_aside_mib
from marketplace import disk
from marketplace.chain.encoding import address as addresses
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.blockfrost import connect as connect_chain
from marketplace.domain.errors import Refusal, TallyError
from marketplace.domain.money.terms import check_close_period
from marketplace.domain.supply.offer import Offer
from marketplace.system import LOOP, raise_file_limit

CHAIN_WAIT_S: Final = 5.0
EXIT_REFUSED: Final = 3
EXIT_FAULT: Final = 4

Started = Callable[[Daemon, Till], None]

_log = structlog.get_logger("adapter")


class OtherNetwork(ConfigRefused):
    """The chain is another network than the one that this adapter's channels are on."""

    code = "OTHER_NETWORK"
    remedy = "point chain_url at that network, or start with another --state folder"

    def __init__(self, known: int, found: int) -> None:
        super().__init__(f"chain_url: this state is of network {known}, the chain there is {found}")


class MetricsPortTaken(ConfigRefused):
    """The port for Prometheus is not free."""

    code = "METRICS_PORT_TAKEN"
    remedy = "set metrics_port to a free port, or to 0 for none"


def _log_alarm(code: str, message: str) -> None:
    _log.warning("alarm", code=code, cause=message)


async def connect_patiently(
    config: Config, alarm: Callable[[str, str], None] = _log_alarm
) -> ChainReader:
    """The chain, however long it takes to come up."""
    while True:
        try:
            return await connect_chain(
                config.chain_url, config.project_id, submit_urls=config.submit_urls
            )
        except ChainFault as fault:
            alarm(fault.code, f"waiting for the chain at {config.chain_url}: {fault.message}")
            await anyio.sleep(CHAIN_WAIT_S)


async def network(
    journal: Journal, state: State, connected: Callable[[], Awaitable[ChainReader]]
) -> int:
    """The magic of the network that is served.

    While leases run it is the journal's: they are taken up at once, whether the chain answers or
    not.  With nothing to take up the chain says which network it is, and the journal keeps it.
    """
    known = await anyio.to_thread.run_sync(journal.network)
    if known is not None and state.leases:
        return known
    magic = (await connected()).magic
    open_still = any(not channel.final for channel in state.channels.values())
    if known not in (None, magic) and open_still:
        raise OtherNetwork(known, magic)
    await anyio.to_thread.run_sync(journal.bind, magic)
    return magic


async def make_treasury(
    config: Config, keys: Keys, daemon: Daemon, journal: Journal, payout: str, till: Till
) -> Chain:
    """The treasury, once the chain answers; *till* is told how the fee key stands.

    Its module is imported here and not above, in a thread: pycardano takes longer to import than
    all the rest of the adapter, and workloads that run are to be metered meanwhile.
    """
    module = await anyio.to_thread.run_sync(importlib.import_module, "adapter.money.channel_agent")
    chain = await connect_patiently(config, daemon.raise_alarm)
    if chain.magic != daemon.own.offer.magic:
        raise OtherNetwork(daemon.own.offer.magic, chain.magic)

    def told(now: Fees) -> None:
        before, till.fees = till.fees, now
        if now.enough_for:
            daemon.withdraw_alarms("FEES_SHORT", "FUNDS_SHORT")
        if now.end_cost != before.end_cost:
            daemon.offer_changed()

    def waited_for(session_vk: bytes) -> bool:
        return awaits_money(daemon.state, session_vk, daemon.now())

    return module.ChannelAgent(
        chain, keys.end, keys.fee, payout, journal, daemon.handle, daemon.channel,
        daemon.raise_alarm,
        asset=config.asset, rules=config.treasury, draining=lambda: daemon.state.draining,
        waited_for=waited_for, told=told, payments=till.payments, market=daemon.link,
    )  # fmt: skip


async def serve(settings: Settings, keys: Keys, started: Started) -> None:
    """Put the parts together and serve until cancelled."""
    config = settings.now
    raise_file_limit()
    journal = await anyio.to_thread.run_sync(Journal, config.folder / "journal.db")
    state = await anyio.to_thread.run_sync(journal.load)
    magic = await network(journal, state, lambda: connect_patiently(config))
    check_close_period(magic, config.close_period_ms)
    check_direct(config, magic)
    check_mesh(config, magic)
    payout = payout_address(config, keys, magic)
    hands = await anyio.to_thread.run_sync(devices, config)
    await anyio.to_thread.run_sync(divide, config, hands.nvml, state)
    registry = MarketImages(config.market, keys.meter, hands.clock.wall_ms)
    able = await anyio.to_thread.run_sync(runtimes, config, keys, registry)
    inventory = Inventory(
        hands.nvml,
        config.folder,
        Place(config.host, config.region, config.up_kbit, config.down_kbit, tuple(able)),
        config.reserve,
        set_aside=lambda: set_aside_mib(config.folder / "runtime"),
    )

    till = await anyio.to_thread.run_sync(
        Till, journal, fee_address(keys, magic), magic, config.treasury
    )
    _log.info("fees are paid from", address=till.fees.address, fund=till.fund)

    mesh = await anyio.to_thread.run_sync(meshes, config, keys)
    shown = await anyio.to_thread.run_sync(stores, config)
    parts = Parts(
        journal=journal,
        clock=hands.clock,
        meters=Metering(hands.clock, hands.nvml),
        inventory=inventory,
        cleaner=Scrubber(
            hands.nvml, hands.wiper, Quarantine(config.folder / "quarantine.json")
        ),
        runtimes=able,
        mesh=mesh,
        stores=shown,
    )  # fmt: skip

    def offer_now() -> Offer:
        host, wall_ms, cost = inventory.take(), hands.clock.wall_ms(), till.fees.end_cost
        able = {"mesh": mesh is not None, "store": shown is not None}
        return make_offer(settings.now, keys, magic, payout, host, wall_ms, cost, **able)

    offer = await anyio.to_thread.run_sync(offer_now)
    own = Own(offer, keys.meter, _limits(config), config.treasury)
    daemon = Daemon(
        parts, own, keys, socket_link(config.market, own, os.urandom(16)),
        (config.folder / "runtime" / "outputs",), offer_now,
    )  # fmt: skip

    def changed() -> None:
        for name in settings.now.prices.unmatched(daemon.own.offer.host.gpus):
            daemon.raise_alarm("PRICE_UNMATCHED", f"no device matches the price {name!r}")
        daemon.offer_changed()

    settings.changed = changed
    changed()
    chain = DeferredChain(lambda: make_treasury(config, keys, daemon, journal, payout, till))
    images = _stocktaking(config, able, daemon)
    try:
        await _run(settings, daemon, chain, till, images, started)
    finally:
        daemon.close()
        if mesh is not None:
            mesh.close()
        if hands.nvml is not None:
            hands.nvml.close()


def _limits(config: Config) -> Limits:
    return replace(
        config.limits, host_network=config.host_network, market=config.market, direct=config.direct
    )


def _stocktaking(config: Config, able: Mapping[str, Runtime], daemon: Daemon) -> Stocktaking | None:
    docker = able.get("docker")
    if not isinstance(docker, DockerRuntime):
        return None

    def busy() -> bool:
        return any(one.handle is None for one in daemon.state.leases.values())

    return Stocktaking(daemon.link, docker.store, config.shelving, busy)


async def _run(
    settings: Settings,
    daemon: Daemon,
    chain: Chain,
    till: Till,
    images: Stocktaking | None,
    started: Started,
) -> None:
    config = settings.now

    def extra() -> dict[str, Any]:
        stock = {} if images is None else {"stock": images.status()}
        return {"chain_url": config.chain_url, **till.status(daemon.state), **stock}

    status = StatusSocket(
        daemon, config.status_path, extra,
        earnings=lambda: till.earnings(daemon.state), reload=settings.reload,
    )  # fmt: skip
    server = _metrics(daemon, config.metrics_port, till) if config.metrics_port else None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(status.run)
            group.start_soon(_stop_on_signal, group.cancel_scope)
            group.start_soon(_reload_on_signal, settings, daemon)
            if images is not None:
                group.start_soon(images.run)
            await daemon.run(chain, started=lambda: started(daemon, till))
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()


def _metrics(daemon: Daemon, port: int, till: Till) -> TCPServer:
    try:
        return metrics.serve(daemon, port, till)[0]
    except OSError as error:
        raise MetricsPortTaken(f"metrics_port {port}: {error.strerror}") from error


async def _stop_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("stopping; workloads live on", signal=signal.Signals(number).name)
            scope.cancel()
            return


async def _reload_on_signal(settings: Settings, daemon: Daemon) -> None:
    """SIGHUP: what may change while leases run is read again; what is wrong changes nothing."""
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            try:
                done = await anyio.to_thread.run_sync(settings.reload)
            except Refusal as refused:
                daemon.raise_alarm(refused.code, f"not reloaded: {refused.message}")
                continue
            _log.info("reloaded", **done)


async def _withdraw(config: Config, keys: Keys, to: str) -> tuple[str, int]:
    module = await anyio.to_thread.run_sync(importlib.import_module, "adapter.money.withdraw")
    journal = await anyio.to_thread.run_sync(Journal, config.folder / "journal.db")
    try:
        state = await anyio.to_thread.run_sync(journal.load)
        chain = await connect_chain(config.chain_url, config.project_id)
        address = addresses.from_text(to)
        if addresses.is_mainnet(address) is not chain.mainnet:
            raise ConfigRefused(f"{to[:20]}… belongs to another network")
        desk = module.desk_of(chain, keys.fee, journal, config.asset)
        sent, lovelace = await module.withdraw(desk, address, state.channels.values())
        return sent.tx_id.hex(), lovelace
    finally:
        journal.close()


def withdraw_fees(config: Config, to: str) -> tuple[str, int]:
    """All of the fee key's money to the address *to*, while no adapter runs and every channel is
    over for good: the transaction's id, and the lovelace that arrives.
    """
    if not (config.folder / "keys").is_dir():
        from adapter.money.withdraw import NoState

        raise NoState(f"there is no adapter's state in {config.folder}")
    with only_one(config.folder):
        return anyio.run(_withdraw, config, load_keys(config.folder / "keys"), to)


def main(
    config: Config,
    started: Started = lambda _daemon, _till: None,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Serve until asked to stop; the process's exit code. *reread*: the configuration again, from
    where *config* came.
    """
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        folder = config.folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with only_one(folder):
            settings = Settings(config, reread)
            anyio.run(serve, settings, load_keys(folder / "keys"), started, backend_options=LOOP)
    except TallyError as error:
        return _report(error)
    except OSError as error:
        return _report(disk.fault(error, "a file of the adapter", error.filename or config.folder))
    except BaseExceptionGroup as group:
        known, other = group.split(TallyError)
        if known is None or other is not None:
            raise
        return _report(_first(known))
    return 0


def _first(group: BaseExceptionGroup[TallyError]) -> TallyError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _report(error: TallyError) -> int:
    _log.error("adapter stopped", code=error.code, cause=error.message, remedy=error.remedy)
    return EXIT_REFUSED if isinstance(error, Refusal) else EXIT_FAULT
