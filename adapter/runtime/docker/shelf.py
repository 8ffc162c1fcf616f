"""The images on the host: what they are made of, when they were used, what pulls and starts took.

Docker does not tell by which digests a registry names the layers that it has; so what was read of
an image before its pull is kept, in one file below the runtime's folder. Losing it loses no image:
what is on the host and not in it is told by its own digest alone, and is never removed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import docker.errors
import structlog

from adapter.core.shelving import Kept, Shelving, Stock, to_drop
from marketplace.domain.errors import Malformed
from marketplace.domain.supply.stock import MOST_HELD, pack, print_of
from marketplace.domain.work import manifest
from marketplace.domain.work.image_names import DIGEST

_log = structlog.get_logger("adapter.images")
LAST: Final = 16
"""Of pulls and of starts so many count."""
FORGET_MS: Final = 3_600_000
"""An image that is not here is known for so long after it was wanted: it may be on its way."""
_MIB: Final = 1 << 20
_MOST_STARTS: Final = 1000


@dataclass
class _Image:
    """*parts*: (digest, packed bytes) of its configuration and layers, as a manifest says."""

    parts: list[tuple[str, int]]
    used_ms: int
    pulled: bool = False  # for a job, by us: it may be removed again


@dataclass
class _Start:
    begun: float
    pull_s: float = 0.0


@dataclass
class Shelf:
    """*path*: the file. Calls block; any thread may make them."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    changes: int = 0  # goes up with each that what is told may differ by
    found: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    """(lease, documents) of images that were read since somebody last took them."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._images: dict[str, _Image] = {}
        self._pulls: list[tuple[int, int]] = []  # bytes, ms
        self._starts: list[int] = []  # ms
        self._here: set[str] = set()  # digests that Docker named at the last look
        self._under_way: dict[str, _Start] = {}
        self._read()

    # ---- what the runtime notes ------------------------------------------------------------------

    def begin(self, lease: str) -> None:
        """A start of *lease* is begun; "": of none, an image is fetched ahead."""
        with self._lock:
            if lease:
                self._under_way.pop(lease, None)
                self._under_way[lease] = _Start(self.clock())
            while len(self._under_way) > _MOST_STARTS:  # those that failed
                del self._under_way[next(iter(self._under_way))]

    def ran(self, lease: str) -> None:
        """Its workload runs."""
        with self._lock:
            start = self._under_way.pop(lease, None)
            if start is None:
                return
            took = self.clock() - start.begun - start.pull_s
            self._starts = [*self._starts, max(1, round(took * 1000))][-LAST:]
            self._changed()

    def used(self, digest: str, documents: Sequence[str], lease: str) -> None:
        """*digest* is wanted, and what it is made of was read."""
        with self._lock:
            known = self._images.get(digest)
            if known is None:
                known = self._images[digest] = _Image([], 0)
            known.used_ms = self.wall_ms()
            if not known.parts and documents:
                known.parts = _parts(digest, documents)
                if known.parts and lease:
                    self.found.append((lease, list(documents)))
            self._changed()

    def lacking(self, digest: str) -> int:
        """Packed bytes of *digest* that no other image here has, as far as is known."""
        with self._lock:
            known = self._images.get(digest)
            there = {part for one in self._here - {digest} for part in self._parts_of(one)}
            return sum(size for part, size in known.parts if part not in there) if known else 0

    def pulled(self, digest: str, lease: str, lacked: int, seconds: float) -> None:
        """It was pulled, which took *seconds* for *lacked* bytes."""
        with self._lock:
            known = self._images.setdefault(digest, _Image([], 0))
            known.pulled, known.used_ms = True, self.wall_ms()
            self._here.add(digest)
            if lacked:
                self._pulls = [*self._pulls, (lacked, max(1, round(seconds * 1000)))][-LAST:]
            if lease in self._under_way:
                self._under_way[lease].pull_s += seconds
            self._changed()

    # ---- what is told ----------------------------------------------------------------------------

    def look(self, client: Any) -> Stock:
        """What the daemon of *client* has now, with what starts and pulls took."""
        rows = cast("list[dict[str, Any]]", client.api.images())
        names: set[str] = set()
        for row in rows:
            names |= _names(row)
        with self._lock:
            long_ago = self.wall_ms() - FORGET_MS
            for name, one in list(self._images.items()):
                if name not in names and one.used_ms < long_ago:  # removed, or never had
                    del self._images[name]
            self._here = names
            prints: dict[bytes, None] = {}
            for name in sorted(names, key=lambda one: (-self._used_ms(one), one)):
                for part in (name, *self._parts_of(name)):
                    prints[print_of(part)] = None
            pull_ms, bytes_s = pull_line(self._pulls)
            start_ms = round(median(self._starts)) if self._starts else 0
            mib = sum(int(row.get("Size") or 0) for row in rows) // _MIB
            held = pack(list(prints)[:MOST_HELD])
            return Stock(held, start_ms, pull_ms, bytes_s, len(rows), mib)

    def take_found(self) -> list[tuple[str, list[str]]]:
        """What was read of images since the last call."""
        with self._lock:
            found, self.found = self.found, []
            return found

    def evict(self, client: Any, rule: Shelving) -> list[str]:
        """Remove what the owner's *rule* lets go; what a container uses stays. The digests."""
        sizes = {
            name: int(row.get("Size") or 0) // _MIB
            for row in cast("list[dict[str, Any]]", client.api.images())
            for name in _names(row)
        }
        with self._lock:
            kept = [
                Kept(digest, sizes[digest], one.used_ms)
                for digest, one in self._images.items()
                if one.pulled and digest in sizes
            ]
        dropped = list[str]()
        for digest in to_drop(rule, kept, self.wall_ms()):
            if _remove(client, digest):
                dropped.append(digest)
        if dropped:
            with self._lock:
                for digest in dropped:
                    self._images.pop(digest, None)
                self._changed()
        return dropped

    # ---- the file --------------------------------------------------------------------------------

    def _parts_of(self, digest: str) -> list[str]:
        known = self._images.get(digest)
        return [part for part, _ in known.parts] if known is not None else []

    def _used_ms(self, digest: str) -> int:
        known = self._images.get(digest)
        return known.used_ms if known is not None else 0

    def _changed(self) -> None:
        self.changes += 1
        kept = {
            "images": {
                digest: {"parts": one.parts, "used_ms": one.used_ms, "pulled": one.pulled}
                for digest, one in self._images.items()
            },
            "pulls": self._pulls,
            "starts": self._starts,
        }
        fresh = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_text(json.dumps(kept))
            os.replace(fresh, self.path)
        except OSError as error:  # figures alone: no start fails for them
            _log.warning("what is known of images is not kept", cause=str(error))

    def _read(self) -> None:
        try:
            kept = json.loads(self.path.read_text())
            self._images = {
                str(digest): _Image(
                    [(str(part), int(size)) for part, size in one["parts"]],
                    int(one["used_ms"]),
                    bool(one["pulled"]),
                )
                for digest, one in kept["images"].items()
                if DIGEST.fullmatch(str(digest))
            }
            self._pulls = [(int(size), int(ms)) for size, ms in kept["pulls"]][-LAST:]
            self._starts = [int(ms) for ms in kept["starts"]][-LAST:]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.warning("what was known of images cannot be read", cause=str(error))
            self._images, self._pulls, self._starts = {}, [], []


def pull_line(pulls: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(ms that a pull takes whatever its size, bytes a second then) by *pulls* of (bytes, ms): the
    line through their middle (Theil-Sen), which a few odd pulls do not bend; (0, 0) without any.
    """
    if not pulls:
        return 0, 0
    slopes = [
        (b_ms - a_ms) / (b - a)
        for at, (a, a_ms) in enumerate(pulls)
        for b, b_ms in pulls[at + 1 :]
        if a != b
    ]
    slope = median(slopes) if slopes else 0.0
    if slope <= 0:  # of one size, or nothing but noise: all of it counts by the byte
        whole = median(ms / size for size, ms in pulls)
        return 0, max(1, round(1000 / whole))
    fixed = median(ms - slope * size for size, ms in pulls)
    return max(0, round(fixed)), max(1, round(1000 / slope))


def _parts(digest: str, documents: Sequence[str]) -> list[tuple[str, int]]:
    try:
        return [(one.digest, one.size) for one in manifest.layers(digest, documents)]
    except Malformed as wrong:
        _log.info("image of unknown size", image=digest, cause=wrong.message)
        return []


def _names(row: dict[str, Any]) -> set[str]:
    """The digests by which a job may name an image on the host: its own, and its registries'."""
    named = [one.rpartition("@")[2] for one in _digests(row)]
    return {one for one in (str(row.get("Id")), *named) if DIGEST.fullmatch(one)}


def _digests(row: dict[str, Any]) -> list[str]:
    """``name@sha256:…`` of each registry that the image came from."""
    return [str(one) for one in cast("list[Any]", row.get("RepoDigests") or [])]


def _remove(client: Any, digest: str) -> bool:
    """Whether the image is gone: one that has another name, or a container, stays."""
    try:
        rows = cast("list[dict[str, Any]]", client.api.images())
        names = [one for row in rows for one in _digests(row) if one.endswith("@" + digest)]
        for name in names:
            client.images.remove(name)
    except docker.errors.APIError as error:
        _log.info("image kept", image=digest, cause=str(error.explanation or error)[:200])
        return False
    return bool(names)
