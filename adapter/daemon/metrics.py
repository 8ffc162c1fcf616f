"""Prometheus metrics of one adapter, read from its state at each scrape: nothing to keep in
step.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from socketserver import TCPServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapter.daemon.daemon import Daemon
from adapter.daemon.till import Till
from marketplace.domain.metering.usage import usage
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.work.lease import LeaseState


class AdapterCollector(Collector):
    """Looks at the daemon when it is asked; states are frozen values, so no lock is needed."""

    def __init__(self, daemon: Daemon, till: Till | None = None) -> None:
        self._daemon = daemon
        self._till = till

    def collect(self) -> Iterable[Metric]:
        """All families."""
        yield from self._market()
        yield from self._leases()
        yield from self._money()
        yield from self._devices()

    def _market(self) -> Iterable[Metric]:
        link = self._daemon.link
        yield _gauge("tally_adapter_connected", "1 while the market hears this adapter", link.up)
        yield _gauge("tally_adapter_backlog", "Unacknowledged messages", link.backlog)
        draining = self._daemon.state.draining
        yield _gauge("tally_adapter_draining", "1 while no new leases are taken", draining)
        alarms = Counter(code for _, code, _ in self._daemon.alarms)
        family = GaugeMetricFamily("tally_adapter_alarms", "Recent alarms by code", labels=["code"])
        for code, count in alarms.items():
            family.add_metric([code], count)
        yield family

    def _leases(self) -> Iterable[Metric]:
        leases = self._daemon.state.leases.values()
        by_state = Counter(lease.state.name for lease in leases)
        family = GaugeMetricFamily("tally_adapter_leases", "Leases by state", labels=["state"])
        for state in LeaseState:
            family.add_metric([state.name], by_state[state.name])
        yield family
        used = GaugeMetricFamily(
            "tally_adapter_lease_unit_ms", "Delivered milliseconds of live leases",
            labels=["lease", "resource"],
        )  # fmt: skip
        lost = GaugeMetricFamily(
            "tally_adapter_lease_lost_ms", "Milliseconds not billed, by cause",
            labels=["lease", "cause"],
        )  # fmt: skip
        for lease in leases:
            totals = usage(lease.meters)
            resource = lease.terms.resource
            used.add_metric([lease.id, resource], totals.unit_ms(resource))
            for cause, ms in totals.lost_ms:
                lost.add_metric([lease.id, cause.value], ms)
        yield used
        yield lost

    def _money(self) -> Iterable[Metric]:
        state = self._daemon.state
        live = [c for c in state.channels.values() if c.stage is not ChannelStage.ENDED]
        yield CounterMetricFamily(
            "tally_adapter_earned_lovelace", "Lovelace by vouchers, all channels",
            value=state.earned,
        )  # fmt: skip
        yield CounterMetricFamily(
            "tally_adapter_claimed_lovelace", "Lovelace on chain, all channels",
            value=state.claimed,
        )  # fmt: skip
        yield _gauge(
            "tally_adapter_unclaimed_lovelace", "Lovelace of vouchers that are not on chain",
            sum(c.unclaimed for c in live),
        )  # fmt: skip
        yield _gauge(
            "tally_adapter_unpaid_lovelace", "Lovelace of receipts without a voucher",
            sum(max(0, c.owed - c.paid) for c in live),
        )  # fmt: skip
        yield _gauge(
            "tally_adapter_starved_channels", "Channels whose claims do not come on chain in time",
            sum(c.starved for c in live),
        )  # fmt: skip
        yield _gauge(
            "tally_adapter_fees_short", "1 while the fee key cannot pay for a Finish",
            bool(state.unable),
        )  # fmt: skip
        if self._till is not None:
            yield from self._books(self._till)

    def _books(self, till: Till) -> Iterable[Metric]:
        total, fees = till.payments.total, till.fees
        yield _gauge(
            "tally_adapter_net_lovelace", "Lovelace claimed, less fees and bounties", total.net
        )
        yield _gauge(
            "tally_adapter_fees_paid_lovelace", "Lovelace of chain fees that the fee key paid",
            total.fees,
        )  # fmt: skip
        yield _gauge(
            "tally_adapter_moved_lovelace", "Lovelace of the fee key's own that went to the payout",
            total.moved,
        )  # fmt: skip
        if fees.lovelace is not None:
            yield _gauge("tally_adapter_fee_key_lovelace", "What the fee key holds", fees.lovelace)
            yield _gauge(
                "tally_adapter_fee_key_ends", "For so many more ends the fee key's money is enough",
                fees.enough_for,
            )  # fmt: skip

    def _devices(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "tally_adapter_device_rentable", "1 while a device can be rented",
            labels=["uuid", "model", "health"],
        )  # fmt: skip
        for gpu in self._daemon.own.offer.host.gpus:
            family.add_metric([gpu.uuid, gpu.model, gpu.health.value], gpu.rentable)
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def serve(
    daemon: Daemon, port: int, till: Till | None = None, address: str = "127.0.0.1"
) -> tuple[TCPServer, threading.Thread]:
    """Serve ``/metrics`` in a thread; port 0 takes a free one (``server.server_port``)."""
    registry = CollectorRegistry()
    registry.register(AdapterCollector(daemon, till))
    return start_http_server(port, address, registry)
