"""Image names to digests, when a job is matched: what was quoted is exactly what runs.

``python:3.11`` is asked of its registry (HTTP API v2, anonymous, as `docker pull` would without a
login) and becomes ``docker.io/library/python@sha256:…``. A name with the tag ``local`` is in no
registry: it means an image that a provider has on its host and announces under the label
``image/<name>``, and the job is then bound to the offers that announce that digest. Labels are
asked for no other tag, so no provider can redirect a name of a registry.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpx

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.job import JobSpec

LOCAL_TAG: Final = "local"
LABEL: Final = "image/"
DEADLINE_S: Final = 20.0
_HUB: Final = "docker.io"
_HUB_NAMES: Final = frozenset({_HUB, "index.docker.io", "registry-1.docker.io"})
_HUB_REGISTRY: Final = "registry-1.docker.io"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REPOSITORY: Final = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?::[0-9]{1,5})?")
_OK, _UNAUTHORIZED = 200, 401
_MAX_BYTES: Final = 4 << 20
_MAX_TOKEN: Final = 64 << 10
_ACCEPT: Final = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


class ImageNotPinned(Refusal):
    """Nobody said which digest a name stands for."""

    code = "IMAGE_NOT_PINNED"
    remedy = (
        "write the digest: image: name@sha256:… (`docker buildx imagetools inspect NAME` prints it)"
    )


# ---- names -------------------------------------------------------------------------------------


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
        if at and not _DIGEST.fullmatch(digest):
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
        scheme = "http" if _is_loopback(registry) else "https"
        return f"{scheme}://{registry}/v2/{self.repository}/manifests/{self.tag}"


def pinned(image: str) -> str | None:
    """*image* as it is posted when it names its digest already, else None; :class:`Malformed`."""
    if image.startswith("sha256:"):
        if not _DIGEST.fullmatch(image):
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
    valid = [(count, digest) for digest, count in found.items() if _DIGEST.fullmatch(digest)]
    return max(valid)[1] if valid else ""


def on_offers_with(spec: JobSpec, digest: str) -> JobSpec:
    """*spec* at a local image's *digest*, bound to the offers that have it."""
    labels = {**spec.placement.labels, LABEL + spec.image: digest}
    return replace(spec, image=digest, placement=replace(spec.placement, labels=labels))


def is_local(image: str) -> bool:
    """Whether *image* is a name that no registry has."""
    return Reference.parse(image).tag == LOCAL_TAG


def challenge(header: str) -> dict[str, str]:
    """The parameters of a ``WWW-Authenticate: Bearer`` header; empty when it is none."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return {}
    return {k.lower(): v for k, v in re.findall(r'([A-Za-z]+)\s*=\s*"([^"]*)"', rest)}


# ---- registries --------------------------------------------------------------------------------


async def digest_of(
    image: str, *, deadline_s: float = DEADLINE_S, transport: httpx.AsyncBaseTransport | None = None
) -> str:
    """The full name of *image* at the digest its registry gives now; :class:`ImageNotPinned`."""
    reference = Reference.parse(image)
    host = urlsplit(reference.manifest_url).netloc
    client = httpx.AsyncClient(
        timeout=deadline_s, follow_redirects=True, max_redirects=3, transport=transport,
        event_hooks={"request": [_only_safe]},
    )  # fmt: skip
    try:
        with anyio.fail_after(deadline_s):
            async with client:
                return reference.at(await _ask(client, reference, image))
    except TimeoutError as error:
        raise ImageNotPinned(f"{image}: {host} gave no answer within {deadline_s:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise ImageNotPinned(f"{image}: {host} cannot be asked: {why}") from error


async def _ask(client: httpx.AsyncClient, reference: Reference, image: str) -> str:
    headers = {"Accept": _ACCEPT}
    answer = await client.head(reference.manifest_url, headers=headers)
    if answer.status_code == _UNAUTHORIZED:
        token = await _token(client, reference, answer.headers.get("WWW-Authenticate", ""), image)
        headers["Authorization"] = f"Bearer {token}"
        answer = await client.head(reference.manifest_url, headers=headers)
    _found(answer, image)
    digest = answer.headers.get("Docker-Content-Digest", "")
    if _DIGEST.fullmatch(digest):
        return digest
    # Older registries name no digest in the headers: it is the hash of the manifest's bytes.
    async with client.stream("GET", reference.manifest_url, headers=headers) as manifest:
        _found(manifest, image)
        return "sha256:" + hashlib.sha256(await _read(manifest, _MAX_BYTES, image)).hexdigest()


async def _token(client: httpx.AsyncClient, reference: Reference, header: str, image: str) -> str:
    """An anonymous token to pull *reference*, from where its registry says."""
    asked = challenge(header)
    if "realm" not in asked:
        raise ImageNotPinned(f"{image}: {reference.host} wants a login of a kind unknown here")
    query = {"scope": asked.get("scope") or f"repository:{reference.repository}:pull"}
    if "service" in asked:
        query["service"] = asked["service"]
    async with client.stream("GET", asked["realm"], params=query) as answer:
        _found(answer, image)
        body = await _read(answer, _MAX_TOKEN, image)
    try:
        value = cast("dict[str, Any]", httpx.Response(200, content=body).json())
        return str(value.get("token") or value["access_token"])
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ImageNotPinned(f"{image}: {reference.host} gave no token") from error


def _found(answer: httpx.Response, image: str) -> None:
    status = answer.status_code
    if status in (_UNAUTHORIZED, 403, 404):
        raise ImageNotPinned(f"{image}: {answer.url.host} has no such public image ({status})")
    if status != _OK:
        raise ImageNotPinned(f"{image}: {answer.url.host} answered {status}")


async def _read(answer: httpx.Response, most: int, image: str) -> bytes:
    body = bytearray()
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > most:
            raise ImageNotPinned(f"{image}: {answer.url.host} answered with over {most} bytes")
    return bytes(body)


async def _only_safe(request: httpx.Request) -> None:
    """A digest that came in clear over a network is anybody's."""
    if request.url.scheme != "https" and not _is_loopback(request.url.host):
        raise httpx.UnsupportedProtocol(f"{request.url.host} without TLS")


def _is_loopback(host: str) -> bool:
    return host.rpartition(":")[0] in _LOOPBACK or host in _LOOPBACK
