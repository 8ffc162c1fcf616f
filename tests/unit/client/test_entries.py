"""A packed model is served by what its framework has for it, and by nothing that it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from marketplace.client.images.entries import ENTRIES, PORT, entry
from marketplace.client.images.packing import ModelRefused

AT = ("--host", "0.0.0.0", "--port", str(PORT))


@pytest.mark.parametrize(
    ("name", "files", "command"),
    [
        ("llama.cpp", ("a.gguf", "notes.txt"), ("llama-server", "-m", "a.gguf", *AT)),
        ("llama.cpp", ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf"),
         ("llama-server", "-m", "a-00001-of-00002.gguf", *AT)),
        ("llama.cpp", ("a.gguf", "b.gguf"), None),
        ("llama.cpp", ("model.safetensors",), None),
        ("vllm", ("config.json", "model.safetensors"), ("vllm", "serve", "/model", *AT)),
        ("vllm", ("model.gguf",), None),
        ("python", ("serve.py", "model.onnx"), ("python3", "serve.py")),
        ("python", ("model.onnx",), None),
        ("tensorrt", ("serve.py",), None),
    ],
)  # fmt: skip
def test_an_entry(
    name: str, files: tuple[str, ...], command: tuple[str, ...] | None, tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).touch()
    if command is None:
        with pytest.raises(ModelRefused):
            entry(name, tmp_path)
    else:
        assert entry(name, tmp_path) == command


def test_each_is_named_where_it_is_asked_for() -> None:
    page = (Path(__file__).parents[3] / "docs" / "hub.md").read_text("utf-8")
    assert all(f"| `{one}` |" in page for one in ENTRIES)
