"""Names of images as Docker reads them, and what stands for a digest already.

A name with the tag ``local`` is in no registry: it means an image that a provider has on its host
and announces under the label ``image/<name>``, and the job is then bound to the offers that
announce that digest. Labels are asked for no other tag, so no provider can redirect a name of a
registry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from marketplace.domain.errors import Malformed
from marketplace.domain.work.job import JobSpec

LOCAL_TAG: Final = "local"
LABEL: Final = "image/"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HUB: Final = "docker.io"
_HUB_NAMES: Final = frozenset({_HUB, "index.docker.io", "registry-1.docker.io"})
_HUB_REGISTRY: Final = "registry-1.docker.io"
PUBLIC: Final = ("docker.io", "ghcr.io", "quay.io", "nvcr.io")
"""Registries that everybody knows: no market's own."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_REPOSITORY: Final = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Reference:
    """A name as Docker reads it; *digest* is ``sha256:…`` or ""."""

    host: str
    repository: str
    tag: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """``[host[:port]/]path[:tag][@sha256:…]``; :class:`Malformed`.

        The first part is a host only if it has a dot or a port, or is localhost; a name of one part
        on Docker Hub lies under ``library/``; the tag that goes without saying is ``latest``.
        """
        name, at, digest = text.partition("@")
        if at and not DIGEST.fullmatch(digest):
            raise Malformed(f"{text!r}: a digest is sha256: and 64 hexadecimal digits")
        first, slash, rest = name.partition("/")
        if not (slash and ("." in first or ":" in first or first == "localhost")):
            first, rest = _HUB, name
        path, colon, tag = rest.partition(":")
        host = _HUB if first in _HUB_NAMES else first
        if host == _HUB and "/" not in path:
            path = f"library/{path}"
        if not _HOST.fullmatch(host) or not _REPOSITORY.fullmatch(path) or len(path) > 255:
            raise Malformed(f"{text!r} is not the name of an image")
        if colon and not _TAG.fullmatch(tag):
            raise Malformed(f"{text!r}: {tag!r} is not a tag")
        return cls(host, path, tag or "latest", digest)

    def at(self, digest: str) -> str:
        """The full name at *digest*; the tag, which may move, is gone."""
        return f"{self.host}/{self.repository}@{digest}"

    @property
    def manifest_url(self) -> str:
        """Where the registry keeps what the tag stands for. Plain HTTP on this machine only."""
        registry = _HUB_REGISTRY if self.host == _HUB else self.host
        scheme = "http" if is_loopback(registry) else "https"
        return f"{scheme}://{registry}/v2/{self.repository}/manifests/{self.tag}"


def pinned(image: str) -> str | None:
    """*image* as it is posted when it names its digest already, else None; :class:`Malformed`."""
    if image.startswith("sha256:"):
        if not DIGEST.fullmatch(image):
            raise Malformed(f"{image!r}: a digest is sha256: and 64 hexadecimal digits")
        return image
    if "@" not in image:
        return None
    reference = Reference.parse(image)
    return reference.at(reference.digest)


def announced(image: str, offers: Iterable[Mapping[str, Any]]) -> str:
    """The digest that most of *offers* announce for a local image; "" when none does."""
    found = Counter(
        str(labels[LABEL + image])
        for offer in offers
        if LABEL + image in (labels := cast("Mapping[str, Any]", offer.get("labels") or {}))
    )
    valid = [(count, digest) for digest, count in found.items() if DIGEST.fullmatch(digest)]
    return max(valid)[1] if valid else ""


def on_offers_with(spec: JobSpec, digest: str) -> JobSpec:
    """*spec* at a local image's *digest*, bound to the offers that have it."""
    labels = {**spec.placement.labels, LABEL + spec.image: digest}
    return replace(spec, image=digest, placement=replace(spec.placement, labels=labels))


def is_local(image: str) -> bool:
    """Whether *image* is a name that no registry has."""
    return Reference.parse(image).tag == LOCAL_TAG


def registry_name(text: str) -> str:
    """*text* as the part of a name before its first slash: ``host[:port]``; :class:`Malformed`."""
    if Reference.parse(f"{text}/x").host != text:
        raise Malformed(f"{text!r} is not the name of a registry: host:port, or a host with a dot")
    return text


def is_loopback(host: str) -> bool:
    """Whether *host*, with or without a port, is this machine."""
    return host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK
