"""Values that are said beside a job file, such as ``resources.gpu.count=2``: laid over its tree
before it is read, so that they are refused as the same words in the file would be.

What was set has line 0: it stands nowhere in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.work.jobfile.nodes import (
    MAX_DEPTH,
    BadValue,
    Items,
    Node,
    Scalar,
    Table,
    UnknownKey,
    WrongType,
)

NOWHERE: Final = 0
OPEN_MAPS: Final = (("env",), ("placement", "labels"))
"""Maps of the user's own names to text: dots in such a name part nothing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """*value* for the key at *path*, which replaces whatever the file says there."""

    path: tuple[str, ...]
    value: Node


def path_of(dotted: str) -> tuple[str, ...]:
    """``resources.gpu.count`` as its keys; :class:`UnknownKey` for a name that is none."""
    keys = tuple(dotted.split("."))
    for own in OPEN_MAPS:
        if keys[: len(own)] == own and len(keys) > len(own):
            keys = (*own, ".".join(keys[len(own) :]))
    if not all(keys) or len(keys) > MAX_DEPTH:
        raise UnknownKey(f"{dotted[:60]!r} is no key of a job; write e.g. resources.cpu")
    return keys


def takes_text(path: tuple[str, ...]) -> bool:
    """Whether what stands at *path* is text whatever it looks like: ``env.EPOCHS=3``."""
    return path[:-1] in OPEN_MAPS


def word(text: str) -> Scalar:
    """Text as it stands."""
    return Scalar(text, "text", NOWHERE, NOWHERE)


def words(texts: Sequence[str]) -> Items:
    """A list of texts as they stand."""
    return Items(tuple(map(word, texts)), NOWHERE, NOWHERE)


def unplaced(node: Node) -> Node:
    """*node* as standing nowhere in the file."""
    if isinstance(node, Scalar):
        return replace(node, line=NOWHERE, column=NOWHERE)
    if isinstance(node, Items):
        return Items(tuple(map(unplaced, node.items)), NOWHERE, NOWHERE)
    pairs = tuple((word(key.text), unplaced(value)) for key, value in node.entries)
    return Table(pairs, NOWHERE, NOWHERE)


def laid_over(root: Node, settings: Sequence[Setting]) -> Node:
    """*root* with every one of *settings*, the later over the earlier; a *root* that is no map is
    left to whoever reads it.
    """
    for setting in settings:
        if isinstance(root, Table):
            root = _put(root, setting.path, setting.value, ())
    return root


def empty() -> Table:
    """What settings alone are laid over: a job file that says its version and nothing else."""
    version = Scalar("1", "int", NOWHERE, NOWHERE)
    return Table(((word("version"), version),), NOWHERE, NOWHERE)


def _put(table: Table, path: tuple[str, ...], value: Node, before: tuple[str, ...]) -> Table:
    key, rest = path[0], path[1:]
    at = next((n for n, (known, _) in enumerate(table.entries) if known.text == key), None)
    old = None if at is None else table.entries[at][1]
    new = _put(_map(old, (*before, key)), rest, value, (*before, key)) if rest else value
    if at is None:
        return replace(table, entries=(*table.entries, (word(key), new)))
    kept = table.entries[at][0] if rest else word(key)
    return replace(table, entries=(*table.entries[:at], (kept, new), *table.entries[at + 1 :]))


def _map(node: Node | None, path: tuple[str, ...]) -> Table:
    """What a longer path goes on in; absent or ``key:`` with nothing after it is an empty map."""
    if node is None or (isinstance(node, Scalar) and node.kind == "null"):
        return Table((), NOWHERE, NOWHERE)
    if isinstance(node, Table):
        return node
    name = ".".join(path)
    if isinstance(node, Items):
        raise WrongType(f"{name} is a list: set it whole, e.g. {name}=[…]")
    raise BadValue(f"{name} is {node.text[:40]!r} in the file: set {name} whole, e.g. {name}={{…}}")
