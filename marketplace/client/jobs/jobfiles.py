"""Job files from disk, and the files that a job takes along."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.domain.errors import Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import MAX_BYTES, JobFile, parse
from marketplace.domain.work.parts import FileIn
from marketplace.jobtext import tree

MAX_FILE_BYTES: Final = 1 << 30


class FileRefused(Refusal):
    """A file that the job names cannot go along."""

    code = "JOB_FILE_UNREADABLE"
    remedy = "check the path: src is relative to the job file"


@dataclass(frozen=True)
class LoadedJob:
    """A job ready to be posted; *blobs* maps each file's sha256 to where it lies here."""

    spec: JobSpec
    blobs: Mapping[str, Path]


def load(path: Path | str) -> LoadedJob:
    """The job of a file, with every file it names hashed. A Refusal says what is wrong and
    where.
    """
    where = Path(path)
    try:
        with where.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileRefused(f"cannot read {where}: {error.strerror}") from error
    return gather(loads(data, where.name), where.parent)


def loads(data: bytes | str, name: str = "job") -> JobFile:
    """The job of YAML or JSON text; :class:`JobFileRefused` lists every problem with its line."""
    return parse(tree(data, name), name)


def gather(job: JobFile, folder: Path) -> LoadedJob:
    """*job* with its files read from *folder* and hashed; :class:`FileRefused`."""
    files: list[FileIn] = []
    blobs: dict[str, Path] = {}
    for source in job.sources:
        path = folder / os.path.expanduser(source.src)
        sha256, size = _hashed(path, source.line)
        files.append(FileIn(source.dst, sha256, size, source.mode))
        blobs[sha256] = path
    return LoadedJob(job.spec(files), blobs)


def _hashed(path: Path, line: int) -> tuple[str, int]:
    try:
        if not path.is_file():
            raise FileRefused(f"line {line}: {path} is not a file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise FileRefused(f"line {line}: {path} has more than {MAX_FILE_BYTES} bytes")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), size
    except (OSError, ValueError) as error:
        raise FileRefused(f"line {line}: cannot read {str(path)[:200]!r}: {error}") from error
