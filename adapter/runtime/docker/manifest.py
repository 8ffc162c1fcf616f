"""Reads what an image's digest names before a daemon is asked for it: the index and its manifests.

A descriptor may carry ``urls`` (OCI image spec, descriptor.md), and a daemon with containerd's
image store fetches from there first (containerd, core/remotes/docker/fetcher.go): so the author of
an image, not its registry, would lead the host's daemon to any address. Every document is held
against its own digest, so what was read here is what the daemon reads; how it came does not matter.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import httpx
import structlog

from adapter.core.registries import registry_of
from adapter.core.workload import ImageRefused
from adapter.runtime.docker.market_images import Login
from adapter.runtime.docker.pull import not_had
from marketplace.domain.work.manifest import MOST_DOCUMENT

_log = structlog.get_logger("adapter.images")
KINDS: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MOST_BYTES: Final = 4 << 20
MOST_DOCUMENTS: Final = 32  # of one image, for one platform
SECONDS: Final = 60.0  # for all of them
_UNAUTHORIZED: Final = 401
_HUB: Final = "registry-1.docker.io"
_CERTIFICATES: Final = Path("/etc/docker/certs.d")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MACHINES: Final = {"x86_64": {"amd64", "386"}, "aarch64": {"arm64", "arm"}}
_ELSEWHERE: Final = frozenset(
    {"386", "amd64", "arm", "arm64", "ppc64le", "s390x", "riscv64", "mips64le", "loong64"}
)
_UNKNOWN: Final = (
    "unknown"  # an attestation's platform; its manifest names the one that it is about
)
_ABOUT: Final = "vnd.docker.reference.digest"


class ImageForeign(ImageRefused):
    """Some part of the image is not on its registry, or may be read in two ways."""

    code = "IMAGE_FOREIGN"
    remedy = "push the image with every layer on its registry: no URLs and no foreign layers in it"


def require_whole(client: Any, image: str, login: Login | None = None) -> list[str]:
    """What *image* (by digest) is made of, as ``domain.work.manifest`` reads it; empty where that
    is too long to be handed on. :class:`ImageForeign` if it may lead a daemon elsewhere than to its
    registry; :class:`ImageRefused` if its manifests cannot be read there. *client*: docker-py's,
    for what its daemon knows of registries and its owner's login, unless there is another *login*.
    """
    info = cast("Mapping[str, Any]", client.info())
    repository, _, digest = image.partition("@")
    ours = _MACHINES.get(str(info.get("Architecture")), set[str]())
    try:
        with _Registry(info, repository, login or _login(client, repository)) as registry:
            pending, seen, read = [digest], set[str](), list[bytes]()
            while pending:
                digest = pending.pop(0)
                if digest in seen:
                    continue
                seen.add(digest)
                if len(seen) > MOST_DOCUMENTS:
                    raise ImageForeign(f"{image}: more than {MOST_DOCUMENTS} manifests")
                read.append(registry.document(digest))
                pending += children(read[-1], ours)
    except ImageForeign as no:
        raise ImageForeign(f"{image}: {no.message}", image=image) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, LookupError, ValueError) as error:
        _log.warning("manifest not read", image=image, cause=str(error)[:300])
        raise not_had(image) from None
    return told(read)


def told(read: list[bytes]) -> list[str]:
    """Of the documents *read*, an index first if there is one, those that say what the image is
    made of: not what is said about it.
    """
    first, *rest = read
    found = [first] if not rest else [first, next((one for one in rest if not _is_about(one)), b"")]
    try:
        texts = [one.decode() for one in found]
    except UnicodeDecodeError:
        return []
    return texts if all(0 < len(one) <= MOST_DOCUMENT for one in texts) else []


def _is_about(raw: bytes) -> bool:
    layers = cast("list[dict[str, Any]]", json.loads(raw).get("layers") or [])
    return not layers or any("in-toto" in str(one.get("mediaType")) for one in layers)


def children(raw: bytes, ours: set[str]) -> list[str]:
    """The digests of the manifests that a daemon for the architectures *ours* may go on to;
    :class:`ImageForeign` unless every part of the document *raw* is on its registry.
    """
    try:
        read: Any = json.loads(raw, object_pairs_hook=_one_way)
    except (ValueError, RecursionError):
        raise ImageForeign("a manifest is no plain JSON") from None
    document = _map(read)
    for one in _maps(read):
        if isinstance(one.get("urls"), list) and one["urls"]:
            raise ImageForeign("a part of it is named at another URL")
        kind = str(one.get("mediatype")).casefold()
        if "foreign" in kind or "nondistributable" in kind:
            raise ImageForeign("it has a layer that is kept elsewhere")
    if str(document.get("mediatype", KINDS[0])) not in KINDS:
        raise ImageForeign("its manifest is of an unknown kind")
    index, layers = document.get("manifests"), document.get("layers")
    if (index is None) is (layers is None):
        raise ImageForeign("a manifest is either an index or has layers")
    if index is None:  # a daemon would go on through a layer that says it is a manifest
        for part in (_map(document.get("config")), *_rows(layers)):
            if "manifest" in str(part.get("mediatype")) or part.get("mediatype") in KINDS:
                raise ImageForeign("one of its layers is a manifest")
        return []
    return list(_chosen(list(_rows(index)), ours))


def _chosen(rows: list[Mapping[str, Any]], ours: set[str]) -> Iterator[str]:
    chosen = {str(row.get("digest")) for row in rows if _may_be_ours(row, ours)}
    for row in rows:
        platform, about = _map(row.get("platform")), _map(row.get("annotations")).get(_ABOUT)
        digest = str(row.get("digest"))
        if digest not in chosen and (platform.get("os") != _UNKNOWN or about not in chosen):
            continue
        if row.get("mediatype") not in KINDS:
            raise ImageForeign("its index names something else than manifests")
        yield digest


def _may_be_ours(row: Mapping[str, Any], ours: set[str]) -> bool:
    """Unless it says plainly that it is another platform's: a daemon reads some spellings as its
    own.
    """
    platform = _map(row.get("platform"))
    machine, system = str(platform.get("architecture")), str(platform.get("os"))
    others = _ELSEWHERE - ours if ours else frozenset[str]()
    return machine not in others and system != "windows" and (machine, system) != (_UNKNOWN,) * 2


def _one_way(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Names as Go's decoder compares them, in no case; one that is there twice has two readings."""
    found = {name.casefold(): value for name, value in pairs}
    if len(found) != len(pairs):
        raise ImageForeign("a manifest says one thing twice")
    return found


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _rows(value: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise ImageForeign("a manifest's list is none")
    yield from map(_map, cast("list[Any]", value))


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield cast("Mapping[str, Any]", one)
            pending += cast("dict[str, Any]", one).values()
        elif isinstance(one, list):
            pending += cast("list[Any]", one)


# ---- the registry --------------------------------------------------------------------------------


def _login(client: Any, repository: str) -> Login | None:
    """The owner's ``docker login`` there, as a pull would send it."""
    registry = registry_of(repository)
    known = cast(
        "dict[str, str]",
        client.api._auth_configs.resolve_authconfig(None if registry == "docker.io" else registry)
        or {},
    )
    name, word = known.get("username"), known.get("password")
    return Login(name, word) if name and word else None


class _Registry:
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

    def __enter__(self) -> _Registry:
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
