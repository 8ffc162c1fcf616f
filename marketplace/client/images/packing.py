"""A folder as layers of an image: each large file one of its own, by its content alone.

A layer is a tar archive that says nothing but names, sizes, whether a file is executable, and
bytes: no times and no owners. So a file that did not change is the same layer in the next version,
whoever packs it, and is not sent again. They are not compressed: weights do not get smaller by it.
"""

from __future__ import annotations

import hashlib
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.domain.errors import Refusal

ROOT: Final = "model"
"""The folder of the image in which the files lie."""
LARGE: Final = 1 << 20
MOST_LAYERS: Final = 100
"""Of a model's own: Docker runs images of at most 127, and those of the base count."""
_PART: Final = 1 << 20
_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)


class ModelRefused(Refusal):
    """What is to be packed is no model's folder."""

    code = "MODEL_REFUSED"
    remedy = "name a folder of plain files, such as the one that a model's weights are saved in"


class ModelChanged(Refusal):
    """A file is not what it was when its layer was named."""

    code = "MODEL_CHANGED"
    remedy = "pack it again, when nothing writes to the folder any more"


@dataclass(frozen=True)
class Packed:
    """One file: *name* below the folder, *size* in bytes, *path* where it lies."""

    name: str
    size: int
    executable: bool
    path: Path


@dataclass(frozen=True)
class Layer:
    """*files* as an archive of *size* bytes, whose SHA-256 is *digest*."""

    files: tuple[Packed, ...]
    digest: str
    size: int

    def parts(self) -> Iterator[bytes]:
        """The archive's bytes. ModelChanged."""
        return _archive(self.files)


def layers_of(folder: Path) -> list[Layer]:
    """The layers of *folder*; blocks while it reads all of it. ModelRefused, ModelChanged."""
    files = sorted(_files(folder), key=lambda one: one.name)
    if not files:
        raise ModelRefused(f"{folder} has no files")
    by_size = sorted(files, key=lambda one: (-one.size, one.name))
    large = [one for one in by_size if one.size >= LARGE][: MOST_LAYERS - 1]
    small = tuple(one for one in files if one not in set(large))
    groups = [*((small,) if small else ()), *((one,) for one in files if one in set(large))]
    return [_named(group) for group in groups]


def _named(files: tuple[Packed, ...]) -> Layer:
    hasher, size = hashlib.sha256(), 0
    for part in _archive(files):
        hasher.update(part)
        size += len(part)
    return Layer(files, f"sha256:{hasher.hexdigest()}", size)


def _files(folder: Path) -> Iterator[Packed]:
    if not folder.is_dir():
        raise ModelRefused(f"{folder} is no folder")
    for path in folder.rglob("*"):
        try:
            found = path.stat()  # of what a link leads to: caches of weights are full of them
        except OSError as error:
            raise ModelRefused(f"{path} cannot be read: {error}") from error
        if stat.S_ISDIR(found.st_mode):
            continue
        if not stat.S_ISREG(found.st_mode):
            raise ModelRefused(f"{path} is no plain file")
        name = path.relative_to(folder).as_posix()
        yield Packed(name, found.st_size, bool(found.st_mode & stat.S_IXUSR), path)


def _archive(files: tuple[Packed, ...]) -> Iterator[bytes]:
    for one in files:
        head = tarfile.TarInfo(f"{ROOT}/{one.name}")
        head.size, head.mode = one.size, 0o755 if one.executable else 0o644
        yield head.tobuf(tarfile.PAX_FORMAT)
        yield from _content(one)
        yield bytes(-one.size % _BLOCK)
    yield _END


def _content(one: Packed) -> Iterator[bytes]:
    left = one.size
    with one.path.open("rb") as file:
        while part := file.read(_PART):
            left -= len(part)
            if left < 0:
                break
            yield part
    if left:
        raise ModelChanged(f"{one.path} has another size than before")
