"""What images of the market's own registry are made of, asked there as the market itself."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import httpx

from marketplace.domain.errors import Fault
from marketplace.domain.work.image_names import is_loopback
from marketplace.domain.work.manifest import MOST_DOCUMENT, digest_of
from marketplace.market.context import Manifests
from marketplace.registry.tokens import Scope, TokenKey
from marketplace.system import SystemClock

DEADLINE_S: Final = 3.0
KINDS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_OURS: Final = ("linux", "amd64")
_OK: Final = 200


class RegistrySilent(Fault):
    """The market's own registry does not say what an image is made of."""

    code = "REGISTRY_SILENT"
    remedy = "is `tally market registry` running, under the name that this market was told?"


def source(registry: str, key: TokenKey) -> Manifests:
    """Of the registry named *registry*, which takes tokens that *key* signs."""
    scheme = "http" if is_loopback(registry) else "https"

    async def documents(repository: str, digest: str) -> list[str]:
        """The manifest *digest*, or that index and what it names for the usual machine."""
        scope = Scope("repository", repository, frozenset({"pull"}))
        token = key.token(registry, "market", [scope], SystemClock().now_ms() // 1000)
        headers = {"Authorization": f"Bearer {token}", "Accept": ", ".join(KINDS)}
        base = f"{scheme}://{registry}/v2/{repository}/manifests"
        async with httpx.AsyncClient(timeout=DEADLINE_S, headers=headers) as http:
            first = await _document(http, base, digest)
            below = _chosen(first)
            return [first, await _document(http, base, below)] if below else [first]

    return documents


async def _document(http: httpx.AsyncClient, base: str, digest: str) -> str:
    try:
        answer = await http.get(f"{base}/{digest}")
        text = answer.content.decode()
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeDecodeError) as error:
        raise RegistrySilent(f"{base}: {error}") from error
    if answer.status_code != _OK or len(text) > MOST_DOCUMENT or digest_of(text) != digest:
        raise RegistrySilent(f"{base}/{digest}: status {answer.status_code}")
    return text


def _chosen(document: str) -> str:
    """The digest that an index names for a machine like most; "" for a manifest."""
    try:
        read = cast("dict[str, Any]", json.loads(document))
        rows = cast("list[dict[str, Any]]", read.get("manifests") or [])
        for row in rows:
            platform = cast("dict[str, Any]", row.get("platform") or {})
            if (platform.get("os"), platform.get("architecture")) == _OURS:
                return str(row["digest"])
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise RegistrySilent(f"a document of it is no manifest: {error}") from error
    return ""
