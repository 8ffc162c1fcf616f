"""What an image is made of, by documents that its own digest proves (OCI image specification,
``manifest.md`` and ``image-index.md``): whoever hands them on can add nothing and leave nothing
out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from marketplace.domain.canonical import want_int, want_items, want_map, want_text
from marketplace.domain.errors import Malformed
from marketplace.domain.work.image_names import DIGEST

MOST_DOCUMENT: Final = 65_536
"""Characters of a document that is handed on; an image with a longer one is of unknown size."""
MOST_LAYERS: Final = 512


@dataclass(frozen=True)
class Layer:
    """*size*: its packed bytes, as they are pulled."""

    digest: str
    size: int


def layers(digest: str, documents: Sequence[str]) -> tuple[Layer, ...]:
    """The configuration and the layers of the image *digest*. *documents*: its manifest, or an
    index and one of the manifests that this names. :class:`Malformed` for what is not proven.
    """
    if not 1 <= len(documents) <= 2:
        raise Malformed("an image is told by its manifest, or by its index and one manifest of it")
    read = _proven(documents[0], digest)
    if "manifests" in read:
        if len(documents) != 2:
            raise Malformed("an index alone says nothing of layers")
        found = digest_of(documents[1])
        rows = [want_map(one, "manifest") for one in want_items(read["manifests"], "manifests", 64)]
        if found not in (row.get("digest") for row in rows):
            raise Malformed("the index does not name that manifest")
        read = _proven(documents[1], found)
    elif len(documents) != 1:
        raise Malformed("a manifest has no other below it")
    if "layers" not in read or "config" not in read:
        raise Malformed("a manifest has a configuration and layers")
    return tuple(
        _layer(one) for one in (read["config"], *want_items(read["layers"], "layers", MOST_LAYERS))
    )


def digest_of(document: str) -> str:
    """The digest by which *document* is named."""
    return "sha256:" + hashlib.sha256(document.encode()).hexdigest()


def _proven(document: str, digest: str) -> dict[str, Any]:
    if len(document) > MOST_DOCUMENT or digest_of(document) != digest:
        raise Malformed(f"a document is not what {digest[:19]}… names")
    try:
        return want_map(cast(object, json.loads(document)), "manifest")
    except (ValueError, RecursionError):
        raise Malformed("a manifest is no JSON") from None


def _layer(value: object) -> Layer:
    one = want_map(value, "layer")
    digest = want_text(one.get("digest"), "digest", 71)
    if not DIGEST.fullmatch(digest):
        raise Malformed("a layer's digest is no sha256")
    return Layer(digest, want_int(one.get("size"), "size", 0, 2**50))
