"""Random operations against an account kept by hand, and every choice against a slow, obvious
reference.

The reference reads the same scoring rule from its definition (a sum over all kinds of demand), with
loops over hosts, devices and kinds; it never looks at what the engine keeps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from marketplace.matching import (
    Gang,
    Gpu,
    Host,
    Matchmaker,
    NoMatch,
    Placement,
    Policy,
    Request,
    Weights,
)

MODELS = ("A", "B", "C")
PRICE_WEIGHT = Policy().price_weight


@dataclass
class Book:
    """Who holds what, written down by hand."""

    hosts: dict[str, Host] = field(default_factory=dict)
    held: dict[int, Placement] = field(default_factory=dict)

    def free(self, name: str) -> tuple[int, int, list[int]]:
        host = self.hosts[name]
        mine = [p for p in self.held.values() if p.host == name]
        gpus = [gpu.offered for gpu in host.gpus]
        for placed in mine:
            for slot in placed.gpus:
                gpus[slot] -= placed.request.gpu_milli
        cpu = host.cpu_milli - sum(p.request.cpu_milli for p in mine)
        return cpu, host.memory_mib - sum(p.request.memory_mib for p in mine), gpus

    def owners(self, name: str, slot: int) -> set[str]:
        return {p.request.owner for p in self.held.values() if p.host == name and slot in p.gpus}

    def devices(self, name: str, request: Request) -> list[int]:
        """Slots of a host where one device of *request* may go."""
        host, (_, _, gpus) = self.hosts[name], self.free(name)
        good: list[int] = []
        for slot, gpu in enumerate(host.gpus):
            if request.gpu_models and gpu.model not in request.gpu_models:
                continue
            if gpu.vram_mib < request.vram_mib or gpus[slot] < request.gpu_milli:
                continue
            if request.max_gpu_rate is not None and gpu.rate > request.max_gpu_rate:
                continue
            if self.owners(name, slot) - {request.owner}:
                continue
            good.append(slot)
        return good

    def choices(self, request: Request) -> list[tuple[str, tuple[int, ...]]]:
        """Every host, with every device for a single one, where *request* fits."""
        out: list[tuple[str, tuple[int, ...]]] = []
        for name, host in self.hosts.items():
            cpu, mem, _ = self.free(name)
            if cpu < request.cpu_milli or mem < request.memory_mib:
                continue
            if request.regions and host.region not in request.regions:
                continue
            slots = self.devices(name, request)
            if request.gpu_count == 0:
                out.append((name, ()))
            elif request.gpu_count == 1:
                out += [(name, (slot,)) for slot in slots]
            elif len(slots) >= request.gpu_count:
                cheap = sorted(slots, key=lambda s: (host.gpus[s].rate, s))[: request.gpu_count]
                out.append((name, tuple(sorted(cheap))))
        return out

    def check(self) -> None:
        """No host and no device is over-committed, and no device has two owners."""
        for name, host in self.hosts.items():
            cpu, mem, gpus = self.free(name)
            assert min([cpu, mem, *gpus]) >= 0, name
            for slot in range(len(host.gpus)):
                assert len(self.owners(name, slot)) <= 1, (name, slot)


def value(
    host: Host, cpu: int, mem: int, gpus: list[int], mix: list[tuple[Request, float]], w: Weights
) -> float:
    """Usable devices over all kinds, less the cores out of proportion: the definition, with
    loops.
    """
    kinds = [(r, (r.gpu_milli / 1000) ** w.share_power) for r, _ in mix if r.gpu_count]
    total = sum(weight for _, weight in kinds)
    whole = sum(free == 1000 for free in gpus)
    usable = 0.0
    for kind, weight in kinds:
        model = host.gpus[0].model if host.gpus else ""
        if kind.gpu_models and model not in kind.gpu_models:
            continue
        if cpu < kind.cpu_milli or mem < kind.memory_mib:
            continue
        if kind.gpu_count == 1:
            usable += weight / total * sum(f for f in gpus if f >= kind.gpu_milli) / 1000
        elif whole >= kind.gpu_count:
            usable += weight / total * whole
    devices = sum(r.gpu_demand * n for r, n in mix) / 1000
    per_gpu = sum(r.cpu_milli * n for r, n in mix) / devices
    apart = cpu / per_gpu - sum(gpus) / 1000
    uneven = w.spare_cores * apart if apart > 0 else -w.short_cores * apart
    return usable - uneven / max(len(gpus), 1)


def surcharge(book: Book, mix: list[tuple[Request, float]], w: Weights) -> dict[str, float]:
    """What one device of each model costs above its fragmentation."""
    free: dict[str, int] = dict.fromkeys(MODELS, 0)
    for name, host in book.hosts.items():
        for gpu, left in zip(host.gpus, book.free(name)[2], strict=True):
            free[gpu.model] += left
    demand = sum(r.gpu_demand * n for r, n in mix)
    pressure: dict[str, float] = dict.fromkeys(MODELS, 0.0)
    for request, count in mix:
        if request.gpu_models and not request.gpu_models >= set(MODELS):
            part = request.gpu_demand * count / demand
            reach = sum(free[m] for m in request.gpu_models)
            for model in request.gpu_models:
                pressure[model] += part * sum(free.values()) / max(reach, 1)
    return {model: w.scarcity * min(p, 2.0) for model, p in pressure.items()}


def cost(
    book: Book,
    choice: tuple[str, tuple[int, ...]],
    request: Request,
    mix: list[tuple[Request, float]],
) -> float:
    """What *choice* takes from the market, by the definition."""
    from math import log2

    w = Weights()
    name, slots = choice
    host, (cpu, mem, gpus) = book.hosts[name], book.free(name)
    before = value(host, cpu, mem, gpus, mix, w)
    left = [f - request.gpu_milli * (s in slots) for s, f in enumerate(gpus)]
    after = value(host, cpu - request.cpu_milli, mem - request.memory_mib, left, mix, w)
    rate = sum(host.gpus[s].rate for s in slots) if slots else host.core_rate
    extra = 0.0
    if slots:
        extra = surcharge(book, mix, w)[host.gpus[0].model] * request.gpu_demand / 1000
    return before - after + extra + PRICE_WEIGHT * log2(1 + rate)


def a_host(rng: random.Random, name: str) -> Host:
    model = rng.choice(MODELS)
    rate = rng.choice((0, 100_000, 200_000))
    vram = rng.choice((16_000, 40_000))
    gpu = Gpu(model, vram, rate, offered=rng.choice((1000, 1000, 1000, 600)))
    return Host(
        name,
        rng.choice((8_000, 32_000, 64_000)),
        rng.choice((32_000, 131_000)),
        (gpu,) * rng.choice((0, 1, 2, 4, 8)),
        region=rng.choice(("EU", "US")),
        core_rate=rng.choice((0, 10_000)),
    )


def a_request(rng: random.Random) -> Request:
    count = rng.choice((0, 1, 1, 1, 1, 1, 2, 4))
    milli = rng.choice((100, 250, 500, 810, 1000)) if count == 1 else 1000
    return Request(
        rng.choice((500, 2_000, 8_000)),
        rng.choice((1_000, 8_000, 30_000)),
        count,
        milli,
        gpu_models=frozenset(rng.sample(MODELS, 1)) if rng.random() < 0.2 else frozenset(),
        vram_mib=rng.choice((0, 0, 0, 24_000)) if count else 0,
        regions=frozenset({"EU"}) if rng.random() < 0.15 else frozenset(),
        max_gpu_rate=100_000 if count and rng.random() < 0.1 else None,
        owner=rng.choice(("", "", "ada", "bob")),
    )


def trial(seed: int, operations: int) -> None:
    """Random adds, removals, placements, gangs and releases; every answer is judged by the book."""
    rng = random.Random(seed)
    mix = [(a_request(rng), 1.0 + at) for at in range(12)]
    # The mix counts requests that differ only in owner or terms as one kind; so does the reference.
    kinds: dict[tuple[object, ...], tuple[Request, float]] = {}
    for request, count in mix:
        key = (
            request.cpu_milli,
            request.memory_mib,
            request.gpu_count,
            request.gpu_milli,
            request.gpu_models,
        )
        kinds[key] = (request, count + kinds.get(key, (request, 0.0))[1])
    merged = list(kinds.values())
    market, book = Matchmaker(mix=mix), Book()
    for at in range(operations):
        act = rng.random()
        if act < 0.04 or not book.hosts:
            host = a_host(rng, f"h{at}")
            market.add(host)
            book.hosts[host.id] = host
        elif act < 0.05 and len(book.hosts) > 3:
            name = rng.choice(sorted(book.hosts))
            lost = market.remove(name)
            assert {p.id for p in lost} == {n for n, p in book.held.items() if p.host == name}
            for placed in lost:
                del book.held[placed.id]
            del book.hosts[name]
        elif act < 0.40 and book.held:
            market.release(book.held.pop(rng.choice(sorted(book.held))))
        elif act < 0.45:
            _gang(rng, market, book)
        else:
            _place(market, book, a_request(rng), merged)
        if len(book.hosts) > 12:
            name = min(book.hosts)
            for placed in market.remove(name):
                del book.held[placed.id]
            del book.hosts[name]
        if at % 25 == 0:
            book.check()
    book.check()
    for placed in list(book.held.values()):
        market.release(placed)
    for name, host in book.hosts.items():
        row = market.fleet.row_of[name]
        assert market.fleet.cpu[row] == host.cpu_milli
        assert market.fleet.mem[row] == host.memory_mib
        offered = [gpu.offered for gpu in host.gpus]
        assert list(market.fleet.free[row, : len(host.gpus)]) == offered
        assert not market.fleet.owner[row].any()
        assert not market.fleet.owners_jobs[row].any()
    assert market.fleet.named == 0


def _gang(rng: random.Random, market: Matchmaker, book: Book) -> None:
    before = (market.fleet.free.copy(), market.fleet.cpu.copy())
    members = tuple(a_request(rng) for _ in range(rng.randint(2, 4)))
    answer = market.place_gang(
        Gang(members, spread=rng.random() < 0.5, same_region=rng.random() < 0.5)
    )
    if isinstance(answer, NoMatch):
        assert (market.fleet.free == before[0]).all()
        assert (market.fleet.cpu == before[1]).all()
        return
    assert [p.request.gpu_demand for p in answer] == [m.gpu_demand for m in members]
    for placed in answer:
        book.held[placed.id] = placed


def _place(
    market: Matchmaker, book: Book, request: Request, mix: list[tuple[Request, float]]
) -> None:
    choices = book.choices(request)
    answer = market.place(request)
    if isinstance(answer, NoMatch):
        assert choices == []
        assert sum(answer.reasons.values()) == answer.hosts == len(book.hosts)
        for way in answer.relaxations:
            assert len({name for name, _ in book.choices(way.request)}) == way.hosts
        return
    picked = (answer.host, answer.gpus)
    assert picked in choices
    least = min(cost(book, choice, request, mix) for choice in choices)
    assert cost(book, picked, request, mix) == pytest.approx(least, abs=1e-6)
    book.held[answer.id] = answer


@pytest.mark.parametrize("seed", range(3))
def test_random_operations_match_the_reference(seed: int):
    trial(seed, 300)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(100, 112))
def test_ten_thousand_random_operations_match_the_reference(seed: int):
    trial(seed, 1_000)
