"""Why nothing matched, what would, and why a provider loses: counted, never guessed.

A relaxation is found by asking the market the same question without the fields to blame, and then
giving back as much of each field as the nearest such host can serve; so it works by construction,
and it is the least change among the hosts there are (relative changes add up; a choice that is not
a number counts as half).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from marketplace.matching import filters
from marketplace.matching.filters import BIT, Bits
from marketplace.matching.fleet import Bools, Fleet, Ints, Rows
from marketplace.matching.model import WHOLE, Host, NoMatch, Relaxation, Request

LOOSE: Final[Mapping[str, Mapping[str, Any]]] = {
    "devices": {"gpu_count": 1},
    "model": {"gpu_models": frozenset[str]()},
    "vram": {"vram_mib": 0, "vram_max_mib": None},
    "region": {"regions": frozenset[str]()},
    "labels": {"labels": frozenset[str]()},
    "isolation": {"isolation": frozenset[str]()},
    "trust": {"trust": 0},
    "network": {"upload_mbps": 0, "download_mbps": 0},
    "egress": {"egress": False},
    "cluster": {"cluster_free_ms": 0},
    "mesh": {"mesh": False},
    "store": {"store": False},
    "avoided": {"avoid": frozenset[str]()},
    "price": {"max_gpu_rate": None, "max_core_rate": None, "max_disk_rate": None},
    "cpu": {"cpu_milli": 0},
    "memory": {"memory_mib": 0},
    "disk": {"disk_mib": 0},
    "gpu": {},
    "share": {"gpu_count": 1, "gpu_milli": 1},
}
"""Filter to the fields that free a request from it."""

_CHOICES: Final = frozenset(
    {"gpu_models", "regions", "labels", "isolation", "avoid", "egress", "mesh", "store"}
)
_SOME: Final = frozenset({"cpu_milli", "memory_mib", "disk_mib", "cluster_free_ms"})
"""Of these a host that has none cannot serve less of it either."""
_NO_WAY: Final = BIT["maintenance"] | BIT["draining"] | BIT["minimum"]
"""What no other wish of the same job cures: patience does, or a larger budget."""

_DEAR: Final = np.iinfo(np.int64).max // 64

CHOICE: Final = 0.5
"""What giving up a choice (a model, a region, a label) weighs beside a relative change of a number.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """A provider's side: of the last ``asked`` requests, ``won``, ``lost`` to others by reason,
    ``unserved`` by anyone.
    """

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


class Market(Protocol):
    """What explanations read of the matchmaker."""

    @property
    def fleet(self) -> Fleet:
        """The supply."""
        ...

    @property
    def recent(self) -> Iterable[tuple[Request, str | None, int]]:
        """The last requests: (request, the host that served it, its rate)."""
        ...

    def failures(self, request: Request, now: int = 0) -> Bits:
        """Per row, the filters that a plain *request* fails; -1 where no host lives."""
        ...

    def closed(self, request: Request, now: int) -> list[int]:
        """Rows in maintenance at *now*, or before *request* could be over."""
        ...

    def owner_number(self, owner: str) -> int | None:
        """The number of an owner that shares a device; None for a newcomer."""
        ...


def refusal(market: Market, request: Request, now: int, ways: int = 1) -> NoMatch:
    """The counted reasons and the nearest *ways* out; of several alternatives, those of the
    first.
    """
    plain = request
    if request.any_of or request.gpu_count_max is not None:
        plain = replace(request, any_of=(), gpu_count_max=None)
    kept = market.failures(plain, now)
    rows = np.flatnonzero(kept >= 0)
    bits = kept[rows]
    fallen = filters.blame(bits)
    nearest = _relaxations(market, plain, rows, bits, now, ways)
    details: dict[str, str] = {}
    if "vram" in fallen and plain.vram_mib:
        details["vram"] = f"lack {round(plain.vram_mib / 1024, 1):g} GB"
    if "price" in fallen:
        details["price"] = _too_dear(market, plain, rows[bits & BIT["price"] != 0])
    if "minimum" in fallen:
        details["minimum"] = _too_small(market, plain, rows[bits & BIT["minimum"] != 0])
    if "labels" in fallen and (lacking := _lacking(market, plain, rows[bits & BIT["labels"] != 0])):
        details["labels"] = f"lack the label {lacking}"
    return NoMatch(request, len(rows), fallen, nearest, details)


def _lacking(market: Market, request: Request, rows: Rows) -> str:
    """The labels that these hosts lack, as the job names them; at most :data:`_LABELS` of them."""
    found = {label for row in rows for label in request.labels - market.fleet.at(int(row)).labels}
    names = sorted(label[:80] for label in found)
    more = f" and {len(names) - _LABELS} more" if len(names) > _LABELS else ""
    return ", ".join(names[:_LABELS]) + more


def _too_dear(market: Market, request: Request, rows: Rows) -> str:
    """By how much, at least, the dear hosts exceed the cap."""
    if request.max_gpu_rate and request.gpu_count:
        fits = filters.fitting_devices(market.fleet, rows, request, price=False)
        least = int(np.where(fits, market.fleet.gpu_rate[rows], _DEAR).min())
        return f"too dear by ≥ {_per_cent(least, request.max_gpu_rate)} %"
    return "too dear"


def _too_small(market: Market, request: Request, rows: Rows) -> str:
    """What they ask for at least, what this job costs at most, and the ways out."""
    fleet = market.fleet
    least = int(fleet.minimum[rows].min())
    most = int(filters.most_cost(fleet, rows, request).max())
    return (
        f"ask for at least {_ada(least)} a job, this one costs at most {_ada(most)}"
        f" there in {request.duration_ms / 1000:g} s within its budget (lengthen it, raise its"
        " budget or keep a channel)"
    )


def _ada(lovelace: int) -> str:
    """``0.25 ADA``."""
    return f"{lovelace / 1e6:.6f}".rstrip("0").rstrip(".") + " ADA"


def _per_cent(value: int, cap: int) -> int:
    """How far *value* is above *cap*, rounded up."""
    return -(-100 * (value - cap) // cap)


def _relaxations(
    market: Market, request: Request, rows: Rows, bits: filters.Bits, now: int, ways: int
) -> tuple[Relaxation, ...]:
    """The nearest ways out that change as few things as possible."""
    bits = np.where(bits & BIT["owner"], bits | BIT["gpu"], bits) & ~(
        BIT["too_small"] | BIT["owner"]
    )
    masks = sorted({int(m) for m in np.unique(bits)}, key=lambda m: (m.bit_count(), m))
    found: list[tuple[float, Request, int]] = []
    size = 0
    for mask in masks:
        if not mask or mask & _NO_WAY:
            continue
        if found and mask.bit_count() > size:
            break
        names = [name for name in LOOSE if mask & BIT.get(name, 0)]
        way = _relax(market, request, rows[bits == mask], names)
        if way is None and request.gpu_count > 1:
            # Not even one whole device is idle there: a share of one is what is left to offer.
            way = _relax(market, request, rows[bits == mask], [*names, "share"])
        if way is not None:
            size = mask.bit_count()
            found.append(way)
    found.sort(key=lambda way: way[0])
    nearest: list[Relaxation] = []
    for _, relaxed, row in found[:ways]:
        words = " and ".join(_words(request, relaxed, market, row))
        nearest.append(Relaxation(words, relaxed, *_serving(market, relaxed, now)))
    return tuple(nearest)


def _relax(
    market: Market, request: Request, rows: Rows, names: list[str]
) -> tuple[float, Request, int] | None:
    """The least change of what *names* say that one of *rows* could serve: distance, request, and
    that row.
    """
    loose: dict[str, Any] = {}
    for name in names:
        loose |= LOOSE[name]
    if "gpu" in names and "share" not in names:
        loose |= {"gpu_count": 1} if request.gpu_count > 1 else {"gpu_milli": 1}
    fleet = market.fleet
    probe = replace(request, **loose)
    fits = filters.open_devices(fleet, rows, probe, market.owner_number(request.owner))
    able = filters.enough(fits, probe) if probe.gpu_count else np.ones(len(rows), np.bool_)
    rows, fits = rows[able], fits[able]
    if not len(rows):
        return None
    distance = np.zeros(len(rows))
    have: dict[str, Ints] = {}
    for field in loose:
        asked = getattr(request, field)
        if field in _CHOICES:
            distance += CHOICE if asked else 0.0
        elif field == "gpu_count" and "gpu_milli" in loose:
            distance += (asked - 1) / asked
        elif asked and field != "vram_max_mib":
            values = have[field] = _has(fleet, request, rows, fits, field)
            short = values - asked if field.startswith("max_") else asked - values
            distance += np.maximum(short, 0) / asked
            if field in _SOME:
                distance[values <= 0] = np.inf
    least = distance.min()
    if least == np.inf:
        return None
    (nearest,) = (distance == least).nonzero()
    best = int(nearest[_rates(fleet, probe, rows[nearest], fits[nearest]).argmin()])
    changed = {field: value for field, value in loose.items() if field not in have}
    for field, values in have.items():
        asked, given = getattr(request, field), int(values[best])
        changed[field] = max(given, asked) if field.startswith("max_") else min(given, asked)
    return float(distance[best]), replace(request, **changed), int(rows[best])


def _serving(market: Market, request: Request, now: int) -> tuple[int, int]:
    """How many hosts a plain *request* would fit on now, and the lowest rate among them."""
    fleet = market.fleet
    owner = market.owner_number(request.owner)
    rows = np.flatnonzero(
        (fleet.cpu[: fleet.used] >= request.cpu_milli)
        & (fleet.mem[: fleet.used] >= request.memory_mib)
    )
    if request.gpu_count:
        rows = rows[filters.enough(filters.open_devices(fleet, rows, request, owner), request)]
    rows = rows[filters.failed_terms(fleet, rows, request) == 0]
    closed = market.closed(request, now)
    rows = rows[filters.failed_now(fleet, rows, request, owner, closed) == 0]
    rows = rows[~filters.below_minimum(fleet, rows, request)]
    fits = filters.open_devices(fleet, rows, request, owner)
    return len(rows), int(_rates(fleet, request, rows, fits).min())


def _rates(fleet: Fleet, request: Request, rows: Rows, fits: Bools) -> Ints:
    """Micro-lovelace per second on each row, on its cheapest fitting devices."""
    if not fleet.priced:
        return np.zeros(len(rows), np.int64)
    if not request.gpu_count:
        return fleet.plain_rates(rows, request)
    rates = np.sort(np.where(fits, fleet.gpu_rate[rows], _DEAR), axis=1)
    return rates[:, : request.gpu_count].sum(1) * request.gpu_milli // WHOLE


def _has(fleet: Fleet, request: Request, rows: Rows, fits: Bools, field: str) -> Ints:
    """How much of a numeric *field* each row could give on its *fits* devices."""
    wanted = max(request.gpu_count, 1)
    match field:
        case "gpu_count":
            return np.minimum(fits.sum(1), request.gpu_count)
        case "gpu_milli":
            return np.where(fits, fleet.free[rows], 0).max(1)
        case "vram_mib":
            return np.sort(np.where(fits, fleet.vram[rows], 0), axis=1)[:, -wanted].astype(np.int64)
        case "max_gpu_rate":
            return np.sort(np.where(fits, fleet.gpu_rate[rows], _DEAR), axis=1)[:, wanted - 1]
        case _:
            column: dict[str, NDArray[Any]] = {
                "cpu_milli": fleet.cpu,
                "memory_mib": fleet.mem,
                "disk_mib": fleet.disk,
                "max_core_rate": fleet.core_rate,
                "max_disk_rate": fleet.disk_rate,
                "trust": fleet.trust,
                "cluster_free_ms": fleet.cluster_free,
                "upload_mbps": fleet.upload,
                "download_mbps": fleet.download,
            }
            return column[field][rows].astype(np.int64)


_CHANGED: Final[dict[str, Callable[[Request, Request, Host], str]]] = {
    "gpu_models": lambda _, __, host: "model " + (host.gpus[0].model if host.gpus else "any"),
    "vram_mib": lambda _, new, __: f"vram {round(new.vram_mib / 1024, 1):g} GB",
    "vram_max_mib": lambda _, __, ___: "more vram allowed",
    "regions": lambda _, __, host: f"region {host.region or 'any'}",
    "isolation": lambda _, __, host: "isolation " + (" or ".join(sorted(host.isolation)) or "none"),
    "labels": lambda old, _, host: "no " + ", ".join(sorted(old.labels - host.labels)),
    "avoid": lambda _, __, host: f"{host.id} not avoided",
    "egress": lambda _, __, ___: "no egress",
    "cluster_free_ms": lambda _, new, __: (
        f"assemble and hold of {new.cluster_free_ms / 1000:g} s together"
    ),
    "mesh": lambda _, __, ___: "network none",
    "store": lambda _, __, ___: "no store",
    "gpu_count": lambda _, new, __: f"{new.gpu_count} device{'s' if new.gpu_count > 1 else ''}",
    "gpu_milli": lambda _, new, __: f"share {new.gpu_milli}",
    "cpu_milli": lambda _, new, __: f"cpu {new.cpu_milli / 1000:g}",
    "memory_mib": lambda _, new, __: f"memory {new.memory_mib / 1024:.4g} GB",
    "disk_mib": lambda _, new, __: f"disk {new.disk_mib / 1024:.4g} GB",
    "trust": lambda _, new, __: f"trust {new.trust}",
    "upload_mbps": lambda _, new, __: f"upload {new.upload_mbps}",
    "download_mbps": lambda _, new, __: f"download {new.download_mbps}",
}
"""What a consumer would say of a field that was relaxed; in the order of saying it."""

_LABELS: Final = 3

_CAPS: Final = {
    "max_gpu_rate": "GPU-second", "max_core_rate": "core-second", "max_disk_rate": "GB-second",
}  # fmt: skip


def _words(request: Request, relaxed: Request, market: Market, row: int) -> list[str]:
    """Each changed field as a consumer would say it."""
    host = market.fleet.at(row)
    told = [
        say(request, relaxed, host)
        for field, say in _CHANGED.items()
        if getattr(relaxed, field) != getattr(request, field)
    ]
    for field, unit in _CAPS.items():
        old, new = getattr(request, field), getattr(relaxed, field)
        if old != new and old:
            more = -(-100 * (new - old) // old)
            told.append(f"a price cap of {new / 1e6:g} lovelace per {unit} (+{more} %)")
    return told or ["nothing changed"]


def losses(market: Market, host_id: str) -> Losses:
    """Why *host_id* lost those recent requests that others won, judged on its terms and room as
    they are now.

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


def _why(market: Market, at: Rows, request: Request) -> str | None:
    """The first filter that *request* fails on one host, or None."""
    fleet = market.fleet
    bits = filters.failed_terms(fleet, at, request)
    if not bits[0]:
        bits = filters.failed_now(fleet, at, request, market.owner_number(request.owner), [])
        bits[filters.below_minimum(fleet, at, request)] |= BIT["minimum"]
    name = next(iter(filters.blame(bits)), None)
    if name == "network":
        return "upload" if fleet.upload[at[0]] < request.upload_mbps else "download"
    return name


def _own_rate(market: Market, row: int, request: Request) -> int:
    """What this host would have charged: its cheapest fitting devices."""
    fleet = market.fleet
    at = np.array([row])
    return int(_rates(fleet, request, at, filters.fitting_devices(fleet, at, request))[0])
