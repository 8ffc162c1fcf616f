"""Where an image is, and how long a job of it would take to start on each host.

A host tells which images and layers it has, by the first bytes of their digests, and what a start
and a pull take there, as it measured them. What an image is made of is learned once for each. Kept
per image: one delay for each row of the fleet, brought up to date when a host tells something new.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from marketplace.matching.fleet import ChangeLog, Fleet, Ints
from marketplace.matching.model import WHOLE, Request

MOST_IMAGES: Final = 4096
"""Images of which the layers are known, the last used ones."""
MOST_DELAYS: Final = 256
"""Images of which the delays on every host are kept."""
SLOW: Final = 12_500_000
"""Bytes a second where nobody has measured a pull yet: 100 Mbit/s."""
START_MS: Final = 2_000
"""Milliseconds of a start where nobody has measured one yet."""
MOST_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Stock:
    """What a host has. *held*: the first bytes of digests of images and layers; *start_ms*: from
    nothing to a running workload whose image is there; *pull_ms* and *bytes_s*: a pull takes so
    long whatever its size, and then so many packed bytes a second. 0: not measured.
    """

    held: frozenset[bytes] = frozenset()
    start_ms: int = 0
    pull_ms: int = 0
    bytes_s: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """*print* is the first bytes of its digest; *layers* the same of each, with its packed size in
    bytes; none: nobody has told.
    """

    print: bytes
    layers: tuple[tuple[bytes, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What a start on one host is expected to take, in ms; *lacking*: bytes to be pulled first,
    None where nobody knows what the image is made of; *bytes_s*: at which rate, 0 unmeasured.
    """

    ms: int
    here: bool
    lacking: int | None
    bytes_s: int


@dataclass(slots=True)
class _Delays:
    """Of one image, by row, as of two marks: what hosts told, and which hosts there were."""

    ms: Ints
    told: int = -1
    terms: int = -1


class Locality:
    """What the hosts of one *fleet* have of images."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stocks: dict[str, Stock] = {}
        self._images: OrderedDict[str, Image] = OrderedDict()
        self._delays: OrderedDict[str, _Delays] = OrderedDict()
        self._told = ChangeLog(1 << 14)
        self._usual: tuple[int, int] | None = None

    def tell(self, host: str, stock: Stock | None) -> None:
        """What *host* has now; None: nobody says."""
        if self._stocks.get(host) == stock:
            return
        if stock is None:
            self._stocks.pop(host, None)
        else:
            self._stocks[host] = stock
        self._usual = None
        row = self._fleet.row_of.get(host)
        if row is not None:  # else it is looked at when its offer is listed
            self._told.add(row)

    def learn(self, name: str, image: Image) -> None:
        """What the image *name* is made of."""
        if self._images.get(name) != image:
            self._delays.pop(name, None)
        self._images[name] = image
        self._images.move_to_end(name)
        while len(self._images) > MOST_IMAGES:
            self._delays.pop(self._images.popitem(last=False)[0], None)

    def knows(self, name: str) -> bool:
        """Whether it was learned what that image is made of."""
        image = self._images.get(name)
        return image is not None and bool(image.layers)

    def start(self, name: str, host: str) -> Start | None:
        """What starting *name* on *host* is expected to take; None where the host has told nothing
        or the image is not known.
        """
        stock, image = self._stocks.get(host), self._images.get(name)
        if stock is None or image is None:
            return None
        here, lacking = _lacking(image, stock)
        ms = self._ms(stock, here, lacking)
        return Start(ms, here, lacking, stock.bytes_s)

    def delays(self, name: str) -> Ints | None:
        """Milliseconds to a start of *name* for every row; None while nothing is known of it, or
        no host has told what it has.
        """
        image = self._images.get(name)
        if image is None or not self._stocks:
            return None
        fleet, kept = self._fleet, self._delays.get(name)
        if kept is None or len(kept.ms) != fleet.rows:
            kept = self._delays[name] = _Delays(np.zeros(fleet.rows, np.int64))
        self._delays.move_to_end(name)
        told, terms = self._told.since(kept.told), fleet.terms_log.since(kept.terms)
        if told is None or terms is None or kept.told < 0:
            rows = list(range(fleet.used))
        else:
            rows = [*told.tolist(), *terms.tolist()]
        for row in rows:
            kept.ms[row] = self._at(image, row)
        kept.told, kept.terms = self._told.end, fleet.terms_log.end
        while len(self._delays) > MOST_DELAYS:
            self._delays.popitem(last=False)
        return kept.ms

    def _at(self, image: Image, row: int) -> int:
        host = self._fleet.hosts[row]
        stock = self._stocks.get(host.id) if host is not None else None
        if stock is None:
            return self._elsewhere(image)
        here, lacking = _lacking(image, stock)
        return self._ms(stock, here, lacking)

    def _ms(self, stock: Stock, here: bool, lacking: int | None) -> int:
        start, rate = self._usually()
        ms = stock.start_ms or start
        if not here:
            unknown = self._size() if lacking is None else lacking
            ms += stock.pull_ms + unknown * 1000 // (stock.bytes_s or rate)
        return min(ms, MOST_MS)

    def _elsewhere(self, image: Image) -> int:
        """On a host that tells nothing: as if it had none of it, and were like most others."""
        start, rate = self._usually()
        size = sum(size for _, size in image.layers) if image.layers else self._size()
        return min(start + size * 1000 // rate, MOST_MS)

    def _usually(self) -> tuple[int, int]:
        """(ms of a start, bytes a second of a pull) at the host in the middle."""
        if self._usual is None:
            starts = [one.start_ms for one in self._stocks.values() if one.start_ms]
            rates = [one.bytes_s for one in self._stocks.values() if one.bytes_s]
            self._usual = (
                int(median(starts)) if starts else START_MS,
                max(1, int(median(rates))) if rates else SLOW,
            )
        return self._usual

    def _size(self) -> int:
        """Packed bytes of an image of which nobody knows any: the middle of those known."""
        sizes = [sum(size for _, size in one.layers) for one in self._images.values() if one.layers]
        return int(median(sizes)) if sizes else 0


def _lacking(image: Image, stock: Stock) -> tuple[bool, int | None]:
    """(whether the image is there, the bytes of its layers that are not)."""
    if image.print in stock.held:
        return True, 0
    if not image.layers:
        return False, None
    return False, sum(size for print_, size in image.layers if print_ not in stock.held)


def wait_costs(
    delays: Ints, fleet: Fleet, request: Request, slots: NDArray[np.int16], usual: float
) -> NDArray[np.float64]:
    """By row, how many doublings of the price the wait is worth to *request*: what it costs at
    its ``wait_rate``, or *usual* times what running costs, beside what its whole run would cost
    there. *slots*: the first device that it would be given on each row.
    """
    longest = max(request.duration_ms, 1)
    if request.wait_rate is None:
        share = delays.astype(np.float64) * (usual / longest)
    else:
        if request.gpu_count:
            first = fleet.gpu_rate[np.arange(fleet.rows), slots]
            rates = first * (request.gpu_demand / WHOLE)
        else:
            rates = fleet.plain_rates(np.arange(fleet.rows), request).astype(np.float64)
        share = delays * float(request.wait_rate) / (np.maximum(rates, 1.0) * longest)
    worth: NDArray[np.float64] = np.log2(1.0 + share)
    return worth


def soonest(cost: NDArray[np.float64], row: int, delays: Ints) -> int:
    """Of the rows that cost as little as *row* does, the one with the shortest wait."""
    (alike,) = np.nonzero(cost == cost[row])
    return int(alike[delays[alike].argmin()])
