"""Filters in the order in which a host is judged, each with the words that explain it.

Terms come first: they do not change with load, so each shape of request keeps, per host, a bit for
every term that the host fails. Then comes what is free now. The order is the order of blame: a host
counts against the first filter that it fails, so what a consumer can do least about (the device
itself) stands before what patience would cure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Bools, Fleet, Ints, Rows
from marketplace.matching.model import WHOLE, WORDS, Request

Bits: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]

BIT: Final = {name: 1 << at for at, name in enumerate(WORDS)}
"""Filter name to its bit in a host's record of failures."""


DEVICE_BITS: Final = BIT["devices"] | BIT["model"] | BIT["vram"] | BIT["price"]
FREE_BITS: Final = BIT["gpu"] | BIT["owner"]


def fitting_devices(fleet: Fleet, rows: Rows, request: Request, *, price: bool = True) -> Bools:
    """Per device: present, of a wanted model, with enough memory and, if *price*, not too dear."""
    fits = fleet.present[rows]
    if request.gpu_models:
        known = fleet.models.known(request.gpu_models)
        table = np.zeros(len(fleet.models), np.bool_)
        table[known] = True
        fits &= table[fleet.model[rows]]
    if request.vram_mib:
        fits &= fleet.vram[rows] >= request.vram_mib
    if request.vram_max_mib is not None:
        fits &= fleet.vram[rows] <= request.vram_max_mib
    if price and request.max_gpu_rate is not None:
        fits &= fleet.gpu_rate[rows] <= request.max_gpu_rate
    return fits


def free_devices(fleet: Fleet, rows: Rows, request: Request, owner: int | None) -> Bools:
    """Per device: free enough for one device of *request* by *owner* (None: somebody not yet on any
    device).
    """
    free = fleet.free.take(rows, 0)
    if request.gpu_milli == WHOLE:
        return free == WHOLE
    fits = free >= request.gpu_milli
    if owner == 0 and not fleet.named:
        return fits
    theirs = fleet.owners_jobs[rows] == 0
    if owner is not None:
        theirs |= fleet.owner[rows] == owner
    return fits & theirs


def any_device(request: Request) -> bool:
    """True when the request's terms leave out no device."""
    anything = request.vram_max_mib is None and request.max_gpu_rate is None
    return anything and not request.gpu_models and not request.vram_mib


def open_devices(fleet: Fleet, rows: Rows, request: Request, owner: int | None) -> Bools:
    """Per device: the request's terms hold and it is free enough now."""
    if any_device(request):
        # Absent devices have nothing free, so they need no check of their own.
        return free_devices(fleet, rows, request, owner)
    return fitting_devices(fleet, rows, request) & free_devices(fleet, rows, request, owner)


def _everything(rows: Rows) -> Bools:
    return np.ones(len(rows), np.bool_)


def enough(devices: Bools, request: Request) -> Bools:
    """Per row: as many devices as the request asks for; *devices* has a column per device."""
    if request.gpu_count == 1:
        return np.logical_or.reduce(devices, axis=1)
    counts: Ints = devices.sum(axis=1, dtype=np.int64)
    return counts >= request.gpu_count


def _of_model(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.gpu_models:
        return fleet.count[rows] >= request.gpu_count
    known = np.array(fleet.models.known(request.gpu_models), np.int32)
    return enough(np.isin(fleet.model[rows], known) & fleet.present[rows], request)


def _with_vram(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.vram_mib and request.vram_max_mib is None:
        return _everything(rows)
    return enough(fitting_devices(fleet, rows, request, price=False), request)


def _in_region(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.regions:
        return _everything(rows)
    return np.isin(fleet.region[rows], np.array(fleet.regions.known(request.regions), np.int32))


def _labelled(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.labels:
        return _everything(rows)
    hosts = (fleet.hosts[int(row)] for row in rows)
    return np.fromiter((h is not None and request.labels <= h.labels for h in hosts), np.bool_)


def _isolated(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.isolation:
        return _everything(rows)
    return fleet.isolation[rows] & fleet.isolations(request.isolation) != 0


def _network(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    up = fleet.upload[rows] >= request.upload_mbps
    return up & (fleet.download[rows] >= request.download_mbps)


def _not_avoided(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.avoid:
        return _everything(rows)
    banned = [fleet.row_of[name] for name in request.avoid if name in fleet.row_of]
    return ~np.isin(rows, np.array(banned, np.int64))


def _affordable(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    good = _everything(rows)
    if request.gpu_count and request.max_gpu_rate is not None:
        good = enough(fitting_devices(fleet, rows, request), request)
    if request.max_core_rate is not None:
        good &= fleet.core_rate[rows] <= request.max_core_rate
    if request.max_disk_rate is not None:
        good &= fleet.disk_rate[rows] <= request.max_disk_rate
    return good


Term: TypeAlias = Callable[[Fleet, Rows, Request], Bools]

DEVICE_TERMS: Final[tuple[tuple[str, Term], ...]] = (
    ("devices", lambda fleet, rows, request: fleet.count[rows] >= request.gpu_count),
    ("model", _of_model),
    ("vram", _with_vram),
    ("price", _affordable),
)
"""Each of these holds only if the one before does, so a host fails at most one of them."""

HOST_TERMS: Final[tuple[tuple[str, Term], ...]] = (
    ("region", _in_region),
    ("labels", _labelled),
    ("isolation", _isolated),
    ("trust", lambda fleet, rows, request: fleet.trust[rows] >= request.trust),
    ("network", _network),
    ("egress", lambda fleet, rows, request: fleet.egress[rows] | (not request.egress)),
    ("cluster", lambda fleet, rows, request: fleet.cluster_free[rows] >= request.cluster_free_ms),
    ("mesh", lambda fleet, rows, request: fleet.mesh[rows] | (not request.mesh)),
    ("store", lambda fleet, rows, request: fleet.store[rows] | (not request.store)),
    ("avoided", _not_avoided),
)
"""These stand on their own."""


def failed_terms(fleet: Fleet, rows: Rows, request: Request) -> Bits:
    """Bits of the terms that each row fails; 0 where its terms suit; -1 where no host lives."""
    bits = np.zeros(len(rows), np.int32)
    for name, accepts in DEVICE_TERMS:
        bits[(bits == 0) & ~accepts(fleet, rows, request)] = BIT[name]
    for name, accepts in HOST_TERMS:
        bits[~accepts(fleet, rows, request)] |= BIT[name]
    bits[~fleet.alive[rows]] = -1
    return bits


def failed_now(
    fleet: Fleet, rows: Rows, request: Request, owner: int | None, closed: list[int]
) -> Bits:
    """Bits of what each row lacks at this moment, on top of its terms. *closed*: rows in or before
    maintenance.
    """
    bits = np.zeros(len(rows), np.int32)
    bits[fleet.draining[rows]] = BIT["draining"]
    if closed:
        bits[np.isin(rows, np.array(closed, np.int64))] |= BIT["maintenance"]
    short = (
        ("cpu", fleet.cpu[rows], fleet.cpu_total[rows], request.cpu_milli),
        ("memory", fleet.mem[rows], fleet.mem_total[rows], request.memory_mib),
        ("disk", fleet.disk[rows], fleet.disk_total[rows], request.disk_mib),
    )
    for name, free, whole, wanted in short:
        if wanted:
            bits[free < wanted] |= BIT[name]
            bits[whole < wanted] |= BIT["too_small"]
    if request.gpu_count:
        mine = open_devices(fleet, rows, request, owner)
        lacking = ~enough(mine, request)
        bits[lacking] |= BIT["gpu"]
        if fleet.partial and lacking.any():
            idle = fitting_devices(fleet, rows, request) & (
                fleet.offered[rows] >= request.gpu_milli
            )
            bits[lacking & ~enough(idle, request)] |= BIT["too_small"]
        if request.gpu_milli < WHOLE and (owner != 0 or fleet.named) and lacking.any():
            rooms = fitting_devices(fleet, rows, request)
            rooms &= fleet.free[rows] >= request.gpu_milli
            bits[lacking & enough(rooms, request)] |= BIT["owner"]
    return bits


def most_cost(fleet: Fleet, rows: Rows, request: Request) -> Floats:
    """Lovelace: the most that a plain *request* could come to on each row, on its cheapest devices
    that fit; infinite where no device does, or where it says neither budget nor time.
    """
    if request.gpu_count:
        fits = fitting_devices(fleet, rows, request)
        rate = np.where(fits, fleet.gpu_rate[rows], np.inf).min(axis=1) * request.gpu_demand / WHOLE
    else:
        rate = fleet.plain_rates(rows, request).astype(np.float64)
    # Micro-lovelace a second times milliseconds; a run's last lovelace is rounded up.
    longest = np.floor(rate * request.duration_ms / 1e9) + 1 if request.duration_ms else np.inf
    budget = np.inf if request.budget is None else request.budget
    return np.minimum(budget, longest) + np.zeros(len(rows))


def below_minimum(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    """Rows whose host asks for more than a plain *request* could cost there, with what was spent
    there before. Not kept by shape: budgets and times differ from job to job.
    """
    below = fleet.minimum[rows] > 0
    if request.budget is None or not below.any():
        return np.zeros(len(rows), np.bool_)
    asked = fleet.minimum[rows].astype(np.float64)
    for host, spent in request.spent:
        asked[rows == fleet.row_of.get(host, -1)] -= spent
    return below & (most_cost(fleet, rows, request) < asked)


def blame(bits: Bits) -> dict[str, int]:
    """Hosts counted against the first filter that each failed, in the order of judgement."""
    living = bits[bits > 0]
    first = living & -living
    counts = {name: int(np.count_nonzero(first == bit)) for name, bit in BIT.items()}
    return {name: count for name, count in counts.items() if count}
