"""Why nothing matched, what would, and why a provider loses: counted, never guessed.

A relaxation is found by asking the market the same question without the fields to blame, and then giving back as
much of each field as the nearest such host can serve; so it works by construction, and it is the least change
among the hosts there are (relative changes add up; a choice that is not a number counts as half).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from marketplace.matching import filters
from marketplace.matching.model import WHOLE, NoMatch, Relaxation, Request

if TYPE_CHECKING:
    from marketplace.matching.engine import Matchmaker

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]

LOOSE: Final[Mapping[str, Mapping[str, Any]]] = {
    "devices": {"gpu_count": 1},
    "model": {"gpu_models": frozenset[str]()},
    "vram": {"vram_mib": 0, "vram_max_mib": None},
    "region": {"regions": frozenset[str]()},
    "labels": {"labels": frozenset[str]()},
    "isolation": {"isolation": 0},
    "trust": {"trust": 0},
    "network": {"upload_mbps": 0, "download_mbps": 0},
    "avoided": {"avoid": frozenset[str]()},
    "price": {"max_gpu_rate": None, "max_core_rate": None},
    "cpu": {"cpu_milli": 0},
    "memory": {"memory_mib": 0},
    "disk": {"disk_mib": 0},
    "gpu": {"gpu_milli": 1, "gpu_count": 1},
}
"""Filter to the fields that free a request from it."""

CHOICE: Final = 0.5
"""What giving up a choice (a model, a region, a label) weighs beside a relative change of a number."""


@dataclass(frozen=True, slots=True)
class Losses:
    """A provider's side: of the last ``asked`` requests, ``won``, ``lost`` to others by reason, ``unserved`` by anyone."""

    asked: int
    won: int
    lost: int
    reasons: Mapping[str, int]
    dearer_per_cent: int | None = None

    def __str__(self) -> str:
        """The sentence a provider reads."""
        told: list[str] = []
        for name, count in self.reasons.items():
            more = (
                f" by {self.dearer_per_cent} %" if name == "price" and self.dearer_per_cent else ""
            )
            told.append(f"{count} on {name.replace('_', ' ')}{more}")
        text = f"lost {self.lost} of {self.asked}"
        return f"{text}: {', '.join(told)}" if told else text


def refusal(market: Matchmaker, request: Request, now: int) -> NoMatch:
    """The counted reasons and the nearest relaxations; of several alternatives, those of the first."""
    plain = replace(request, any_of=(), gpu_count_max=None)
    owner = market.owner_number(request.owner)
    fallen = filters.blame(market.fleet, plain, owner, now)
    ways = _relaxations(market, plain, fallen, now)
    details = dict(filters.WORDS)
    if "vram" in fallen and request.vram_mib:
        details["vram"] = f"lack {request.vram_mib / 1024:g} GB"
    if "price" in fallen:
        dearer = next((w.change for w in ways if w.change.startswith("a price")), None)
        details["price"] = f"too dear ({dearer} would do)" if dearer else "too dear"
    return NoMatch(request, len(market.fleet.row_of), fallen, ways, details)


def _relaxations(
    market: Matchmaker, request: Request, fallen: Mapping[str, int], now: int
) -> tuple[Relaxation, ...]:
    names = [name for name in LOOSE if _blamed(name, fallen)]
    for size in range(1, len(names) + 1):
        if 2 < size < len(names):
            continue
        found = [
            way
            for group in combinations(names, size)
            if (way := _relax(market, request, group, now)) is not None
        ]
        if found:
            return tuple(way for _, way in sorted(found, key=lambda pair: pair[0])[:3])
    return ()


def _blamed(name: str, fallen: Mapping[str, int]) -> bool:
    if name in ("cpu", "memory", "disk"):
        return name in fallen or "too_small" in fallen
    return name in fallen or (name == "gpu" and "owner" in fallen)


def _relax(
    market: Matchmaker, request: Request, group: tuple[str, ...], now: int
) -> tuple[float, Relaxation] | None:
    """The least change of the fields of *group* that some host could serve, and its distance."""
    loose: dict[str, Any] = {}
    for name in group:
        loose |= LOOSE[name]
    if not request.gpu_count:
        loose.pop("gpu_count", None)
        loose.pop("gpu_milli", None)
    probe = replace(request, **loose)
    rows, rates = market.fitting(probe, now)
    if not len(rows):
        return None
    distance = np.zeros(len(rows))
    have: dict[str, Floats] = {}
    for name in group:
        for field in LOOSE[name]:
            if field in loose:
                _distance(market, request, probe, rows, field, distance, have)
    best = int(np.lexsort((rates, distance))[0])
    changed = {field: _given(request, field, float(values[best])) for field, values in have.items()}
    changed |= {
        field: value
        for field, value in loose.items()
        if field not in have and getattr(request, field) != value
    }
    relaxed = replace(request, **changed)
    able, able_rates = market.fitting(relaxed, now)
    if not len(able):
        return None
    words = " and ".join(_words(request, relaxed, market, int(rows[best])))
    return float(distance[best]), Relaxation(words, relaxed, len(able), int(able_rates.min()))


def _given(request: Request, field: str, have: float) -> int:
    """As much of a numeric field as the host has, in the field's own direction."""
    asked = getattr(request, field)
    return max(int(have), asked) if field.startswith("max_") else min(int(have), asked)


def _distance(
    market: Matchmaker,
    request: Request,
    probe: Request,
    rows: Rows,
    field: str,
    distance: Floats,
    have: dict[str, Floats],
) -> None:
    """Add to *distance* what each row asks of *field*; note what each row has of it."""
    asked = getattr(request, field)
    if field in ("gpu_models", "regions", "labels", "avoid"):
        distance += CHOICE if asked else 0.0
        return
    if not asked:
        return
    fleet = market.fleet
    fits = filters.fitting_devices(fleet, rows, probe, price=True)
    fits &= filters.free_slots(fleet, rows, probe, market.owner_number(request.owner))
    wanted = max(request.gpu_count if field not in ("gpu_count", "gpu_milli") else 1, 1)
    match field:
        case "gpu_count":
            idle = fits & (fleet.free[rows] >= request.gpu_milli)
            values = np.maximum(np.count_nonzero(idle, axis=1), 1)
        case "gpu_milli":
            values = np.where(fits, fleet.free[rows], 0).max(1)
        case "vram_mib":
            values = np.sort(np.where(fits, fleet.vram[rows], 0), axis=1)[:, -wanted]
        case "max_gpu_rate":
            dear = np.iinfo(np.int64).max
            ordered = np.sort(np.where(fits, fleet.gpu_rate[rows], dear), axis=1)
            values = ordered[:, min(wanted, ordered.shape[1]) - 1]
        case "max_core_rate":
            values = fleet.core_rate[rows]
        case "vram_max_mib":
            return
        case _:
            column = {
                "cpu_milli": fleet.cpu,
                "memory_mib": fleet.mem,
                "disk_mib": fleet.disk,
                "isolation": fleet.isolation,
                "trust": fleet.trust,
                "upload_mbps": fleet.upload,
                "download_mbps": fleet.download,
            }[field]
            values = column[rows]
    have[field] = values.astype(np.float64)
    short = have[field] - asked if field.startswith("max_") else asked - have[field]
    distance += np.maximum(short, 0) / asked


def _words(request: Request, relaxed: Request, market: Matchmaker, row: int) -> list[str]:
    """Each changed field as a consumer would say it."""
    told: list[str] = []
    host = market.fleet.at(row)
    if relaxed.gpu_models != request.gpu_models:
        told.append("model " + (host.gpus[0].model if host.gpus else "any"))
    if relaxed.vram_mib != request.vram_mib:
        told.append(f"vram {relaxed.vram_mib / 1024:g} GB")
    if relaxed.vram_max_mib != request.vram_max_mib:
        told.append("more vram allowed")
    if relaxed.regions != request.regions:
        told.append(f"region {host.region or 'any'}")
    if relaxed.labels != request.labels:
        told.append("no " + ", ".join(sorted(request.labels - host.labels)))
    if relaxed.avoid != request.avoid:
        told.append(f"{host.id} not avoided")
    if relaxed.gpu_count != request.gpu_count:
        told.append(f"{relaxed.gpu_count} device{'s' if relaxed.gpu_count > 1 else ''}")
    if relaxed.gpu_milli != request.gpu_milli:
        told.append(f"share {relaxed.gpu_milli}")
    if relaxed.cpu_milli != request.cpu_milli:
        told.append(f"cpu {relaxed.cpu_milli / 1000:g}")
    if relaxed.memory_mib != request.memory_mib:
        told.append(f"memory {relaxed.memory_mib / 1024:.4g} GB")
    if relaxed.disk_mib != request.disk_mib:
        told.append(f"disk {relaxed.disk_mib / 1024:.4g} GB")
    for field in ("isolation", "trust", "upload_mbps", "download_mbps"):
        if getattr(relaxed, field) != getattr(request, field):
            told.append(f"{field.replace('_mbps', '')} {getattr(relaxed, field)}")
    for field, unit in (("max_gpu_rate", "GPU-second"), ("max_core_rate", "core-second")):
        old, new = getattr(request, field), getattr(relaxed, field)
        if old != new and old:
            told.append(
                f"a price cap of {new / 1e6:g} lovelace per {unit} (+{-(-100 * (new - old) // old)} %)"
            )
    return told or ["nothing changed"]


def losses(market: Matchmaker, host_id: str) -> Losses:
    """Why *host_id* lost those recent requests that others won, judged on its terms and room as they are now.

    KeyError when the host is unknown. Requests that nobody could serve are not counted as lost.
    """
    row = market.fleet.row_of[host_id]
    at = np.array([row])
    won, lost = 0, 0
    reasons: dict[str, int] = {}
    dearer: list[int] = []
    served = [entry for entry in market.recent if entry[1] is not None]
    for request, winner, rate in served:
        if winner == host_id:
            won += 1
            continue
        lost += 1
        why = _why(market, at, request)
        if why is None:
            mine = _own_rate(market, row, request)
            why = "price" if mine > rate else "fit"
            if why == "price" and rate:
                dearer.append(100 * (mine - rate) // rate)
        reasons[why] = reasons.get(why, 0) + 1
    middle = sorted(dearer)[len(dearer) // 2] if dearer else None
    ordered = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    return Losses(len(served), won, lost, ordered, middle)


def _why(market: Matchmaker, at: Rows, request: Request) -> str | None:
    """The first filter that *request* fails on one host, or None."""
    fleet = market.fleet
    for name, accepts in filters.TERMS:
        if not accepts(fleet, at, request)[0]:
            if name == "network":
                return "upload" if fleet.upload[at[0]] < request.upload_mbps else "download"
            return name
    if fleet.draining[at[0]]:
        return "draining"
    room = (
        ("cpu", fleet.cpu[at[0]] >= request.cpu_milli),
        ("memory", fleet.mem[at[0]] >= request.memory_mib),
        ("disk", fleet.disk[at[0]] >= request.disk_mib),
    )
    for name, enough in room:
        if not enough:
            return name
    if request.gpu_count:
        fits = filters.fitting_devices(fleet, at, request, price=True)
        fits &= filters.free_slots(fleet, at, request, market.owner_number(request.owner))
        if np.count_nonzero(fits) < request.gpu_count:
            return "gpu"
    return None


def _own_rate(market: Matchmaker, row: int, request: Request) -> int:
    """What this host would have charged: its cheapest fitting devices."""
    fleet = market.fleet
    fits = filters.fitting_devices(fleet, np.array([row]), request, price=True)[0]
    cheap = np.sort(fleet.gpu_rate[row][fits])[: request.gpu_count]
    if request.gpu_count:
        return int(cheap.sum()) * request.gpu_milli // WHOLE
    return int(fleet.core_rate[row]) * request.cpu_milli // 1000
