"""Reads what an image's digest names before a daemon is asked for it: the index and its manifests.

A descriptor may carry ``urls`` (OCI image spec, descriptor.md), and a daemon with containerd's
image store fetches from there first (containerd, core/remotes/docker/fetcher.go): so the author of
an image, not its registry, would lead the host's daemon to any address. Every document is held
against its own digest, so what was read here is what the daemon reads; how it came does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import httpx
import structlog

from adapter.runtime.docker.market_images import Login
from adapter.runtime.docker.pull import not_had
from adapter.runtime.docker.registry import KINDS, ImageForeign, Registry, owners_login
from marketplace.domain.work.manifest import MOST_DOCUMENT

_log = structlog.get_logger("adapter.images")
MOST_DOCUMENTS: Final = 32  # of one image, for one platform
_MACHINES: Final = {"x86_64": {"amd64", "386"}, "aarch64": {"arm64", "arm"}}
_ELSEWHERE: Final = frozenset(
    {"386", "amd64", "arm", "arm64", "ppc64le", "s390x", "riscv64", "mips64le", "loong64"}
)
_UNKNOWN: Final = (
    "unknown"  # an attestation's platform; its manifest names the one that it is about
)
_ABOUT: Final = "vnd.docker.reference.digest"


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
        with Registry(info, repository, login or owners_login(client, repository)) as registry:
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
