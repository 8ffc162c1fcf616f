"""A model as an image in the market's registry: a base image, the layers of a folder, a command.

Sent by the registry's own interface (Distribution, HTTP API v2): no Docker is needed here. Layers
of the base are taken over where they lie, and only what the registry lacks is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urljoin

import httpx

from marketplace.client.images.packing import ROOT, Layer
from marketplace.client.images.registry import NoImage, NotPushed, RegistryFault
from marketplace.domain.work.image_names import Reference, is_loopback

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ACCEPT: Final = ", ".join(
    (_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json", *_INDEXES)
)
_TAR: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_DOCKERS: Final = "application/vnd.docker.image.rootfs.diff.tar"
_MOST: Final = 4 << 20
_DEADLINE: Final = httpx.Timeout(600, connect=10)

Token = Callable[..., str]


@dataclass(frozen=True)
class PackedModel:
    """The image *name* at *digest*; *sent* of its *bytes* were not there yet."""

    name: str
    digest: str
    bytes: int
    sent: int


def pack(
    to: Reference, base: Reference, layers: Sequence[Layer], command: Sequence[str], token: Token
) -> PackedModel:
    """Push *base*, *layers* and *command* as *to*; both are in one registry; blocks. *token*: of
    the market, for scopes. An empty *command* leaves the base's. NoImage, NotPushed,
    ModelChanged, RegistryFault.
    """
    scheme = "http" if is_loopback(to.host) else "https"
    try:
        with httpx.Client(base_url=f"{scheme}://{to.host}", timeout=_DEADLINE) as client:
            return _Packing(client, to, base, token).run(layers, command)
    except httpx.HTTPError as error:
        raise RegistryFault(f"{to.host}: {str(error) or type(error).__name__}") from error


class _Packing:
    def __init__(self, client: httpx.Client, to: Reference, base: Reference, token: Token) -> None:
        self._client, self._to, self._base, self._token = client, to, base, token
        self._sent = 0

    def run(self, layers: Sequence[Layer], command: Sequence[str]) -> PackedModel:
        manifest = self._manifest()
        config = json.loads(self._read(f"blobs/{manifest['config']['digest']}"))
        below = cast("list[dict[str, Any]]", manifest["layers"])
        for one in below:
            self._take_over(str(one["digest"]))
        for layer in layers:
            self._send(layer.digest, layer.size, layer.parts)
        raw = json.dumps(_config(config, layers, command), sort_keys=True).encode()
        self._send(_digest(raw), len(raw), lambda: iter((raw,)))
        rows = [
            *({**one, "mediaType": _oci(str(one["mediaType"]))} for one in below),
            *({"mediaType": _LAYER, "digest": one.digest, "size": one.size} for one in layers),
        ]
        made = {
            "schemaVersion": 2, "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": _digest(raw), "size": len(raw)},
            "layers": rows,
        }  # fmt: skip
        document = json.dumps(made, sort_keys=True).encode()
        answer = self._client.put(
            f"/v2/{self._to.repository}/manifests/{self._to.tag}", content=document,
            headers={**self._push(), "Content-Type": _MANIFEST},
        )  # fmt: skip
        _taken(answer, 201)
        size = len(document) + len(raw) + sum(int(one["size"]) for one in rows)
        name = f"{self._to.host}/{self._to.repository}:{self._to.tag}"
        return PackedModel(name, _digest(document), size, self._sent)

    def _manifest(self) -> dict[str, Any]:
        """The base's for Linux on this kind of processor that all offers here have."""
        found = json.loads(self._read(f"manifests/{self._base.digest or self._base.tag}"))
        if "manifests" not in found:
            return found
        for one in found["manifests"]:
            if one.get("platform", {}).get("os") == "linux" and (
                one["platform"].get("architecture") == "amd64"
            ):
                return json.loads(self._read(f"manifests/{one['digest']}"))
        raise NoImage(f"{self._base.repository} has no image for linux/amd64")

    def _read(self, rest: str) -> bytes:
        scope = f"repository:{self._base.repository}:pull"
        head = {"Authorization": f"Bearer {self._token(scope)}", "Accept": _ACCEPT}
        with self._client.stream(
            "GET", f"/v2/{self._base.repository}/{rest}", headers=head
        ) as answer:
            if answer.status_code in (401, 404):
                raise NoImage(f"there is no {self._base.repository}:{self._base.tag} to build on")
            if answer.status_code != 200:
                raise RegistryFault(f"{self._to.host} answered {answer.status_code}")
            body = bytearray()
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MOST:
                    raise RegistryFault(f"{self._base.repository}: its manifest is too long")
        return bytes(body)

    def _push(self, *more: str) -> dict[str, str]:
        mine = f"repository:{self._to.repository}:pull,push"
        return {"Authorization": f"Bearer {self._token(mine, *more)}"}

    def _there(self, digest: str) -> bool:
        path = f"/v2/{self._to.repository}/blobs/{digest}"
        return self._client.head(path, headers=self._push()).status_code == 200

    def _take_over(self, digest: str) -> None:
        if self._there(digest):
            return
        head = self._push(f"repository:{self._base.repository}:pull")
        query = {"mount": digest, "from": self._base.repository}
        path = f"/v2/{self._to.repository}/blobs/uploads/"
        _taken(self._client.post(path, params=query, headers=head), 201)

    def _send(self, digest: str, size: int, parts: Callable[[], Iterator[bytes]]) -> None:
        if self._there(digest):
            return
        path = f"/v2/{self._to.repository}/blobs/uploads/"
        begun = self._client.post(path, headers=self._push())
        _taken(begun, 202)
        where = httpx.URL(urljoin(path, begun.headers["location"])).copy_add_param("digest", digest)
        head = {
            **self._push(), "Content-Length": str(size),
            "Content-Type": "application/octet-stream",
        }  # fmt: skip
        _taken(self._client.put(where, content=parts(), headers=head), 201)
        self._sent += size


def _config(base: Any, layers: Sequence[Layer], command: Sequence[str]) -> dict[str, Any]:
    """The image's, as OCI's image spec has it (config.md): the base's, and what was added."""
    made = dict(cast("dict[str, Any]", base))
    unpacked = cast("dict[str, list[str]]", made.get("rootfs") or {})
    below = unpacked.get("diff_ids")
    if not below:
        raise NoImage("what is to be built on is no image of a container")
    made["rootfs"] = {"type": "layers", "diff_ids": [*below, *(one.digest for one in layers)]}
    added = [{"created_by": f"tally model pack: {_content(one)}"} for one in layers]
    made["history"] = [*made.get("history", []), *added]
    run = dict(cast("dict[str, Any]", made.get("config") or {}))
    if command:
        # A provider starts every workload in /workspace, whatever an image says.
        run["Cmd"] = ["/bin/sh", "-c", f'cd /{ROOT} && exec "$@"', "sh", *command]
        run.pop("Entrypoint", None)
    made["config"] = run
    return made


def _content(layer: Layer) -> str:
    first = layer.files[0].name
    return first if len(layer.files) == 1 else f"{len(layer.files)} files"


def _oci(kind: str) -> str:
    return kind.replace(_DOCKERS + ".gzip", _TAR).replace(_DOCKERS, _LAYER)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _taken(answer: httpx.Response, status: int) -> None:
    if answer.status_code == status:
        return
    try:
        why = str(answer.json()["errors"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        why = f"status {answer.status_code}"
    raise NotPushed(why[:300])
