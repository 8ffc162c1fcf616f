"""Reading one value of a job file: text, numbers, ranges and units, each with its place in the
file.

Every reader takes a node and returns a usable value or, having noted a problem, its default: so one
pass finds all problems, and nothing is built from a default because the notes are refused first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from marketplace.domain import units
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.nearest import nearest
from marketplace.domain.work.jobfile.nodes import (
    BadValue,
    DuplicateKey,
    Items,
    JobFileRefused,
    MissingKey,
    Node,
    Notes,
    Scalar,
    Table,
    UnknownKey,
    WrongType,
)
from marketplace.domain.work.parts import UNLIMITED, Range
from marketplace.domain.work.relay import LAG_LEAST_MS, LAG_MOST_MS

T = TypeVar("T")
_PLAIN_INT: Final = re.compile(r"0|[1-9][0-9]{0,14}")
_CORES: Final = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,3}))?")


@dataclass
class Section:
    """A map with known keys: unknown and repeated ones are noted when it is made."""

    notes: Notes
    path: str
    table: Table | None
    entries: dict[str, Node]

    @staticmethod
    def read(notes: Notes, node: Node | None, path: str, known: Sequence[str]) -> Section:
        """*node* as a section; an absent one is empty."""
        if node is None or is_null(node):
            return Section(notes, path, None, {})
        if not isinstance(node, Table):
            notes.add(WrongType, node, path, f"a map is expected, with {', '.join(known)}")
            return Section(notes, path, None, {})
        entries: dict[str, Node] = {}
        for key, value in node.entries:
            if key.text in entries:
                notes.add(DuplicateKey, key, join(path, key.text), "is there twice")
            elif key.text not in known:
                where = join(path, key.text[:60])
                notes.add(UnknownKey, key, where, f"unknown key{nearest(key.text, known)}")
            else:
                entries[key.text] = value
        return Section(notes, path, node, entries)

    def at(self, key: str) -> str:
        """The path of *key*."""
        return join(self.path, key)

    def get(self, key: str) -> Node | None:
        """The node of *key*; None when absent or null."""
        node = self.entries.get(key)
        return None if node is None or is_null(node) else node

    def take(self, key: str, read: Callable[[Notes, Node, str], T], default: T) -> T:
        """*key* by *read*, or *default* when it is absent."""
        node = self.get(key)
        return default if node is None else read(self.notes, node, self.at(key))

    def need(self, key: str, read: Callable[[Notes, Node, str], T], default: T, hint: str) -> T:
        """*key* by *read*; a problem when it is absent."""
        if self.get(key) is None:
            self.lacks(key, hint)
        return self.take(key, read, default)

    def lacks(self, key: str, hint: str) -> None:
        """Note that *key* is not there."""
        place = self.table or Scalar("", "null", 1, 1)
        self.notes.add(MissingKey, place, self.at(key), f"is missing, {hint}")


def join(path: str, key: str) -> str:
    """``resources.gpu``."""
    return f"{path}.{key}" if path else key


def is_null(node: Node) -> bool:
    """True for ``key:`` with nothing after it."""
    return isinstance(node, Scalar) and node.kind == "null"


def text(notes: Notes, node: Node, path: str) -> str:
    """Text. A number or a yes/no that was not quoted is a problem: YAML would change it."""
    if not isinstance(node, Scalar):
        notes.add(WrongType, node, path, "text is expected")
        return ""
    if node.kind != "text":
        shown = node.text[:40].replace('"', "'")
        notes.add(WrongType, node, path, f'text is expected; write it in quotes: "{shown}"')
        return ""
    if "\x00" in node.text or len(node.text) > 32_768:
        notes.add(BadValue, node, path, "text has at most 32768 characters and no NUL")
        return ""
    return node.text


def matching(pattern: str, hint: str, most: int = 300) -> Callable[[Notes, Node, str], str]:
    """A reader of text that matches *pattern* whole."""
    compiled = re.compile(pattern)

    def read(notes: Notes, node: Node, path: str) -> str:
        found = text(notes, node, path)
        if found and (len(found) > most or not compiled.fullmatch(found)):
            notes.add(BadValue, node, path, f"{found[:60]!r} is not {hint}")
        elif not found and isinstance(node, Scalar) and node.kind == "text":
            notes.add(BadValue, node, path, f"is empty, not {hint}")
        return found

    return read


def choice(*known: str) -> Callable[[Notes, Node, str], str]:
    """A reader of one of *known*."""

    def read(notes: Notes, node: Node, path: str) -> str:
        found = text(notes, node, path)
        if found not in known and isinstance(node, Scalar) and node.kind == "text":
            notes.add(BadValue, node, path, f"{found[:60]!r} is not one{nearest(found, known)}")
        return found if found in known else known[0]

    return read


def whole(least: int, most: int) -> Callable[[Notes, Node, str], int]:
    """A reader of an integer within [least, most], written in plain decimals."""

    def read(notes: Notes, node: Node, path: str) -> int:
        if not isinstance(node, Scalar) or node.kind != "int":
            notes.add(WrongType, node, path, f"a whole number from {least} to {most} is expected")
            return least
        if not _PLAIN_INT.fullmatch(node.text) or not least <= int(node.text) <= most:
            notes.add(BadValue, node, path, f"{node.text[:40]} is not within {least} to {most}")
            return least
        return int(node.text)

    return read


def flag(notes: Notes, node: Node, path: str) -> bool:
    """``true`` or ``false``."""
    if not isinstance(node, Scalar) or node.kind != "bool" or node.text not in ("true", "false"):
        notes.add(WrongType, node, path, "true or false is expected")
        return False
    return node.text == "true"


def many(
    read: Callable[[Notes, Node, str], T], most: int
) -> Callable[[Notes, Node, str], tuple[T, ...]]:
    """A reader of a list of at most *most*; a single plain value stands for a list of one."""

    def read_all(notes: Notes, node: Node, path: str) -> tuple[T, ...]:
        if isinstance(node, Scalar):
            return (read(notes, node, path),)
        if not isinstance(node, Items):
            notes.add(WrongType, node, path, "a list is expected")
            return ()
        if len(node.items) > most:
            notes.add(BadValue, node, path, f"{len(node.items)} entries; at most {most}")
            return ()
        return tuple(read(notes, item, f"{path}[{i}]") for i, item in enumerate(node.items))

    return read_all


def unit(
    parse: Callable[[str], int], least: int, most: int, example: str
) -> Callable[[Notes, Node, str], int]:
    """A reader of an amount with its unit, by one of the parsers of
    :mod:`marketplace.domain.units`.
    """

    def read(notes: Notes, node: Node, path: str) -> int:
        if not isinstance(node, Scalar):
            notes.add(WrongType, node, path, f"an amount such as {example} is expected")
            return least
        value = guarded(notes, node, path, lambda: _with_unit(parse, node.text, example))
        if value is not None and not least <= value <= most:
            notes.add(
                BadValue, node, path, f"{node.text[:40]!r} is out of range; write e.g. {example}"
            )
        return least if value is None else value

    return read


def bounds(
    parse: Callable[[str], int], most: int, example: str
) -> Callable[[Notes, Node, str], Range]:
    """A reader of ``A``, ``A..``, ``..B`` or ``A..B`` of amounts that *parse* knows, each ≤
    *most*.
    """

    def read(notes: Notes, node: Node, path: str) -> Range:
        if not isinstance(node, Scalar):
            notes.add(WrongType, node, path, f"an amount or a range such as {example} is expected")
            return Range(0)
        found = guarded(notes, node, path, lambda: _range(parse, node.text, most, example))
        return Range(0) if found is None else found

    return read


def guarded(notes: Notes, node: Node, path: str, make: Callable[[], T]) -> T | None:
    """What *make* returns; a refusal becomes a problem at *node*."""
    try:
        return make()
    except JobFileRefused:
        raise
    except Refusal as error:
        notes.add(BadValue, node, path, error.message)
        return None


def cores(written: str) -> int:
    """``4`` or ``0.5`` cores in milli-cores."""
    match = _CORES.fullmatch(written.strip())
    if match is None:
        raise Malformed(f"{written[:40]!r} is not a number of cores such as 4 or 0.5")
    return int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))


def count(written: str) -> int:
    """A plain count."""
    if not _PLAIN_INT.fullmatch(written.strip()):
        raise Malformed(f"{written[:40]!r} is not a whole number")
    return int(written)


def _with_unit(parse: Callable[[str], int], written: str, example: str) -> int:
    try:
        return parse(written)
    except Malformed:
        raise Malformed(f"{written[:40]!r} is not an amount such as {example}") from None


def _range(parse: Callable[[str], int], written: str, most: int, example: str) -> Range:
    low, dots, high = written.partition("..")
    if (dots and not low.strip() and not high.strip()) or (not dots and not low.strip()):
        raise Malformed(f"{written[:40]!r} is not a range such as {example}")
    least = _with_unit(parse, low, example) if low.strip() else 0
    top = (
        _with_unit(parse, high if dots else low, example) if high.strip() or not dots else UNLIMITED
    )
    if max(least, top if top != UNLIMITED else 0) > most:
        raise Malformed(f"{written[:40]!r} is more than any host has")
    return Range(least, top)


duration = unit(units.parse_duration_ms, 1, 366 * 86_400_000, "6h")
lag = unit(units.parse_duration_ms, LAG_LEAST_MS, LAG_MOST_MS, "5m")
money = unit(units.parse_money, 1, 45_000_000_000_000_000, "40 ADA")
rate = unit(units.parse_rate_micro, 1, 10**18, "2000 lovelace")
worth = unit(units.parse_rate_micro, 0, 10**18, "500 lovelace")
cpu = bounds(cores, 4_096_000, "4..")
counted = bounds(count, 1024, "1..2")
size = bounds(units.parse_size_mib, 1 << 30, "16GB..")
