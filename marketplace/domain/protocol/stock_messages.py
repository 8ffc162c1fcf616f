"""What a host has of images, and what images are made of: a part of ``wire``."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.domain.protocol.message import Message


@dataclass(frozen=True)
class StockTold(Message):
    """What the host has of images, and what starts and pulls take there, as it measured them.

    *held*: ``stock.pack``; *start_ms*: of a workload whose image is there; a pull takes *pull_ms*
    whatever its size, and then *bytes_s* packed bytes a second. 0: not measured.
    """

    held: bytes
    start_ms: int
    pull_ms: int
    bytes_s: int


@dataclass(frozen=True)
class ManifestTold(Message):
    """What the image of a lease's job is made of, as it was pulled for it: *documents* as
    ``manifest.layers`` reads them.
    """

    lease: str
    documents: list[str]
