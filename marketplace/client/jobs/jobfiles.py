"""Job files from disk, and the files that a job takes along."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import MAX_BYTES, JobFile, JobSyntax, Node, parse, settings
from marketplace.domain.work.jobfile.service import parse_service, section_of
from marketplace.domain.work.jobfile.settings import Setting
from marketplace.domain.work.parts import FileIn
from marketplace.domain.work.pool_keys import Look
from marketplace.domain.work.service import ServiceSpec
from marketplace.jobtext import tree

MAX_FILE_BYTES: Final = 1 << 30
_PART: Final = 1 << 20


class ServiceFile(Malformed):
    """A file with a ``service`` section where one job is meant."""

    code = "SERVICE_FILE"
    remedy = "`tally service up FILE` keeps its replicas running; a job has no such section"


class FileRefused(Refusal):
    """A file that the job names cannot go along."""

    code = "JOB_FILE_UNREADABLE"
    remedy = "check the path: src is relative to the job file"


@dataclass(frozen=True)
class LoadedJob:
    """A job ready to be posted; *blobs* maps each file's sha256 to where it lies here. None that
    holds a block producer's key: :class:`PoolKeyRefused`.
    """

    spec: JobSpec
    blobs: Mapping[str, Path]

    def __post_init__(self) -> None:
        self.spec.check_pool_keys()


def load(path: Path | str, changes: Sequence[Setting] = ()) -> LoadedJob:
    """The job of a file with *changes* laid over it, and every file it names hashed. A Refusal says
    what is wrong and where.
    """
    where, root = _read(path, changes)
    if section_of(root) is not None:
        raise ServiceFile(f"{where.name} is the file of a service")
    return gather(parse(root, where.name), where.parent)


def load_service(
    path: Path | str, changes: Sequence[Setting] = ()
) -> tuple[LoadedJob, ServiceSpec]:
    """The same of a service's file: what each of its replicas runs, and what it is."""
    where, root = _read(path, changes)
    file, service = parse_service(root, where.name)
    return gather(file, where.parent), service


def _read(path: Path | str, changes: Sequence[Setting]) -> tuple[Path, Node]:
    where = Path(path)
    try:
        with where.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileRefused(f"cannot read {where}: {error.strerror}") from error
    return where, settings.laid_over(tree(data, where.name), changes)


def without_file(changes: Sequence[Setting]) -> LoadedJob:
    """The job that *changes* alone describe; what it takes along is relative to where one is."""
    return gather(parse(settings.laid_over(settings.empty(), changes), ""), Path())


def setting(written: str) -> Setting:
    """``key=value`` as typed: a dotted key of the job file, and its value as the file would have
    it.
    """
    key, parts, text = written.partition("=")
    path = settings.path_of(key.strip())
    if not parts:
        raise JobSyntax(f"{written[:60]!r} sets nothing: write {key[:60]}=VALUE")
    return Setting(path, settings.word(text) if settings.takes_text(path) else value(text, key))


def value(text: str, name: str) -> Node:
    """*text* as a value of a job file; nothing is empty text."""
    return settings.unplaced(tree(text, name)) if text.strip() else settings.word("")


def loads(data: bytes | str, name: str = "job") -> JobFile:
    """The job of YAML or JSON text; :class:`JobFileRefused` lists every problem with its line."""
    return parse(tree(data, name), name)


def gather(job: JobFile, folder: Path) -> LoadedJob:
    """*job* with its files read from *folder* and hashed; :class:`FileRefused`,
    :class:`PoolKeyRefused`.
    """
    files: list[FileIn] = []
    blobs: dict[str, Path] = {}
    for source in job.sources:
        path = folder / os.path.expanduser(source.src)
        sha256, size = _hashed(path, f"line {source.line}: " if source.line else "")
        files.append(FileIn(source.dst, sha256, size, source.mode))
        blobs[sha256] = path
    return LoadedJob(job.spec(files), blobs)


def _hashed(path: Path, place: str) -> tuple[str, int]:
    try:
        if not path.is_file():
            raise FileRefused(f"{place}{path} is not a file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise FileRefused(f"{place}{path} has more than {MAX_FILE_BYTES} bytes")
        hasher, look = hashlib.sha256(), Look()
        with path.open("rb") as file:
            while part := file.read(_PART):
                hasher.update(part)
                look.at(part)
        look.refuse(f"{place}{path}")
        return hasher.hexdigest(), size
    except (OSError, ValueError) as error:
        raise FileRefused(f"{place}cannot read {str(path)[:200]!r}: {error}") from error
