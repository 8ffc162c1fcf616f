"""Image names to digests, when a job is matched: what was quoted is exactly what runs.

``python:3.11`` is asked of its registry (HTTP API v2, anonymous, as `docker pull` would without a
login) and becomes ``docker.io/library/python@sha256:…``. Names that need no registry are read in
``domain/work/image_names.py``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpx

from marketplace.domain.errors import Refusal
from marketplace.domain.work.image_names import DIGEST, Reference, is_loopback

DEADLINE_S: Final = 20.0
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


def challenge(header: str) -> dict[str, str]:
    """The parameters of a ``WWW-Authenticate: Bearer`` header; empty when it is none."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return {}
    return {k.lower(): v for k, v in re.findall(r'([A-Za-z]+)\s*=\s*"([^"]*)"', rest)}


async def digest_of(
    image: str,
    *,
    token: str = "",
    deadline_s: float = DEADLINE_S,
    transport: httpx.AsyncBaseTransport | None = None,
) -> str:
    """The full name of *image* at the digest its registry gives now; :class:`ImageNotPinned`.
    *token*: for that registry; without one, as anybody.
    """
    reference = Reference.parse(image)
    host = urlsplit(reference.manifest_url).netloc
    client = httpx.AsyncClient(
        timeout=deadline_s, follow_redirects=True, max_redirects=3, transport=transport,
        event_hooks={"request": [_only_safe]},
    )  # fmt: skip
    try:
        with anyio.fail_after(deadline_s):
            async with client:
                return reference.at(await _ask(client, reference, image, token))
    except TimeoutError as error:
        raise ImageNotPinned(f"{image}: {host} gave no answer within {deadline_s:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise ImageNotPinned(f"{image}: {host} cannot be asked: {why}") from error


async def _ask(client: httpx.AsyncClient, reference: Reference, image: str, token: str) -> str:
    headers = {"Accept": _ACCEPT}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    answer = await client.head(reference.manifest_url, headers=headers)
    if answer.status_code == _UNAUTHORIZED and not token:
        token = await _token(client, reference, answer.headers.get("WWW-Authenticate", ""), image)
        headers["Authorization"] = f"Bearer {token}"
        answer = await client.head(reference.manifest_url, headers=headers)
    _found(answer, image)
    digest = answer.headers.get("Docker-Content-Digest", "")
    if DIGEST.fullmatch(digest):
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
    if request.url.scheme != "https" and not is_loopback(request.url.host):
        raise httpx.UnsupportedProtocol(f"{request.url.host} without TLS")
