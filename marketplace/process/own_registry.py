"""The market's own registry, asked as the market itself: what lies there, of what it is made."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import httpx

from marketplace.domain.errors import Fault
from marketplace.domain.work.image_names import is_loopback
from marketplace.domain.work.manifest import MOST_DOCUMENT, digest_of
from marketplace.market.base.ports import KeptImage
from marketplace.registry.tokens import Scope, TokenKey
from marketplace.system import SystemClock

QUOTE_S: Final = 3.0
"""A quote does not wait longer to say how soon a job would run."""
DEADLINE_S: Final = 30.0
KINDS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_OURS: Final = ("linux", "amd64")
_OK, _ACCEPTED, _NOT_FOUND = 200, 202, 404


class RegistrySilent(Fault):
    """The market's own registry does not answer as one."""

    code = "REGISTRY_SILENT"
    remedy = "is `tally market registry` running, under the name that this market was told?"


class HttpRegistry:
    """The registry named *registry*, which takes tokens that *key* signs."""

    def __init__(self, registry: str, key: TokenKey) -> None:
        scheme = "http" if is_loopback(registry) else "https"
        self._name, self._key, self._at = registry, key, f"{scheme}://{registry}"

    async def documents(self, repository: str, digest: str) -> list[str]:
        """The manifest *digest*, or that index and what it names for the usual machine."""
        base = f"{self._at}/v2/{repository}/manifests"
        scope = Scope("repository", repository, frozenset({"pull"}))
        async with self._client(scope, QUOTE_S) as http:
            http.headers["Accept"] = ", ".join(KINDS)
            first = await _document(http, base, digest)
            below = _chosen(first)
            return [first, await _document(http, base, below)] if below else [first]

    async def holdings(self, namespace: str) -> tuple[int, list[KeptImage]]:
        """What its door says of *namespace*."""
        async with self._client(Scope("namespace", namespace, frozenset({"list"}))) as http:
            answer = await _asked(http, "GET", f"{self._at}/images/{namespace}", _OK)
        try:
            said = cast("dict[str, Any]", answer.json())
            images = [
                KeptImage(repository=str(one["name"]), **image)
                for one in said["repositories"]
                for image in one["images"]
            ]
            return int(said["used"]), images
        except (ValueError, KeyError, TypeError) as error:
            raise RegistrySilent(f"{self._name} does not say what it holds: {error}") from error

    async def delete(self, repository: str, digest: str) -> bool:
        """As Distribution deletes: the manifest, and so all tags that name it."""
        where = f"{self._at}/v2/{repository}/manifests/{digest}"
        async with self._client(Scope("repository", repository, frozenset({"delete"}))) as http:
            answer = await _asked(http, "DELETE", where, _ACCEPTED, _NOT_FOUND)
        return answer.status_code == _ACCEPTED

    def _client(self, scope: Scope, within_s: float = DEADLINE_S) -> httpx.AsyncClient:
        token = self._key.token(self._name, "market", [scope], SystemClock().now_ms() // 1000)
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(timeout=within_s, headers=headers)


async def _asked(http: httpx.AsyncClient, method: str, where: str, *well: int) -> httpx.Response:
    try:
        answer = await http.request(method, where)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RegistrySilent(f"{where}: {str(error) or type(error).__name__}") from error
    if answer.status_code not in well:
        raise RegistrySilent(f"{where}: status {answer.status_code}")
    return answer


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
