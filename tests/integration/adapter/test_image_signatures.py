"""Only images that a key of the owner's signed, as cosign writes it: a real Docker daemon, a registry
that says what it likes, and openssl for another hand that signs.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from adapter.core.workload import ImageRefused
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.docker.signed import ImageUnsigned, KeyUnusable
from tests.integration.adapter.test_image_daemon import _digest, image_of, registry

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
TYPE: Final = "cosign container image signature"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def new_key(folder: Path, name: str, curve: str = "prime256v1") -> tuple[Path, Path]:
    """(private, public), as openssl makes them."""
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    openssl("ecparam", "-genkey", "-name", curve, "-noout", "-out", str(private))
    openssl("ec", "-in", str(private), "-pubout", "-out", str(public))
    return private, public


def openssl(*words: str, data: bytes = b"") -> bytes:
    return subprocess.run(("openssl", *words), input=data, check=True, capture_output=True).stdout


def payload(digest: str, what: str = TYPE) -> bytes:
    """The bytes that cosign signs."""
    critical: dict[str, Any] = {
        "identity": {"docker-reference": "anything, it is not looked at"},
        "image": {"docker-manifest-digest": digest}, "type": what,
    }  # fmt: skip
    return json.dumps({"critical": critical, "optional": None}).encode()


def beside(digest: str, *signed: tuple[Path, bytes, bytes]) -> dict[str, bytes]:
    """What lies beside the image *digest*: of each the key that signs, what it signs, and what is
    said to be signed.
    """
    blobs: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    for private, data, said in signed:
        signature = openssl("dgst", "-sha256", "-sign", str(private), data=data)
        blobs[_digest(said)] = said
        rows.append({
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": _digest(said), "size": len(said),
            "annotations": {"dev.cosignproject.cosign/signature": base64.b64encode(signature).decode()},
        })  # fmt: skip
    kind = "application/vnd.oci.image.manifest.v1+json"
    document = {"schemaVersion": 2, "mediaType": kind, "config": {}, "layers": rows}
    return {**blobs, f"{digest.replace(':', '-')}.sig": json.dumps(document).encode()}


def host(folder: Path, place: str, *keys: Path) -> DockerRuntime:
    return DockerRuntime(DockerConfig(folder, "a", allow=(f"{place}/",), signed_by=keys))


async def test_an_image_runs_only_with_a_signature_of_a_trusted_key(tmp_path: Path) -> None:
    mine, public = new_key(tmp_path, "mine")
    theirs, _ = new_key(tmp_path, "theirs")
    _, second = new_key(tmp_path, "second")
    digest, blobs = image_of(1)
    other = f"sha256:{'ab' * 32}"
    right = payload(digest)
    lies = {
        "nothing beside it": {},
        "another key": beside(digest, (theirs, right, right)),
        "a signature of another image": beside(digest, (mine, payload(other), payload(other))),
        "a signature of something else": beside(
            digest, (mine, payload(digest, "a wish"), payload(digest, "a wish"))
        ),
        "a payload that was not signed": beside(digest, (mine, payload(other), right)),
        "no JSON in it": beside(digest, (mine, b"{", b"{")),
        "no list": {f"{digest.replace(':', '-')}.sig": b'{"layers": {"0": 1}}'},
        "no object": {f"{digest.replace(':', '-')}.sig": b"[[[]]]"},
    }
    for which, told in lies.items():
        with registry({**blobs, **told}) as hub:
            with pytest.raises(ImageUnsigned):
                print(which)  # shown where it fails
                await host(tmp_path / "a", hub.host, public, second).prepare(
                    f"{hub.host}/x@{digest}", lambda _p: None
                )

    # A registry that hands out another payload than it names proves nothing, and is no answer.
    swapped = beside(digest, (mine, right, right))
    swapped[_digest(right)] = payload(other)
    with registry({**blobs, **swapped}) as hub, pytest.raises(ImageRefused):
        await host(tmp_path / "b", hub.host, public).prepare(
            f"{hub.host}/x@{digest}", lambda _p: None
        )

    # Somebody else's beside ours hinders nobody; and it is asked for once.
    good = beside(digest, (theirs, right, right), (mine, right, right))
    with registry({**blobs, **good}) as hub:
        runtime, name = host(tmp_path / "c", hub.host, second, public), f"{hub.host}/x@{digest}"
        assert await runtime.prepare(name, lambda _p: None)
        asked = len(hub.asked)
        assert await runtime.prepare(name, lambda _p: None) and len(hub.asked) == asked
        # It is on the host now, and still nobody's who trusts another key.
        with pytest.raises(ImageUnsigned):
            await host(tmp_path / "d", hub.host, second).prepare(name, lambda _p: None)
        assert await host(tmp_path / "e", hub.host).prepare(name, lambda _p: None)
        runtime._docker().images.remove(name)  # pyright: ignore[reportPrivateUsage] -- what the host has


def test_what_is_no_key_of_cosigns_is_refused_at_the_start(tmp_path: Path) -> None:
    _, larger = new_key(tmp_path, "larger", "secp384r1")
    private, _ = new_key(tmp_path, "mine")
    for file in (tmp_path / "none.pub", larger, private):
        with pytest.raises(KeyUnusable):
            host(tmp_path, "x", file)
