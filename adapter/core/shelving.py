"""What an owner wants done with the images on the host: how long and how much is kept, what is
fetched before anybody asks. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FRESH_MS: Final = 600_000
"""An image that was used less long ago is left alone, whatever the rule says."""
MOST_AHEAD: Final = 20


@dataclass(frozen=True)
class Shelving:
    """*keep_mib*: of images that were pulled for jobs so much is kept in all, and each for
    *keep_ms* after its last use; 0: without end. *ahead*: so many of the market's popular images
    are fetched while nothing runs that needs the line, none that is larger than *ahead_mib*.
    """

    keep_mib: int = 102_400
    keep_ms: int = 30 * 86_400_000
    ahead: int = 0
    ahead_mib: int = 20_480


@dataclass(frozen=True)
class Stock:
    """What is on a host, as ``wire.StockTold`` has it, and how many images of how many MiB."""

    held: bytes
    start_ms: int
    pull_ms: int
    bytes_s: int
    images: int = 0
    mib: int = 0


@dataclass(frozen=True)
class Kept:
    """An image that was pulled for a job: *digest* as the job named it, its MiB on the disk, and
    when it was last used.
    """

    digest: str
    mib: int
    used_ms: int


def to_drop(rule: Shelving, kept: Iterable[Kept], now_ms: int) -> list[str]:
    """The digests that are to go, the longest unused first."""
    ranked = sorted(kept, key=lambda one: (one.used_ms, one.digest))
    left = sum(one.mib for one in ranked)
    dropped: list[str] = []
    for one in ranked:
        idle = now_ms - one.used_ms
        old = bool(rule.keep_ms) and idle > rule.keep_ms
        full = bool(rule.keep_mib) and left > rule.keep_mib
        if (old or full) and idle > FRESH_MS:
            dropped.append(one.digest)
            left -= one.mib
    return dropped
