"""The offers that are listed, by id, and what a job's words ask of them in the matcher's.

Models, regions and providers are words of a job; a request has sets of them. The inverse is here
too: a placement is an offer and the grant on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from marketplace.domain.isolation import Isolation
from marketplace.domain.sold import model_matches
from marketplace.domain.supply.grant import of_block
from marketplace.domain.supply.hardware import Gpu as Device
from marketplace.domain.supply.offer import Offer
from marketplace.domain.supply.stock import digest_of
from marketplace.domain.units import WHOLE
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import UNLIMITED, Resources
from marketplace.domain.work.workload import EgressMode
from marketplace.market.base.records import Lease, OfferRecord
from marketplace.market.state.match import NOTHING, Match, Spent
from marketplace.matching import (
    Gpu,
    Host,
    Placement,
    Request,
)

MOST_GPUS: Final = 64
MOST_MEANT: Final = 1_000
_CORES: Final = "rents=cores"
_RELAYS: Final = "takes=relays"
_DISK: Final = "rents=disk"
_DIRECT: Final = "ports=direct"
_NOWHERE: Final = "\0none"


@dataclass
class Listed:
    record: OfferRecord
    offer: Offer
    slots: tuple[Device, ...]


class Listings:
    """One process's view of them; whoever changes it tells the matchmaker."""

    def __init__(self) -> None:
        self._offers: dict[str, Listed] = {}
        self._by_provider: dict[str, set[str]] = {}
        self._models_listed: dict[str, int] = {}  # devices by model
        self._meant: dict[tuple[str, ...], frozenset[str]] = {}  # a job's words → listed models
        self.changes = 0  # how often one was put or dropped

    def __contains__(self, offer_id: str) -> bool:
        return offer_id in self._offers

    def __getitem__(self, offer_id: str) -> Listed:
        return self._offers[offer_id]

    def get(self, offer_id: str) -> Listed | None:
        """The listed offer; None for an unknown one."""
        return self._offers.get(offer_id)

    def all(self) -> Iterable[Listed]:
        """Each of them."""
        return self._offers.values()

    def put(self, one: Listed) -> None:
        """List an offer that is not listed."""
        self._offers[one.offer.id] = one
        self._by_provider.setdefault(one.offer.provider, set()).add(one.offer.id)
        self._count_models(one.slots, 1)
        self.changes += 1

    def drop(self, offer_id: str) -> None:
        """It is listed no more."""
        gone = self._offers.pop(offer_id)
        self._by_provider[gone.offer.provider].discard(offer_id)
        self._count_models(gone.slots, -1)
        self.changes += 1

    def cheapest(self, spec: JobSpec, lease: Lease, most: int = 50) -> list[tuple[int, str]]:
        """(rate, offer) of up to *most* other offers that have such a device at all."""
        need = spec.resources[lease.block].gpu
        asked = need.models if need is not None else ()
        priced: list[tuple[int, str]] = []
        for offer_id, one in self._offers.items():
            if lease.gpus:
                rates = [
                    one.offer.gpu_rates[g.model]
                    for g in one.slots
                    if not asked or any(model_matches(a, g.model) for a in asked)
                ]
            else:
                plain = one.offer.rate(lease.grant.resource)
                rates = [plain] if plain else []
            if rates and offer_id != lease.offer:
                priced.append((min(rates), offer_id))
        return heapq.nsmallest(most, priced)

    def named(self, spec: JobSpec, blocks: list[tuple[int, Request]], placed: Placement) -> Match:
        """The placement of one of the job's *blocks*, as an offer and the grant on it."""
        listed = self._offers[placed.host]
        for block, plain in blocks:
            if len(blocks) == 1 or _answers(placed.request, plain):
                devices = [listed.slots[s] for s in placed.gpus]
                grant = of_block(spec, block, tuple(d.uuid for d in devices))
                models = {d.model for d in devices} or {""}
                rate = max(listed.offer.rate(grant.resource, model) for model in models)
                return Match(listed.offer, grant, block, placed, rate)
        raise RuntimeError(f"a placement on {placed.host} answers none of the job's blocks")

    def blocks(
        self, spec: JobSpec, account: str, avoid: frozenset[str], spent: Spent = NOTHING
    ) -> list[tuple[int, Request]]:
        """What the job asks, in the matcher's words: one request for each of its blocks, with the
        block's number, and for each provider that it names; *avoid* are providers.
        """
        shunned = (*avoid, *spec.placement.not_providers)
        hosts = frozenset[str]().union(*(self._by_provider.get(p, ()) for p in shunned))
        brought = tuple(
            (host, lovelace)
            for provider, lovelace in spent.channels
            for host in sorted(self._by_provider.get(provider, ()))
        )
        left = max(0, spec.price.budget - spent.before)
        made: list[tuple[int, Request]] = []
        for block, resources in enumerate(spec.resources):
            plain = self._request(spec, resources, account, hosts)
            plain = replace(plain, budget=left, spent=brought)
            only = [f"provider={p}" for p in spec.placement.providers]
            made += [(block, replace(plain, labels=plain.labels | {x})) for x in only] or [
                (block, plain)
            ]
        return made

    def _request(self, spec: JobSpec, r: Resources, account: str, avoid: frozenset[str]) -> Request:
        place, price, need = spec.placement, spec.price, r.gpu
        labels = {f"{k}={v}" for k, v in place.labels.items()}
        gpu = need if need is not None and need.count.most > 0 else None
        if gpu is None:
            labels.add(_DISK if spec.is_volume else _CORES)
        if spec.relay is not None:
            labels.add(_RELAYS)
        if spec.direct_ports:
            labels.add(_DIRECT)
        return Request(
            cpu_milli=r.cpu.least,
            memory_mib=r.memory.least,
            disk_mib=r.disk.least,
            gpu_count=max(gpu.count.least, 1) if gpu else 0,
            gpu_count_max=_most(gpu.count.least, gpu.count.most, gpu.share) if gpu else None,
            gpu_milli=gpu.share if gpu else WHOLE,
            gpu_models=self.meaning(gpu.models) if gpu else frozenset(),
            vram_mib=gpu.vram.least if gpu else 0,
            vram_max_mib=gpu.vram.most if gpu and gpu.vram.most < UNLIMITED else None,
            regions=frozenset(place.regions),
            labels=frozenset(labels),
            isolation=frozenset() if spec.is_volume else _accepted(place.isolation),
            trust=place.min_trust,
            egress=spec.egress.mode is not EgressMode.NONE,
            cluster_free_ms=spec.cluster.free_ms if spec.cluster is not None else 0,
            mesh=spec.cluster is not None and spec.cluster.mesh,
            store=spec.store is not None,
            max_gpu_rate=price.max_gpu_rate or None if gpu else None,
            max_core_rate=None if gpu or spec.is_volume else price.max_core_rate or None,
            max_disk_rate=(price.max_disk_rate or None) if spec.is_volume else None,
            rents_disk=spec.is_volume,
            owner=account,
            priority=spec.policy.priority,
            duration_ms=spec.policy.max_duration_ms,
            avoid=avoid,
            image=digest_of(spec.image),
            wait_rate=price.wait_rate,
        )

    def meaning(self, asked: tuple[str, ...]) -> frozenset[str]:
        """The listed models that a job's words for one mean; one that is nowhere if none."""
        if not asked:
            return frozenset()
        meant = self._meant.get(asked)
        if meant is None:
            if len(self._meant) >= MOST_MEANT:
                self._meant.clear()
            names = (m for m in self._models_listed if any(model_matches(a, m) for a in asked))
            meant = self._meant[asked] = frozenset(names) or frozenset({_NOWHERE})
        return meant

    def _count_models(self, slots: tuple[Device, ...], sign: int) -> None:
        """Which models are listed; what jobs' words mean is worked out anew only when that
        changes.
        """
        for device in slots:
            count = self._models_listed.get(device.model, 0) + sign
            if count == max(sign, 0):
                self._meant.clear()
            self._models_listed[device.model] = count
            if not count:
                del self._models_listed[device.model]


@cache
def _accepted(isolation: Isolation) -> frozenset[str]:
    return frozenset(isolation.accepted)


def _answers(placed: Request, plain: Request) -> bool:
    fixed = replace(plain, gpu_count=placed.gpu_count, gpu_count_max=None)
    return fixed == replace(placed, any_of=())


def _most(least: int, most: int, share: int) -> int | None:
    if share != WHOLE or most <= least:
        return None
    return min(most, MOST_GPUS)


def as_host(offer: Offer, slots: tuple[Device, ...]) -> Host:
    """The offer as the matchmaker knows a host; *slots* are the devices that it rents out."""
    host = offer.host
    labels = {f"{k}={v}" for k, v in offer.labels.items()} | {f"provider={offer.provider}"}
    if offer.core_rate > 0:
        labels.add(_CORES)
    if offer.relay_free_ms > 0:
        labels.add(_RELAYS)
    if offer.disk_rate > 0:
        labels.add(_DISK)
    if offer.direct_ports > 0:
        labels.add(_DIRECT)
    return Host(
        id=offer.id,
        cpu_milli=host.cpu.milli,
        memory_mib=host.memory_mib,
        disk_mib=host.disk_mib,
        gpus=tuple(Gpu(g.model, g.vram_mib, offer.gpu_rates[g.model], g.share) for g in slots),
        core_rate=offer.core_rate,
        disk_rate=offer.disk_rate,
        region=offer.region or host.region,
        labels=frozenset(labels),
        isolation=frozenset(offer.isolation),
        trust=offer.trust,
        upload_mbps=host.up_kbit // 1000,
        download_mbps=host.down_kbit // 1000,
        egress=offer.egress,
        cluster_free_ms=offer.cluster_free_ms,
        mesh=offer.mesh,
        store=offer.store,
        provider=offer.provider,
        minimum=offer.minimum,
        maintenance=tuple((w.start_ms, w.end_ms) for w in offer.windows if w.start_ms < w.end_ms),
    )
