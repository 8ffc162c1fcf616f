"""A registry as its images' manifests are read there, before a daemon is asked for any: from where
the daemon would have them, with its trust and its owner's login.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import httpx

from adapter.core.registries import registry_of
from adapter.core.workload import ImageRefused
from adapter.runtime.docker.market_images import Login

KINDS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MOST_BYTES: Final = 4 << 20
SECONDS: Final = 60.0  # for all that is read of one image
_UNAUTHORIZED, _NOT_FOUND = 401, 404
_HUB: Final = "registry-1.docker.io"
_CERTIFICATES: Final = Path("/etc/docker/certs.d")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ImageForeign(ImageRefused):
    """Some part of the image is not on its registry, or may be read in two ways."""

    code = "IMAGE_FOREIGN"
    remedy = "push the image with every layer on its registry: no URLs and no foreign layers in it"


def owners_login(client: Any, repository: str) -> Login | None:
    """The owner's ``docker login`` there, as a pull would send it."""
    registry = registry_of(repository)
    known = cast(
        "dict[str, str]",
        client.api._auth_configs.resolve_authconfig(None if registry == "docker.io" else registry)
        or {},
    )
    name, word = known.get("username"), known.get("password")
    return Login(name, word) if name and word else None


class Registry:
    """Documents by digest from where the daemon would have them: its mirrors, then the registry."""

    def __init__(self, info: Mapping[str, Any], repository: str, login: Login | None) -> None:
        registry = registry_of(repository)
        first, _, rest = repository.partition("/")
        self._path = rest if first.lower() == registry else repository
        known = _map(info.get("RegistryConfig"))
        named = _map(_map(known.get("IndexConfigs")).get(registry))
        self._plain = named.get("Secure") is False or _among(registry, known)
        self._bases = [f"https://{registry}", *([f"http://{registry}"] if self._plain else [])]
        if registry == "docker.io":
            self._path = self._path if "/" in self._path else f"library/{self._path}"
            mirrors = named.get("Mirrors") or known.get("Mirrors") or ()
            self._bases = [*(str(one).rstrip("/") for one in mirrors), f"https://{_HUB}"]
        self._login = login
        self._until = time.monotonic() + SECONDS
        self._client = httpx.Client(
            timeout=20, follow_redirects=True, max_redirects=3, verify=self._trust(registry),
            headers={"Accept": ", ".join(KINDS)}, event_hooks={"request": [self._only_safe]},
        )  # fmt: skip

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()

    def _trust(self, registry: str) -> ssl.SSLContext | bool:
        if self._plain:
            return False  # as the daemon: its owner says so
        trust = ssl.create_default_context()
        for one in sorted((_CERTIFICATES / registry).glob("*.crt")):
            trust.load_verify_locations(one)
        return trust

    def _only_safe(self, request: httpx.Request) -> None:
        mirror = any(str(request.url).startswith(base + "/") for base in self._bases)
        if request.url.scheme != "https" and not (self._plain or mirror):
            raise httpx.UnsupportedProtocol("without TLS")

    def document(self, digest: str) -> bytes:
        """What *digest* names, proven by it."""
        if not _DIGEST.fullmatch(digest):
            raise ImageForeign("a digest in it is no sha256")
        for turn, base in enumerate(self._bases, 1):
            try:
                raw = self._get(f"{base}/v2/{self._path}/manifests/{digest}")
            except (httpx.HTTPError, LookupError, ValueError):
                if turn == len(self._bases):
                    raise
                continue
            if "sha256:" + hashlib.sha256(raw).hexdigest() == digest:
                return raw
        raise LookupError("not what its digest says")

    def tagged(self, tag: str) -> bytes | None:
        """The manifest that *tag* names, as it is said; None where nobody has one."""
        return self._anywhere(f"manifests/{tag}")

    def blob(self, digest: str) -> bytes:
        """A small blob, proven by its digest."""
        if not _DIGEST.fullmatch(digest):
            raise LookupError("no digest")
        raw = self._anywhere(f"blobs/{digest}") or b""
        if "sha256:" + hashlib.sha256(raw).hexdigest() != digest:
            raise LookupError("not what its digest says")
        return raw

    def _anywhere(self, rest: str) -> bytes | None:
        """Of the first of its places that has it: a mirror may lack what the registry has."""
        failed: Exception | None = None
        for base in self._bases:
            try:
                return self._get(f"{base}/v2/{self._path}/{rest}")
            except httpx.HTTPStatusError as error:
                failed = None if error.response.status_code == _NOT_FOUND else error
            except (httpx.HTTPError, LookupError) as error:
                failed = error
        if failed is not None:
            raise failed
        return None

    def _get(self, url: str) -> bytes:
        answer, raw = self._read(url)
        if answer.status_code == _UNAUTHORIZED:
            how = answer.headers.get("WWW-Authenticate", "")
            if how.lower().startswith("basic") and self._login:
                basic = httpx.BasicAuth(self._login.user, self._login.password)
                answer, raw = self._read(url, auth=basic)
            else:
                bearer = {"Authorization": f"Bearer {self._token(how)}"}
                answer, raw = self._read(url, headers=bearer)
        answer.raise_for_status()
        return raw

    def _token(self, how: str) -> str:
        asked = dict(re.findall(r'([a-z]+)\s*=\s*"([^"]*)"', how))
        query = {"scope": f"repository:{self._path}:pull"}
        if "service" in asked:
            query["service"] = asked["service"]
        basic = httpx.BasicAuth(self._login.user, self._login.password) if self._login else None
        answer, raw = self._read(asked["realm"], params=query, auth=basic)
        answer.raise_for_status()
        found = _map(json.loads(raw))
        return str(found.get("token") or found["access_token"])

    def _read(self, url: str, **more: Any) -> tuple[httpx.Response, bytes]:
        body = bytearray()
        with self._client.stream("GET", url, **more) as answer:
            for part in answer.iter_bytes(1 << 16):
                body += part
                if len(body) > MOST_BYTES or time.monotonic() > self._until:
                    raise LookupError("too long, or too slow")
        return answer, bytes(body)


def _among(registry: str, known: Mapping[str, Any]) -> bool:
    """Whether *registry* is an address in the daemon's ``insecure-registries``."""
    host = registry.rpartition(":")[0] or registry
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        return False
    ranges = cast("list[str]", known.get("InsecureRegistryCIDRs") or [])
    return any(address in ipaddress.ip_network(one) for one in ranges)


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
