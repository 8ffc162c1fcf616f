"""An offer: standing supply of one host, with its prices and its rules."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from marketplace.domain import canonical
from marketplace.domain.canonical import (
    want_bytes,
    want_flag,
    want_int,
    want_items,
    want_list,
    want_map,
    want_text,
)
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.isolation import Isolation, want_isolation
from marketplace.domain.machine import Machine
from marketplace.domain.metering.kinds import DISK, KINDS, Resource
from marketplace.domain.money.terms import MAX_FEE_BPS
from marketplace.domain.supply.hardware import HostHardware
from marketplace.domain.work.job import VERSION

DEVNET_MAGIC: Final = 42
NAME: Final = "name"


def offer_id(provider: str) -> str:
    """One adapter has one offer: ``offer_`` and 26 characters that follow from its key (in hex)."""
    digest = hashlib.blake2b(provider.encode(), digest_size=17).digest()
    return "offer_" + base64.b32encode(digest).decode().lower()[:26]


class OfferRefused(Refusal):
    """An offer that no honest market would list."""

    code = "OFFER_REFUSED"
    remedy = "correct the adapter's configuration; `tally adapter doctor` names what is wrong"


class AdapterOutdated(Refusal):
    """An adapter that would not understand the jobs of today."""

    code = "ADAPTER_OUTDATED"
    remedy = "install the adapter of this market's version; leases that run end as they would"


class OfferState(Enum):
    """Where an offer stands."""

    LISTED = auto()
    AWAY = auto()  # its adapter is not connected: nothing new is matched
    DRAINING = auto()  # running leases go on, nothing new is matched
    SUSPENDED = auto()  # by the market's operator
    WITHDRAWN = auto()


class OfferEvent(Enum):
    """What can happen to one."""

    POSTED = auto()
    GONE = auto()
    DRAIN = auto()
    UNDRAIN = auto()
    SUSPEND = auto()
    RESTORE = auto()
    WITHDRAW = auto()


_S, _E = OfferState, OfferEvent

OFFER: Final = Machine(
    "offer",
    _S.LISTED,
    {
        (_S.LISTED, _E.POSTED): _S.LISTED,
        (_S.LISTED, _E.GONE): _S.AWAY,
        (_S.LISTED, _E.DRAIN): _S.DRAINING,
        (_S.LISTED, _E.SUSPEND): _S.SUSPENDED,
        (_S.LISTED, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.AWAY, _E.POSTED): _S.LISTED,
        (_S.AWAY, _E.GONE): _S.AWAY,
        (_S.AWAY, _E.SUSPEND): _S.SUSPENDED,
        (_S.AWAY, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.DRAINING, _E.POSTED): _S.DRAINING,
        (_S.DRAINING, _E.DRAIN): _S.DRAINING,
        (_S.DRAINING, _E.UNDRAIN): _S.LISTED,
        (_S.DRAINING, _E.GONE): _S.AWAY,
        (_S.DRAINING, _E.SUSPEND): _S.SUSPENDED,
        (_S.DRAINING, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.SUSPENDED, _E.POSTED): _S.SUSPENDED,
        (_S.SUSPENDED, _E.GONE): _S.SUSPENDED,
        (_S.SUSPENDED, _E.RESTORE): _S.AWAY,
        (_S.SUSPENDED, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.WITHDRAWN, _E.POSTED): _S.LISTED,
    },
)


@dataclass(frozen=True)
class Window:
    """Planned maintenance: nothing new is matched that could still run at *start_ms* (UTC)."""

    start_ms: int
    end_ms: int
    notice: str = ""


@dataclass(frozen=True)
class Offer:
    """What one adapter offers.

    *provider*: hex of the adapter's Ed25519 key, its name everywhere; *gpu_rates*: micro-lovelace
    per GPU-second by model; *core_rate*: per core-second, 0 = cores are not rented alone;
    *adapter_vkh*, *payout*: as in the terms; *egress*: a job that asks may connect out;
    *job_version*: the newest form of a job that its adapter reads; *keep_most_ms*: the longest that
    an idle channel is kept open for its consumer (0: none is, its consumer ends it); *minimum*: the
    least, of the asset's smallest unit, that a job must be able to cost on a channel of its own;
    *allowance*: the most, in lovelace, that is served on a channel before a block holds it;
    *relay_free_ms*: how long a relay may run here unbilled for want of a tip (0: none is taken);
    *disk_rate*: per GB-second of volumes, 0 = none are rented; *volume_keep_ms*: how long one is
    kept unpaid, in all; *direct_ports*: how many ports of workloads its host opens at an address of
    its own; *cluster_free_ms*: how long a member of a cluster may be unbilled while it waits for
    others (0: none is taken); *mesh*: it can join a cluster's own network; *store*: it
    shows a cluster's members a folder that outlives them.
    """

    id: str
    provider: str
    magic: int
    adapter_vkh: bytes
    payout: bytes
    payout_address: str
    host: HostHardware
    gpu_rates: Mapping[str, int]
    core_rate: int
    asset: str = ""
    tick_ms: int = 1000
    grace_ms: int = 2000
    pause_limit_ms: int = 60_000
    close_period_ms: int = 86_400_000
    fee_bps: int = 50
    isolation: tuple[Isolation, ...] = (Isolation.CONTAINER,)
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    trust: int = 0
    allow_root: bool = False
    egress: bool = False
    windows: tuple[Window, ...] = ()
    job_version: int = VERSION
    keep_most_ms: int = 0
    minimum: int = 0
    allowance: int = 0
    relay_free_ms: int = 0
    disk_rate: int = 0
    volume_keep_ms: int = 0
    direct_ports: int = 0
    cluster_free_ms: int = 0
    mesh: bool = False
    store: bool = False

    @property
    def name(self) -> str:
        """What its provider calls itself: its label ``name``. Anybody may call himself so."""
        return self.labels.get(NAME, "")

    def pause_limit(self, resource: Resource) -> int:
        """How long a lease of *resource* may be paused for want of payment in all, milliseconds."""
        return self.volume_keep_ms if resource == DISK.name else self.pause_limit_ms

    def rate(self, resource: Resource, model: str = "") -> int:
        """What a unit of *resource* costs a second, in micro-lovelace (of a device: its *model*'s);
        0: it is not rented.
        """
        kind = KINDS[resource]
        rates: Any = getattr(self, kind.rates)
        return int(rates.get(model, 0) if kind.devices else rates)

    def __post_init__(self) -> None:
        simulated = any(gpu.simulated for gpu in self.host.gpus)
        rules = (
            (
                not simulated or self.magic == DEVNET_MAGIC,
                "a simulated device can be listed on a devnet only",
            ),
            (0 <= self.fee_bps <= MAX_FEE_BPS, f"fee_bps is at most {MAX_FEE_BPS}"),
            (1000 <= self.tick_ms <= 60_000, "a tick lasts 1 to 60 s"),
            (self.minimum >= 0, "a minimum is ≥ 0"),
            (self.allowance >= 0, "an allowance is ≥ 0"),
            (self.relay_free_ms >= 0, "relay_free_ms is ≥ 0"),
            (min(self.direct_ports, self.cluster_free_ms) >= 0, "direct_ports, free time are ≥ 0"),
            (min(self.disk_rate, self.volume_keep_ms) >= 0, "disk_rate, volume_keep_ms are ≥ 0"),
            (self.core_rate >= 0 and all(r > 0 for r in self.gpu_rates.values()), "a rate is ≤ 0"),
        )
        for holds, why in rules:
            if not holds:
                raise OfferRefused(why)

    def to_wire(self) -> dict[str, Any]:
        """A map of plain values for a message or a store (bytes stay bytes)."""
        return {
            "id": self.id,
            "provider": self.provider,
            "magic": self.magic,
            "adapter_vkh": self.adapter_vkh,
            "payout": self.payout,
            "payout_address": self.payout_address,
            "host": self.host.to_wire(),
            "gpu_rates": dict(self.gpu_rates),
            "core_rate": self.core_rate,
            "asset": self.asset,
            "tick_ms": self.tick_ms,
            "grace_ms": self.grace_ms,
            "pause_limit_ms": self.pause_limit_ms,
            "close_period_ms": self.close_period_ms,
            "fee_bps": self.fee_bps,
            "isolation": [one.value for one in self.isolation],
            "region": self.region,
            "labels": dict(self.labels),
            "trust": self.trust,
            "allow_root": self.allow_root,
            "egress": self.egress,
            "windows": [[w.start_ms, w.end_ms, w.notice] for w in self.windows],
            "job_version": self.job_version,
            "keep_most_ms": self.keep_most_ms,
            # Left out where there is none: offers of before keep their bytes.
            **({"minimum": self.minimum} if self.minimum else {}),
            **({"allowance": self.allowance} if self.allowance else {}),
            **({"relay_free_ms": self.relay_free_ms} if self.relay_free_ms else {}),
            **({"disk_rate": self.disk_rate} if self.disk_rate else {}),
            **({"volume_keep_ms": self.volume_keep_ms} if self.volume_keep_ms else {}),
            **({"direct_ports": self.direct_ports} if self.direct_ports else {}),
            **({"cluster_free_ms": self.cluster_free_ms} if self.cluster_free_ms else {}),
            **({"mesh": True} if self.mesh else {}),
            **({"store": True} if self.store else {}),
        }

    @staticmethod
    def from_wire(value: object) -> Offer:
        """The reverse; :class:`Malformed` or :class:`OfferRefused`."""
        w = want_map(value, "offer")
        try:
            return Offer(
                id=want_text(w["id"], "id", 64),
                provider=want_text(w["provider"], "provider", 64),
                magic=want_int(w["magic"], "magic"),
                adapter_vkh=want_bytes(w["adapter_vkh"], 28, "adapter_vkh"),
                payout=want_bytes(w["payout"], 28, "payout"),
                payout_address=want_text(w["payout_address"], "payout_address", 200),
                host=HostHardware.from_wire(want_map(w["host"], "host")),
                gpu_rates=_rates(w["gpu_rates"]),
                core_rate=want_int(w["core_rate"], "core_rate"),
                asset=want_text(w["asset"], "asset", 120),
                tick_ms=want_int(w["tick_ms"], "tick_ms"),
                grace_ms=want_int(w["grace_ms"], "grace_ms"),
                pause_limit_ms=want_int(w["pause_limit_ms"], "pause_limit_ms"),
                close_period_ms=want_int(w["close_period_ms"], "close_period_ms"),
                fee_bps=want_int(w["fee_bps"], "fee_bps"),
                isolation=tuple(
                    want_isolation(x) for x in want_items(w["isolation"], "isolation", 16)
                ),
                region=want_text(w["region"], "region", 40),
                labels={
                    want_text(k, "label", 64): want_text(v, "label", 200)
                    for k, v in want_map(w["labels"], "labels").items()
                },
                trust=want_int(w["trust"], "trust", 0, 100),
                allow_root=want_flag(w["allow_root"], "allow_root"),
                egress=want_flag(w["egress"], "egress"),
                windows=tuple(_window(x) for x in want_items(w["windows"], "windows", 1000)),
                job_version=want_int(w.get("job_version", 1), "job_version", 1),
                keep_most_ms=want_int(w.get("keep_most_ms", 0), "keep_most_ms"),
                minimum=want_int(w.get("minimum", 0), "minimum"),
                allowance=want_int(w.get("allowance", 0), "allowance"),
                relay_free_ms=want_int(w.get("relay_free_ms", 0), "relay_free_ms"),
                disk_rate=want_int(w.get("disk_rate", 0), "disk_rate"),
                volume_keep_ms=want_int(w.get("volume_keep_ms", 0), "volume_keep_ms"),
                direct_ports=want_int(w.get("direct_ports", 0), "direct_ports"),
                cluster_free_ms=want_int(w.get("cluster_free_ms", 0), "cluster_free_ms"),
                mesh=want_flag(w.get("mesh", False), "mesh"),
                store=want_flag(w.get("store", False), "store"),
            )
        except KeyError as error:
            raise Malformed(f"the offer lacks {error}") from None

    def worth(self, ceiling: int, spent: int = 0) -> bool:
        """Whether a lease of at most *ceiling* may bring its channel, over which *spent* was paid
        before, to the minimum.
        """
        return spent + ceiling >= self.minimum

    @property
    def hash(self) -> bytes:
        """blake2b_256 of the canonical offer."""
        return canonical.blake2b_256(canonical.encode(self.to_wire()))


def _rates(value: object) -> dict[str, int]:
    return {
        want_text(model, "model", 80): want_int(rate, "rate", 1)
        for model, rate in want_map(value, "gpu_rates").items()
    }


def _window(value: object) -> Window:
    start, end, notice = want_list(value, 3, "window")
    return Window(want_int(start, "start"), want_int(end, "end"), want_text(notice, "notice", 200))
