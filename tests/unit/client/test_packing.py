"""A folder as layers: by content alone, each large file one of its own."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from marketplace.client.images.packing import (
    LARGE,
    MOST_LAYERS,
    ModelChanged,
    ModelRefused,
    layers_of,
)


def made(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


FILES = {
    "b.bin": b"b" * (LARGE + 1), "a/a.bin": b"a" * LARGE, "config.json": b"{}", "a/empty": b"",
}  # fmt: skip


def test_a_layer_is_what_tar_reads(tmp_path: Path) -> None:
    layers = layers_of(made(tmp_path, FILES))
    assert [[one.name for one in layer.files] for layer in layers] == [
        ["a/empty", "config.json"], ["a/a.bin"], ["b.bin"],
    ]  # fmt: skip
    read: dict[str, bytes] = {}
    for layer in layers:
        raw = b"".join(layer.parts())
        assert len(raw) == layer.size
        assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == layer.digest
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")
                content = archive.extractfile(member)
                assert content is not None
                read[member.name] = content.read()
    assert read == {f"model/{name}": data for name, data in FILES.items()}


def test_the_same_files_are_the_same_layers_whenever_and_wherever_they_lie(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one", FILES), made(tmp_path / "two", FILES)
    os.utime(two / "b.bin", (1, 1))
    assert [layer.digest for layer in layers_of(one)] == [layer.digest for layer in layers_of(two)]


def test_a_change_changes_one_layer(tmp_path: Path) -> None:
    folder = made(tmp_path, {f"{n:02}.bin": bytes([n]) * LARGE for n in range(20)})
    before = layers_of(folder)
    (folder / "07.bin").write_bytes(b"x" * LARGE)
    (folder / "07b.bin").write_bytes(b"y" * LARGE)
    after = layers_of(folder)
    assert len({layer.digest for layer in after} - {layer.digest for layer in before}) == 2


def test_an_executable_stays_one_and_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    outside = tmp_path / "blob"
    outside.write_bytes(b"weights")
    folder = made(tmp_path / "model", {"run": b"#!/bin/sh\n"})
    (folder / "run").chmod(0o755)
    (folder / "weights").symlink_to(outside)
    (layer,) = layers_of(folder)
    with tarfile.open(fileobj=io.BytesIO(b"".join(layer.parts()))) as archive:
        assert archive.getmember("model/run").mode == 0o755
        linked = archive.extractfile("model/weights")
        assert linked is not None and linked.read() == b"weights"


def test_there_are_never_more_layers_than_docker_runs(tmp_path: Path) -> None:
    count = MOST_LAYERS + 20
    folder = made(tmp_path, {f"{n:03}.bin": bytes([n % 251]) * (LARGE + n) for n in range(count)})
    layers = layers_of(folder)
    assert len(layers) == MOST_LAYERS
    assert sum(len(layer.files) for layer in layers) == count


def test_a_name_of_any_length_and_script_is_kept(tmp_path: Path) -> None:
    name = f"{'long' * 40}/ünïcode-{'x' * 80}.txt"
    (layer,) = layers_of(made(tmp_path, {name: b"1"}))
    with tarfile.open(fileobj=io.BytesIO(b"".join(layer.parts()))) as archive:
        assert archive.getnames() == [f"model/{name}"]


def test_a_file_that_grows_or_shrinks_meanwhile_is_noticed(tmp_path: Path) -> None:
    folder = made(tmp_path, {"a": b"123"})
    for data in (b"1234", b"12"):
        (layer,) = layers_of(made(tmp_path, {"a": b"123"}))
        made(tmp_path, {"a": data})
        with pytest.raises(ModelChanged):
            list(layer.parts())
    assert folder.is_dir()


def test_what_is_no_models_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    made(tmp_path / "broken", {"a": b""})
    (tmp_path / "broken" / "gone").symlink_to(tmp_path / "nowhere")
    for folder in (tmp_path, tmp_path / "empty", tmp_path / "none", tmp_path / "broken"):
        with pytest.raises(ModelRefused):
            layers_of(folder)
