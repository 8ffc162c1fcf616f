"""Job files from disk: YAML or JSON text to the domain's tree, and the files that a job takes
along.

Only the *events* of PyYAML are used, so nothing is ever constructed from a tag, and aliases (with
which nine lines make a billion nodes) are refused before they multiply.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml
from yaml.resolver import Resolver

from marketplace.domain.errors import Refusal
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.jobfile import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    Items,
    JobFile,
    JobSyntax,
    Node,
    Scalar,
    ScalarKind,
    Table,
    WrongType,
    parse,
)
from marketplace.domain.work.parts import FileIn

MAX_FILE_BYTES: Final = 1 << 30
_KINDS: Final[Mapping[str, ScalarKind]] = {
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:null": "null",
}
_RESOLVER: Final[Any] = Resolver()


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
    return parse(_Tree(_decoded(data, name), name).root(), name)


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


def _decoded(data: bytes | str, name: str) -> str:
    try:
        raw = data.encode() if isinstance(data, str) else data
        if len(raw) > MAX_BYTES:
            raise JobSyntax(f"{name}: a job file has at most {MAX_BYTES} bytes", line=1, column=1)
        text = raw.decode("utf-8-sig")
    except UnicodeError as error:
        raise JobSyntax(f"{name}: not UTF-8 text", line=1, column=1) from error
    # JSON allows tabs between its tokens and YAML does not; inside strings JSON allows none.
    return text.replace("\t", " ") if text.lstrip().startswith("{") else text


class _Tree:
    """One document of YAML as the domain's nodes, from events, within limits."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._nodes = 0
        self._events = self._safely(text)

    def root(self) -> Node:
        """The only document's node."""
        self._take(yaml.StreamStartEvent)
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            raise JobSyntax(f"{self._name}: line 1, column 1: the file is empty", line=1, column=1)
        node = self._node(next(self._events), 0)
        self._take(yaml.DocumentEndEvent)
        self._take(yaml.StreamEndEvent)
        return node

    def _safely(self, text: str) -> Iterator[Any]:
        try:
            yield from cast("Iterator[Any]", yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line, column = getattr(mark, "line", 0) + 1, getattr(mark, "column", 0) + 1
            what = getattr(error, "problem", None) or str(error).splitlines()[0]
            message = f"{self._name}: line {line}, column {column}: {what}"
            raise JobSyntax(message, line=line, column=column) from error
        except (ValueError, OverflowError, IndexError) as error:  # an escape beyond Unicode
            raise JobSyntax(f"{self._name}: {error}", line=1, column=1) from error

    def _take(self, kind: type[Any]) -> None:
        event = next(self._events)
        if not isinstance(event, kind):
            self._refuse(event, "a job file holds one document")

    def _refuse(self, event: Any, why: str) -> None:
        line, column = _place(event)
        message = f"{self._name}: line {line}, column {column}: {why}"
        raise JobSyntax(message, line=line, column=column)

    def _node(self, event: Any, depth: int) -> Node:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            self._refuse(event, "nested deeper, or larger, than any job")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            self._refuse(event, "anchors and aliases are not used in job files")
        if getattr(event, "tag", None):
            self._refuse(event, "tags are not used in job files")
        line, column = _place(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(tuple(self._until(yaml.SequenceEndEvent, depth)), line, column)
        if isinstance(event, yaml.MappingStartEvent):
            flat = list(self._until(yaml.MappingEndEvent, depth))
            return Table(
                tuple(zip(map(self._key, flat[::2]), flat[1::2], strict=True)), line, column
            )
        return self._scalar(event, line, column)

    def _until(self, end: type[Any], depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), end):
            yield self._node(event, depth + 1)

    def _key(self, node: Node) -> Scalar:
        if not isinstance(node, Scalar):
            message = f"{self._name}: line {node.line}, column {node.column}: a key is plain text"
            raise WrongType(message, line=node.line, column=node.column)
        return node

    def _scalar(self, event: Any, line: int, column: int) -> Scalar:
        try:  # JSON writes characters beyond the first plane as two escapes
            text = str(event.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError:
            self._refuse(event, "half of a surrogate pair is no text")
            raise
        if not event.implicit[0]:
            return Scalar(text, "text", line, column)
        tag = cast(str, _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))
        return Scalar(text, _KINDS.get(tag, "text"), line, column)


def _place(event: Any) -> tuple[int, int]:
    """Line and column from 1."""
    return event.start_mark.line + 1, event.start_mark.column + 1
