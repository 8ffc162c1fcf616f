"""A job file's text, YAML or JSON, as the domain's tree: what the consumer's side and the market
both read; and its YAML written.

Only the *events* of PyYAML are used, so nothing is ever constructed from a tag, and aliases (with
which nine lines make a billion nodes) are refused before they multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import yaml
from yaml.resolver import Resolver

from marketplace.domain.work.jobfile import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    Items,
    JobSyntax,
    Node,
    Scalar,
    ScalarKind,
    Table,
    WrongType,
)

_KINDS: Final[Mapping[str, ScalarKind]] = {
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:null": "null",
}
_RESOLVER: Final[Any] = Resolver()
_PAIR: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it, as its wheels are: twenty times as fast."""


def tree(data: bytes | str, name: str = "job") -> Node:
    """The only document of *data*; :class:`JobSyntax` with its place for anything else."""
    return _Tree(_decoded(data, name), name).root()


class _Plain(yaml.SafeDumper):
    """Writes what :func:`tree` reads: no anchors, no tags."""

    def ignore_aliases(self, data: object) -> bool:
        """Each value stands where it belongs, twice if need be."""
        return True


def text(job: Mapping[str, Any]) -> str:
    """YAML of what ``jobfile.write`` tells, which :func:`tree` reads as the same."""
    return yaml.dump(
        dict(job), Dumper=_Plain, sort_keys=False, allow_unicode=True, default_flow_style=None
    )


def _decoded(data: bytes | str, name: str) -> str:
    try:
        raw = data.encode() if isinstance(data, str) else data
        if len(raw) > MAX_BYTES:
            raise JobSyntax(f"{name}: a job file has at most {MAX_BYTES} bytes", line=1, column=1)
        text = raw.decode("utf-8-sig")
    except UnicodeError as error:
        raise JobSyntax(f"{name}: not UTF-8 text", line=1, column=1) from error
    if not text.lstrip().startswith("{"):
        return text
    # JSON allows tabs between its tokens and YAML does not; inside strings JSON allows none. And it
    # writes what lies beyond the first plane as two escapes, which YAML has one for.
    return _PAIR.sub(_beyond, text.replace("\t", " "))


def _beyond(pair: re.Match[str]) -> str:
    high, low = int(pair[2], 16), int(pair[3], 16)
    return f"{pair[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


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
            yield from cast("Iterator[Any]", yaml.parse(text, Loader=_LOADER))
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
