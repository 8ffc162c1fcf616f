"""A job's image and the real Docker daemon: it is sent nowhere inward, and takes no more than it
may.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from adapter.core.workload import ImageRefused
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.manifest import ImageForeign
from adapter.runtime.docker.runtime import DockerRuntime
from tests.requires import need_docker

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
SECRET = b"INTERNAL-SECRET-of-the-host"
TYPE = "application/vnd.docker.distribution.manifest.v2+json"
LIST = "application/vnd.docker.distribution.manifest.list.v2+json"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Registry(ThreadingHTTPServer):
    """A registry of an attacker's: *blobs* by digest; without any it sends the daemon on, to
    /inward.
    """

    def __init__(self, blobs: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.blobs = blobs
        self.asked: list[str] = []
        self.token = ""  # asked for, where there is one

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Registry  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path.startswith("/inward"):
            self._say(404, SECRET, Content_Type="text/plain")
        elif self.path.startswith("/token"):
            self._say(200, json.dumps({"token": self.server.token}).encode())
        elif self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            realm = f'Bearer realm="http://{self.server.host}/token",service="x"'
            self._say(401, b"", WWW_Authenticate=realm)
        elif self.path == "/v2/" and self.server.blobs:
            self._say(200, b"{}")
        elif self.server.blobs:
            digest = self.path.rpartition("/")[2]
            if digest not in self.server.blobs:
                self._say(404, b"{}")
                return
            kind = "application/octet-stream"
            if "/manifests/" in self.path:
                kind = LIST if LIST.encode() in self.server.blobs[digest] else TYPE
            self._say(
                200, self.server.blobs[digest], Content_Type=kind, Docker_Content_Digest=digest
            )
        else:
            realm = f'Bearer realm="http://{self.server.host}/inward",service="x"'
            self._say(401, b"", WWW_Authenticate=realm)

    do_HEAD = do_GET


@contextmanager
def registry(blobs: dict[str, bytes]) -> Generator[Registry]:
    need_docker()
    server = Registry(blobs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


Bend = Callable[[dict[str, Any]], Any]


def image_of(mib: int, bend: Bend = lambda _parts: None) -> tuple[str, dict[str, bytes]]:
    """An image of one layer with *mib* MiB of zeros, some kB when packed: its digest, and its
    blobs. *bend* changes its manifest, or answers another text for it.
    """
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("zeros")
        entry.size = mib << 20
        archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    layer = gzip.compress(tar.getvalue(), 1, mtime=0)
    rootfs = {"type": "layers", "diff_ids": [_digest(tar.getvalue())]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()
    parts: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": TYPE,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config), "digest": _digest(config),
        },
        "layers": [{
            "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
            "size": len(layer), "digest": _digest(layer),
        }],
    }  # fmt: skip
    manifest = (bend(parts) or json.dumps(parts)).encode()
    return _digest(manifest), {_digest(raw): raw for raw in (manifest, config, layer)}


async def test_a_tenant_cannot_send_the_daemon_to_an_address(tmp_path: Path) -> None:
    with registry({}) as evil:
        runtime = DockerRuntime(DockerConfig(tmp_path, "a"))
        with pytest.raises(ImageRefused, match="public registries"):
            await runtime.prepare(f"{evil.host}/x@sha256:{'ab' * 32}", lambda _p: None)
        assert evil.asked == []


async def test_what_the_daemon_is_answered_stays_on_the_host(tmp_path: Path) -> None:
    """Also from a registry that the owner named: it may be led inward, its tenant learns nothing of
    it.
    """
    with registry({}) as evil:
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{evil.host}/*",)))
        with pytest.raises(ImageRefused) as no:
            await runtime.prepare(f"{evil.host}/x@sha256:{'ab' * 32}", lambda _p: None)
        assert any(path.startswith("/inward") for path in evil.asked), "the daemon went there"
        assert SECRET.decode() not in str(no.value) and "inward" not in str(no.value)


async def test_an_image_that_unpacks_beyond_the_limit_is_refused_and_gone(tmp_path: Path) -> None:
    digest, blobs = image_of(96)
    with registry(blobs) as hub:
        name = f"{hub.host}/bomb@{digest}"
        small = DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",), image_mib=32)
        with pytest.raises(ImageRefused, match="32 MiB"):
            await DockerRuntime(small).prepare(name, lambda _p: None)
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
        client = runtime._docker()  # pyright: ignore[reportPrivateUsage] -- what the host has
        assert not [one for one in client.images.list() if digest in str(one.attrs)]
        assert await runtime.prepare(name, lambda _p: None)
        client.images.remove(name)


INWARD = ["http://169.254.169.254/latest/meta-data"]
FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"


def _layer(**more: Any) -> Bend:
    return lambda parts: parts["layers"][0].update(more)


def _config(**more: Any) -> Bend:
    return lambda parts: parts["config"].update(more)


def _both(parts: dict[str, Any]) -> None:
    parts["manifests"] = []


def _twice(parts: dict[str, Any]) -> str:
    """The layers again, without the URLs: Go's decoder keeps what the first ones had."""
    bare = json.dumps(parts["layers"])
    parts["layers"][0]["urls"] = INWARD
    return json.dumps(parts)[:-1] + f', "layers": {bare}}}'


@pytest.mark.parametrize(
    "bend",
    [
        _layer(urls=INWARD),
        _config(urls=INWARD),
        _layer(URLs=INWARD),
        _layer(**{"url\u017f": INWARD}),
        _layer(mediaType=FOREIGN),
        _layer(mediaType="application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"),
        _layer(mediaType=TYPE),
        _both,
        _twice,
    ],
    ids=["layer", "config", "capitals", "long s", "foreign", "undistributable", "manifest", "both", "twice"],
)  # fmt: skip
async def test_an_image_with_a_part_elsewhere_is_never_asked_for(
    tmp_path: Path, bend: Bend
) -> None:
    """Its author, not its registry, would lead the daemon to any URL."""
    digest, blobs = image_of(1, bend)
    with registry(blobs) as hub:
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
        with pytest.raises(ImageForeign) as no:
            await runtime.prepare(f"{hub.host}/led@{digest}", lambda _p: None)
        assert no.value.code == "IMAGE_FOREIGN" and no.value.remedy
        assert set(hub.asked) == {f"/v2/led/manifests/{digest}"}, "only its manifest was read"


def _index(child: str, blobs: dict[str, bytes], *others: dict[str, Any]) -> tuple[str, str]:
    """An index with *child* for this platform, after *others*: its digest, and its text."""
    here = {"mediaType": TYPE, "digest": child, "size": len(blobs[child])}
    rows = [*others, {**here, "platform": {"os": "linux", "architecture": "amd64"}}]
    text = json.dumps({"schemaVersion": 2, "mediaType": LIST, "manifests": rows})
    return _digest(text.encode()), text


async def test_an_index_is_followed_to_what_this_host_would_run(tmp_path: Path) -> None:
    led, parts = image_of(1, _layer(urls=INWARD))
    fine, more = image_of(2)
    windows = {"mediaType": TYPE, "digest": led, "size": 1, "platform": {"os": "windows", "architecture": "amd64"}}  # fmt: skip
    blobs = parts | more
    for name, row in (
        ("led", {**windows, "platform": {"os": "linux", "architecture": "x86-64"}}),
        ("hidden", {k: v for k, v in windows.items() if k != "platform"}),
    ):
        digest, text = _index(fine, blobs, row)
        with registry(blobs | {digest: text.encode()}) as hub:
            runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
            with pytest.raises(ImageForeign):
                await runtime.prepare(f"{hub.host}/{name}@{digest}", lambda _p: None)
    digest, text = _index(fine, blobs, windows)
    with registry(blobs | {digest: text.encode()}) as hub:
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
        name = f"{hub.host}/fine@{digest}"
        assert await runtime.prepare(name, lambda _p: None)
        runtime._docker().images.remove(name)  # pyright: ignore[reportPrivateUsage]


async def test_a_manifest_that_is_not_its_digest_is_not_had(tmp_path: Path) -> None:
    digest, blobs = image_of(1)
    with registry(blobs | {digest: b"{}"}) as hub:
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
        with pytest.raises(ImageRefused, match="its registry does not give it"):
            await runtime.prepare(f"{hub.host}/x@{digest}", lambda _p: None)


async def test_an_image_is_read_and_pulled_with_a_token_that_its_registry_gives(
    tmp_path: Path,
) -> None:
    digest, blobs = image_of(1)
    with registry(blobs) as hub:
        hub.token = "anonymous-7"
        runtime = DockerRuntime(DockerConfig(tmp_path, "a", allow=(f"{hub.host}/",)))
        name = f"{hub.host}/acme/x@{digest}"
        assert await runtime.prepare(name, lambda _p: None)
        runtime._docker().images.remove(name)  # pyright: ignore[reportPrivateUsage]
