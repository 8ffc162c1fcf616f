"""The one door for a market's answers: what this client reads of them is there and of its kind.

Unknown fields are left alone. What is missing or of another kind is refused by name, before anybody
counts with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import (
    Any,
    Final,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from marketplace.domain.errors import Refusal

T = TypeVar("T")
_WORDS: Final = {str: "text", int: "a whole number", bool: "true or false", type(None): "null"}
_UNIONS: Final = (Union, UnionType)


class AnswerUnreadable(Refusal):
    """The market's answer is not what its API says."""

    code = "ANSWER_UNREADABLE"
    remedy = (
        "the market is of another version, or is no market of ours: compare `tally --version` with"
        " its GET /v1/network, or choose another market"
    )


def read(kind: type[T], value: object, what: str) -> T:
    """*value*, known to be a *kind*: the same map. *what* names it in the refusal
    (:class:`AnswerUnreadable`).
    """
    wrong = _wrong(kind, value, what)
    if wrong:
        raise AnswerUnreadable(wrong)
    return cast(T, value)


def read_all(kind: type[T], values: object, what: str) -> list[T]:
    """Each of *values* as :func:`read` has it."""
    wrong = _wrong(list[kind], values, what)
    if wrong:
        raise AnswerUnreadable(wrong)
    return cast("list[T]", values)


def _wrong(kind: Any, value: object, at: str) -> str:
    """What of *value* is not a *kind*, in words; empty if nothing is."""
    if kind is Any:
        return ""
    if is_typeddict(kind):
        return _wrong_map(kind, value, at)
    if get_origin(kind) in _UNIONS:
        found = [_wrong(one, value, at) for one in get_args(kind)]
        # The last is the one that tells most: null stands behind the kind that is meant.
        return "" if "" in found else found[0]
    if get_origin(kind) is list:
        if not isinstance(value, list):
            return f"{at}: a list is expected"
        (inner,) = get_args(kind)
        parts = cast("list[object]", value)
        return _first(_wrong(inner, part, f"{at}[{n}]") for n, part in enumerate(parts))
    if get_origin(kind) is dict:
        if not isinstance(value, Mapping):
            return f"{at}: a map is expected"
        (_, inner) = get_args(kind)
        rows = cast("Mapping[object, object]", value)
        return _first(_wrong(inner, part, f"{at}.{name}") for name, part in rows.items())
    # A bool is an int to Python, and no number to anybody else.
    if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
        return ""
    return f"{at}: {_WORDS[kind]} is expected"


def _wrong_map(kind: Any, value: object, at: str) -> str:
    if not isinstance(value, Mapping):
        return f"{at}: a map is expected"
    row = cast("Mapping[str, object]", value)
    hints, required = _fields(kind)
    missing = [name for name in hints if name in required and name not in row]
    if missing:
        return f"{at}: {missing[0]} is missing"
    return _first(
        _wrong(hint, row[name], f"{at}.{name}") for name, hint in hints.items() if name in row
    )


def _first(found: Any) -> str:
    return next((wrong for wrong in found if wrong), "")


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    # Python 3.11 does not see NotRequired in an annotation that is kept as text (PEP 563).
    marked = get_type_hints(kind, include_extras=True)
    required = cast("frozenset[str]", kind.__required_keys__)
    asked = frozenset(n for n in required if get_origin(marked[n]) is not NotRequired)
    return get_type_hints(kind), asked
