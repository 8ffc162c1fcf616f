"""Filters in the order in which a host is judged, each with the words that explain it.

Terms come first (they do not change with load, so their mask is kept per shape of request), then what is free.
The order is the order of blame: a host counts against the first filter that it fails, so the ones a consumer can
do least about (model, memory of the device) stand before those that a relaxation or a little patience would cure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import Bools, Fleet
from marketplace.matching.model import WHOLE, Request

Rows = NDArray[np.intp]

WORDS: Final = {
    "devices": "have too few devices",
    "model": "lack the model",
    "vram": "lack the device memory",
    "region": "in the wrong region",
    "labels": "lack a label",
    "isolation": "isolate too weakly",
    "trust": "below the trust tier",
    "network": "too slow a network",
    "avoided": "asked to be avoided",
    "price": "too dear",
    "maintenance": "in or before maintenance",
    "draining": "draining",
    "too_small": "too small even when idle",
    "cpu": "short of cores now",
    "memory": "short of memory now",
    "disk": "short of disk now",
    "owner": "have room only beside another consumer",
    "gpu": "have no device free enough now",
}
"""Filter name to what it says of hosts; the order is the order of judgement."""


def fitting_devices(fleet: Fleet, rows: Rows | slice, request: Request, *, price: bool) -> Bools:
    """Per device: present, of a wanted model, with enough memory and, if *price*, not too dear."""
    fits = fleet.present[rows].copy()
    if request.gpu_models:
        fits &= np.isin(fleet.model[rows], fleet.models.known(request.gpu_models))
    if request.vram_mib:
        fits &= fleet.vram[rows] >= request.vram_mib
    if request.vram_max_mib is not None:
        fits &= fleet.vram[rows] <= request.vram_max_mib
    if price and request.max_gpu_rate is not None:
        fits &= fleet.gpu_rate[rows] <= request.max_gpu_rate
    return fits


def _enough(devices: Bools, request: Request) -> Bools:
    if not request.gpu_count:
        return np.ones(len(devices), np.bool_)
    return np.count_nonzero(devices, axis=1) >= request.gpu_count


def _labelled(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.labels:
        return np.ones(len(rows), np.bool_)
    hosts = fleet.hosts
    return np.fromiter(
        (host is not None and request.labels <= host.labels for host in (hosts[r] for r in rows)),
        np.bool_,
        len(rows),
    )


def _in_region(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    if not request.regions:
        return np.ones(len(rows), np.bool_)
    return np.isin(fleet.region[rows], fleet.regions.known(request.regions))


def _network(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    return (fleet.upload[rows] >= request.upload_mbps) & (
        fleet.download[rows] >= request.download_mbps
    )


def _not_avoided(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    good = np.ones(len(rows), np.bool_)
    if request.avoid:
        banned = [fleet.row_of[name] for name in request.avoid if name in fleet.row_of]
        good[np.isin(rows, banned)] = False
    return good


def _affordable(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    good = _enough(fitting_devices(fleet, rows, request, price=True), request)
    if request.max_core_rate is not None:
        good &= fleet.core_rate[rows] <= request.max_core_rate
    return good


def _big_enough(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    hosts = fleet.hosts
    return np.fromiter(
        (
            host is not None
            and host.cpu_milli >= request.cpu_milli
            and host.memory_mib >= request.memory_mib
            and host.disk_mib >= request.disk_mib
            for host in (hosts[r] for r in rows)
        ),
        np.bool_,
        len(rows),
    )


def _open_window(fleet: Fleet, rows: Rows, request: Request, now: int) -> Bools:
    end = now + max(request.duration_ms, 1)

    def open_at(row: int) -> bool:
        host = fleet.hosts[row]
        return host is not None and not any(a < end and now < b for a, b in host.maintenance)

    return np.fromiter((open_at(int(row)) for row in rows), np.bool_, len(rows))


TERMS: Final[tuple[tuple[str, Callable[[Fleet, Rows, Request], Bools]], ...]] = (
    ("devices", lambda f, rows, r: f.count[rows] >= r.gpu_count),
    ("model", lambda f, rows, r: _enough(_of_model(f, rows, r), r)),
    ("vram", lambda f, rows, r: _enough(fitting_devices(f, rows, r, price=False), r)),
    ("region", _in_region),
    ("labels", _labelled),
    ("isolation", lambda f, rows, r: f.isolation[rows] >= r.isolation),
    ("trust", lambda f, rows, r: f.trust[rows] >= r.trust),
    ("network", _network),
    ("avoided", _not_avoided),
    ("price", _affordable),
)
"""What does not change while leases come and go."""


def _of_model(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    fits = fleet.present[rows].copy()
    if request.gpu_models:
        fits &= np.isin(fleet.model[rows], fleet.models.known(request.gpu_models))
    return fits


def eligible(fleet: Fleet, rows: Rows, request: Request) -> Bools:
    """Rows whose terms satisfy *request*, whatever is free there."""
    good = fleet.alive[rows].copy()
    for _, accepts in TERMS:
        good &= accepts(fleet, rows, request)
    return good


def free_slots(fleet: Fleet, rows: Rows | slice, request: Request, owner: int | None) -> Bools:
    """Per device: free enough for one device of *request* by *owner* (None: somebody not yet on any device)."""
    free = fleet.free[rows]
    if request.gpu_milli == WHOLE:
        return free == WHOLE
    fits = free >= request.gpu_milli
    theirs = fleet.sliced[rows] | (fleet.owners_jobs[rows] == 0)
    if owner is not None:
        theirs |= fleet.owner[rows] == owner
    return fits & theirs


def blame(fleet: Fleet, request: Request, owner: int | None, now: int) -> dict[str, int]:
    """How many living hosts fall at each filter first; filters that cost nobody are left out."""
    left = np.flatnonzero(fleet.alive[: fleet.used])
    fallen: dict[str, int] = {}

    def judge(name: str, good: Bools) -> None:
        nonlocal left
        lost = int(np.count_nonzero(~good))
        if lost:
            fallen[name] = lost
        left = left[good]

    for name, accepts in TERMS:
        judge(name, accepts(fleet, left, request))
    judge("maintenance", _open_window(fleet, left, request, now))
    judge("draining", ~fleet.draining[left])
    judge("too_small", _big_enough(fleet, left, request))
    judge("cpu", fleet.cpu[left] >= request.cpu_milli)
    judge("memory", fleet.mem[left] >= request.memory_mib)
    judge("disk", fleet.disk[left] >= request.disk_mib)
    if request.gpu_count:
        wanted = fitting_devices(fleet, left, request, price=True)
        roomy = wanted & (fleet.free[left] >= request.gpu_milli)
        mine = wanted & free_slots(fleet, left, request, owner)
        beside = _enough(roomy, request) & ~_enough(mine, request)
        keep = ~beside
        mine = mine[keep]
        judge("owner", keep)
        judge("gpu", _enough(mine, request))
    return fallen
