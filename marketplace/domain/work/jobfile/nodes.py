"""A job file as a tree that remembers where everything stood, and what can be wrong with it.

The domain knows no YAML: whoever reads the text (``marketplace/jobtext.py``) hands over this tree.
Lines and columns count from 1.

* JobFileRefused       a job file that does not say what it must; ``problems`` lists them all
    x JobSyntax          not YAML or JSON, or more of it than a job needs
    x UnknownKey         a key that no job has; the nearest known name is suggested
    x MissingKey         a key that every job needs
    x DuplicateKey       said twice
    x WrongType          a list where text belongs, and the like
    x BadValue           of the right type, but no value that means anything here
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from marketplace.domain.errors import Malformed

ScalarKind = Literal["text", "int", "float", "bool", "null"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One plain value: its *text* as written (unquoted), and what YAML takes it for."""

    text: str
    kind: ScalarKind
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Table:
    """A map, in the order of the file, duplicates included."""

    entries: tuple[tuple[Scalar, Node], ...]
    line: int
    column: int


Node: TypeAlias = Scalar | Items | Table


class JobFileRefused(Malformed):
    """A job file that does not say what it must."""

    code = "JOB_FILE"
    remedy = "docs/jobs.md lists every key with its unit"


class JobSyntax(JobFileRefused):
    """Not YAML or JSON, or more of it than a job needs."""

    code = "JOB_SYNTAX"
    remedy = "write plain YAML or JSON: no anchors, no tags, one document"


class UnknownKey(JobFileRefused):
    """A key that no job has."""

    code = "JOB_UNKNOWN_KEY"


class MissingKey(JobFileRefused):
    """A key that every job needs."""

    code = "JOB_MISSING_KEY"


class DuplicateKey(JobFileRefused):
    """A key that is there twice: which one would count?"""

    code = "JOB_DUPLICATE_KEY"
    remedy = "keep one of the two"


class WrongType(JobFileRefused):
    """A list where text belongs, and the like."""

    code = "JOB_WRONG_TYPE"


class BadValue(JobFileRefused):
    """Of the right type, but no value that means anything here."""

    code = "JOB_BAD_VALUE"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: *path* such as ``resources.gpu.vram``; line 0 is what was set beside
    the file.
    """

    kind: type[JobFileRefused]
    path: str
    message: str
    line: int
    column: int

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{place}{where}{self.message}"


@dataclass(slots=True)
class Notes:
    """Collects what is wrong, so that a file is corrected in one go."""

    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, kind: type[JobFileRefused], node: Node, path: str, message: str) -> None:
        """Remember one problem."""
        self.problems.append(Problem(kind, path, message, node.line, node.column))

    def refuse(self, name: str = "") -> None:
        """Raise the first problem's refusal with all of them in ``problems``; nothing if there are
        none.
        """
        if not self.problems:
            return
        ordered = sorted(self.problems, key=lambda p: (p.line, p.column))
        more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
        first, prefix = ordered[0], f"{name}: " if name else ""
        raise first.kind(
            f"{prefix}{first}{more}",
            line=first.line,
            column=first.column,
            path=first.path,
            problems=[f"{p.kind.code}: {p}" for p in ordered],
        )


MAX_BYTES: Final = 128 * 1024
MAX_DEPTH: Final = 12
MAX_NODES: Final = 10_000
