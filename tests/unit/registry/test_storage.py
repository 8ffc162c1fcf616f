"""What lies in Distribution's folder, read as it writes it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from marketplace.registry.storage import ENTRY, Storage


class Folder:
    """Writes what Distribution writes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def blob(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self.root / "blobs" / "sha256" / name[:2] / name / "data"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"sha256:{name}"

    def link(self, repository: str, below: str, digest: str) -> None:
        path = self.root / "repositories" / repository / below / digest.replace(":", "/") / "link"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(digest)

    def layer(self, repository: str, data: bytes) -> dict[str, Any]:
        digest = self.blob(data)
        self.link(repository, "_layers", digest)
        return {"digest": digest, "size": len(data)}

    def manifest(self, repository: str, document: dict[str, Any], *tags: str) -> str:
        digest = self.blob(json.dumps(document).encode())
        self.link(repository, "_manifests/revisions", digest)
        for tag in tags:
            at = self.root / "repositories" / repository / "_manifests" / "tags" / tag / "current"
            at.mkdir(parents=True)
            (at / "link").write_text(digest)
        return digest


def image(folder: Folder, repository: str, *layers: bytes, tags: tuple[str, ...] = ()) -> str:
    parts = [folder.layer(repository, one) for one in layers]
    config = folder.layer(repository, b"{}" + repr(layers).encode())
    return folder.manifest(repository, {"config": config, "layers": parts}, *tags)


def test_images_have_their_tags_and_sizes(tmp_path: Path) -> None:
    folder, storage = Folder(tmp_path), Storage(tmp_path)
    digest = image(folder, "abc/train", b"x" * 1000, b"y" * 10, tags=("v1", "latest"))
    image(folder, "abd/other", b"z")
    found = storage.repositories("abc")
    assert [one.name for one in found] == ["abc/train"]
    (stored,) = found[0].images
    assert (stored.digest, stored.tags, stored.layers) == (digest, ["latest", "v1"], 3)
    assert stored.bytes > 1010
    # two layers, a configuration, a manifest, two tags and the repository
    assert storage.used("abc") == stored.bytes + 7 * ENTRY
    assert storage.repositories("ab") == [] and storage.used("ab") == 0


def test_an_index_stands_for_its_images(tmp_path: Path) -> None:
    folder, storage = Folder(tmp_path), Storage(tmp_path)
    children = [image(folder, "abc/train", data) for data in (b"a" * 100, b"b" * 200)]
    rows = [{"digest": one} for one in children]
    index = folder.manifest("abc/train", {"manifests": rows}, "v1")
    (stored,) = storage.repositories("abc")[0].images
    assert stored.digest == index
    assert storage.used("abc") == stored.bytes + (2 * 3 + 3) * ENTRY


def test_each_blob_counts_once_and_uploads_count(tmp_path: Path) -> None:
    folder, storage = Folder(tmp_path), Storage(tmp_path)
    for name in ("abc/one", "abc/two"):
        folder.layer(name, b"x" * 1000)
    assert storage.used("abc") == 1000 + 3 * ENTRY
    upload = tmp_path / "repositories" / "abc" / "one" / "_uploads" / "u" / "data"
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"1" * 500)
    assert storage.used("abc") == 1500 + 4 * ENTRY
    assert storage.repositories("abc") == [], "nothing of it is an image yet"


def test_what_is_pushed_as_a_manifest_and_is_none_is_listed_by_its_size(tmp_path: Path) -> None:
    folder, storage = Folder(tmp_path), Storage(tmp_path)
    for document in ({"layers": [{"digest": 5}, 7, None]}, {"layers": "x", "config": []}):
        folder.manifest("abc/odd", document)
    digest = folder.blob(b"[1, 2")
    folder.link("abc/odd", "_manifests/revisions", digest)
    found = storage.repositories("abc")[0].images
    assert len(found) == 3 and all(one.bytes > 0 and one.tags == [] for one in found)


def test_a_digest_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "data").write_text("x")
    folder, storage = Folder(tmp_path / "v2"), Storage(tmp_path / "v2")
    folder.manifest("abc/odd", {"layers": [{"digest": "sha256:../../../secret"}]})
    (stored,) = storage.repositories("abc")[0].images
    assert storage.used("abc") == stored.bytes + 2 * ENTRY, "only its manifest counts"


def test_a_hold_on_what_no_manifest_names_is_dropped(tmp_path: Path) -> None:
    folder, storage = Folder(tmp_path), Storage(tmp_path)
    index = [{"digest": image(folder, "abc/train", b"a" * 100)}]
    folder.manifest("abc/train", {"manifests": index}, "v1")
    kept = storage.used("abc")
    folder.layer("abc/train", b"x" * 1000)
    folder.layer("abc/gone", b"y" * 1000)
    assert storage.used("abc") == kept + 2000 + 3 * ENTRY
    storage.prune()
    assert storage.used("abc") == kept + ENTRY, "the name of the other repository"
    assert len(storage.repositories("abc")[0].images) == 1
