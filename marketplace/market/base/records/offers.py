"""What is offered, and how much of it was there and in use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from marketplace.domain import canonical
from marketplace.domain.supply.offer import Offer, OfferState
from marketplace.market.base.records.record import Record

KEPT: Final = 2_048
"""Offers that are kept read: a page of supply is looked at again and again, and what it says
changes seldom.
"""


@lru_cache(maxsize=KEPT)
def _read(body: bytes) -> Offer:
    return Offer.from_wire(canonical.decode(body))


@dataclass(frozen=True)
class OfferRecord(Record):
    """An offer as its provider last posted it, where its adapter is connected, and since when
    not.
    """

    id: str
    provider: str
    state: OfferState
    body: bytes  # canonical CBOR of Offer.to_wire()
    created_ms: int
    seen_ms: int
    process: str = ""  # the market process that holds the connection
    away_ms: int = 0  # since when it is not connected; 0 while it is
    suspended: str = ""
    version: int = 0

    @property
    def offer(self) -> Offer:
        """The offer itself; one object for equal bytes, which nobody changes."""
        return _read(self.body)


@dataclass(frozen=True)
class StockRecord(Record):
    """What a provider's host has of images as its adapter last told it (``wire.StockTold``), and
    how its last starts went: each as thousandths of what was expected, the newest last.
    """

    KEY: ClassVar[tuple[str, ...]] = ("provider",)
    provider: str
    held: bytes
    start_ms: int
    pull_ms: int
    bytes_s: int
    went: list[int]
    at_ms: int
    version: int = 0


@dataclass(frozen=True)
class ImageRecord(Record):
    """What an image is made of, proven by its digest: ``stock.print_of`` and packed size of each
    part.
    """

    KEY: ClassVar[tuple[str, ...]] = ("digest",)
    digest: str
    parts: list[tuple[str, int]]  # the print in hex, bytes
    at_ms: int


@dataclass(frozen=True)
class InUseHour(Record):
    """Sums over the *looks* of one hour at what is listed and held (``upkeep.series``)."""

    KEY: ClassVar[tuple[str, ...]] = ("at_ms",)
    at_ms: int  # the hour's beginning
    looks: int = 0
    offers: int = 0
    gpu_milli: int = 0
    gpu_milli_held: int = 0
    core_milli: int = 0
    core_milli_held: int = 0
    running: int = 0  # jobs
    waiting: int = 0
    version: int = 0


@dataclass(frozen=True)
class PresenceDay(Record):
    """Of the *looks* of one day at a provider, how often it was *there*."""

    KEY: ClassVar[tuple[str, ...]] = ("provider", "day")
    provider: str
    day: int  # since 1970, UTC
    looks: int = 0
    there: int = 0
    version: int = 0
