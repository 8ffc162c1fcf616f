"""Which provider has which image, and what starts take there: records in the matchmaker's words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from marketplace.domain.supply.offer import offer_id
from marketplace.domain.supply.stock import print_of, unpack
from marketplace.market.base.records import StockRecord
from marketplace.matching import Image, Start, Stock
from marketplace.matching.locality import Locality

MOST_STRETCH: Final = 1_000_000
"""Thousandths: a thousand times as long."""
FEW: Final = 3


class ImagePlaces:
    """Over the hosts of one directory."""

    def __init__(self, locality: Locality) -> None:
        self._locality = locality

    def tell(self, record: StockRecord) -> None:
        """What a provider's host has now, and how long its starts really take."""
        by = stretch(record.went)
        told = Stock(
            unpack(record.held), record.start_ms * by // 1000, record.pull_ms * by // 1000,
            record.bytes_s * 1000 // by,
        )  # fmt: skip
        self._locality.tell(offer_id(record.provider), told)

    def learn(self, digest: str, parts: Sequence[tuple[bytes, int]]) -> None:
        """What the image *digest* is made of (none: nobody has told): prints, and packed bytes."""
        self._locality.learn(digest, Image(print_of(digest), tuple(parts)))

    def known(self, digest: str) -> bool:
        """Whether it was told what that image is made of."""
        return self._locality.knows(digest)

    def start(self, digest: str, offer: str) -> Start | None:
        """What starting that image at *offer* is expected to take; None where nobody can say."""
        return self._locality.start(digest, offer)


def stretch(went: Sequence[int]) -> int:
    """By how much a provider's starts take longer than it tells, in thousandths, by what each of
    its last ones did: the one in the middle; 1000 while there are fewer than :data:`FEW`.
    """
    return max(1, int(median(went))) if len(went) >= FEW else 1000
