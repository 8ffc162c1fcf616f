"""What serves a packed model, where its framework has one way to: the command of its image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from marketplace.client.images.packing import ModelRefused

PORT: Final = 8000
_LISTENS: Final = ("--host", "0.0.0.0", "--port", str(PORT))
_PROGRAM: Final = "serve.py"


def _llama(folder: Path) -> tuple[str, ...]:
    """llama.cpp's server (tools/server/README.md); of split weights the first part names all."""
    found = sorted(one.name for one in folder.glob("*.gguf"))
    first = [name for name in found if "-of-" not in name or "-00001-of-" in name]
    if len(first) != 1:
        raise ModelRefused(f"{folder} has {len(first)} models in GGUF, and one is served")
    return ("llama-server", "-m", first[0], *_LISTENS)


def _vllm(folder: Path) -> tuple[str, ...]:
    """vLLM's, of a folder as Hugging Face's hub has it."""
    if not (folder / "config.json").is_file():
        raise ModelRefused(f"{folder} has no config.json: that is no folder of Hugging Face's")
    return ("vllm", "serve", "/model", *_LISTENS)


def _python(folder: Path) -> tuple[str, ...]:
    """PyTorch, ONNX Runtime and any other library: a program beside the weights."""
    if not (folder / _PROGRAM).is_file():
        raise ModelRefused(f"{folder} has no {_PROGRAM}: a program that listens at {PORT}")
    return ("python3", _PROGRAM)


_ENTRIES: Final[dict[str, Callable[[Path], tuple[str, ...]]]] = {
    "llama.cpp": _llama, "python": _python, "vllm": _vllm,
}  # fmt: skip
ENTRIES: Final = tuple(_ENTRIES)


def entry(name: str, folder: Path) -> tuple[str, ...]:
    """The command that serves *folder*, run in ``/model``, at :data:`PORT`. ModelRefused where the
    folder is not one of that framework's.
    """
    if name not in _ENTRIES:
        raise ModelRefused(f"no entry is called {name}: there are {', '.join(ENTRIES)}")
    return _ENTRIES[name](folder)
