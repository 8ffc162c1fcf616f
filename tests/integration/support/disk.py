"""A disk of a test's own, on which nobody else writes: a tmpfs of a given size."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.requires import need_mount


@contextmanager
def small(place: Path, kilobytes: int) -> Generator[Path]:
    """A tmpfs of that size."""
    need_mount()
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=700", "tmpfs", str(place)],
        check=True,
    )
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    path = folder / "other"
    with path.open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path
