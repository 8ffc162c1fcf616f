"""What lies in Distribution's folder: images by repository and tag, and the room that each
namespace takes.

The folder is the truth: it has what was pushed and never named, and what is being pushed, too.
Layout: distribution's ``registry/storage/paths.go`` (``repositories/NAME/_manifests``, ``_layers``,
``_uploads``; ``blobs/sha256/ab/DIGEST/data``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from marketplace.domain.work.image_names import DIGEST

ENTRY: Final = 16 << 10
"""Bytes that each blob, upload, tag and repository counts for at least, besides its own: small ones
without end would take all of a disk's files.
"""
_SHA: Final = "sha256"
_MOST_DOCUMENT: Final = 4 << 20


@dataclass(frozen=True)
class Stored:
    """One image: *bytes* of its manifest and all that it names, packed, *layers* of them apart."""

    digest: str
    tags: list[str]
    bytes: int
    layers: int
    pushed_ms: int


@dataclass(frozen=True)
class Repository:
    """``NAMESPACE/NAME`` and its images, the latest first."""

    name: str
    images: list[Stored] = field(default_factory=list[Stored])


class Storage:
    """Distribution's folder ``docker/registry/v2``."""

    def __init__(self, folder: Path) -> None:
        self._repositories, self._blobs = folder / "repositories", folder / "blobs" / _SHA

    def used(self, namespace: str) -> int:
        """Bytes that *namespace* takes: each blob of its repositories once, and what is uploaded
        so far; and :data:`ENTRY` for each.
        """
        blobs, uploads, others = set[str](), 0, 0
        for one in self._of(namespace):
            others += 1 + sum(1 for _ in (one / "_manifests" / "tags").glob("*"))
            for link in ("_layers", "_manifests/revisions"):
                with suppress(OSError):
                    blobs.update(path.name for path in (one / link / _SHA).iterdir())
            for data in (one / "_uploads").glob("*/data"):
                with suppress(OSError):
                    uploads += data.stat().st_size
                    others += 1
        sizes = sum(self.size(f"{_SHA}:{name}") for name in blobs)
        return uploads + sizes + ENTRY * (len(blobs) + others)

    def size(self, digest: str) -> int:
        """Bytes of a blob; 0 for one that is not here."""
        name = digest.partition(":")[2]
        try:
            return (self._blobs / name[:2] / name / "data").stat().st_size
        except OSError:
            return 0

    def repositories(self, namespace: str) -> list[Repository]:
        """Those of *namespace* that have an image, by name."""
        found = [
            Repository(f"{namespace}/{one.name}", list(self._images(one)))
            for one in self._of(namespace)
        ]
        return [one for one in found if one.images]

    def prune(self) -> None:
        """Drop each repository's hold on layers that none of its manifests names: Distribution's
        collector leaves it, and one that others still have would be counted for ever. Nothing may
        be pushed meanwhile.
        """
        for namespace in self._repositories.iterdir():
            for one in self._of(namespace.name):
                named = {part for digest in self._revisions(one) for part in self._parts(digest)}
                for held in (one / "_layers" / _SHA).glob("*"):
                    if f"{_SHA}:{held.name}" not in named:
                        shutil.rmtree(held, ignore_errors=True)

    def _revisions(self, repository: Path) -> list[str]:
        found = (repository / "_manifests" / "revisions" / _SHA).glob("*/link")
        return [f"{_SHA}:{link.parent.name}" for link in found]

    def _of(self, namespace: str) -> list[Path]:
        try:
            return sorted(path for path in (self._repositories / namespace).iterdir())
        except OSError:
            return []

    def _images(self, repository: Path) -> Iterator[Stored]:
        tags: dict[str, list[str]] = {}
        for link in (repository / "_manifests" / "tags").glob("*/current/link"):
            with suppress(OSError):
                tags.setdefault(link.read_text().strip(), []).append(link.parent.parent.name)
        revisions = (repository / "_manifests" / "revisions" / _SHA).glob("*/link")
        made: list[tuple[int, str]] = []
        for link in revisions:
            with suppress(OSError):
                made.append((link.stat().st_mtime_ns // 1_000_000, f"{_SHA}:{link.parent.name}"))
        named = {part for _, digest in made for part in self._children(digest)}
        for pushed, digest in sorted(made, reverse=True):
            if digest in named and digest not in tags:
                continue  # one of an index's, which stands for all of them
            parts = self._parts(digest)
            size = sum(self.size(part) for part in {digest, *parts})
            yield Stored(digest, sorted(tags.get(digest, [])), size, len(parts), pushed)

    def _document(self, digest: str) -> dict[str, Any]:
        name = digest.partition(":")[2]
        path = self._blobs / name[:2] / name / "data"
        try:
            if path.stat().st_size > _MOST_DOCUMENT:
                return {}
            read: Any = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}  # pushed as a manifest and none that we read: its own size is counted
        return cast("dict[str, Any]", read) if isinstance(read, dict) else {}

    def _children(self, digest: str) -> list[str]:
        return list(_digests(self._document(digest).get("manifests")))

    def _parts(self, digest: str) -> set[str]:
        """What the manifest or index *digest* names, and what those name."""
        document = self._document(digest)
        found = set(_digests(document.get("layers"))) | set(_digests([document.get("config")]))
        for child in _digests(document.get("manifests")):
            inner = self._document(child)
            found |= {child, *_digests(inner.get("layers")), *_digests([inner.get("config")])}
        return found


def _digests(rows: object) -> Iterator[str]:
    for row in cast("list[object]", rows) if isinstance(rows, list) else []:
        digest = cast("dict[str, object]", row).get("digest") if isinstance(row, dict) else None
        if isinstance(digest, str) and DIGEST.fullmatch(digest):
            yield digest
