"""JSON of which there is only one reading: two programs that accept a text read the same from it.

Refused beside what is no JSON (RFC 8259): a key that stands twice in one object, a number with a
fraction or an exponent or of more than 20 characters, nesting beyond 32, anything but UTF-8.
``web/assets/crypto/strictjson.js`` is the same door in the browser.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

from marketplace.domain.errors import Malformed

MOST_DEPTH: Final = 32
MOST_DIGITS: Final = 20


def parse(data: bytes | str) -> Any:
    """The one value of *data*; :class:`Malformed` says what keeps it from being read."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value = json.loads(
            text,
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_whole,
            parse_constant=_whole,
        )
    except UnicodeDecodeError as error:
        raise Malformed("not UTF-8") from error
    except RecursionError as error:
        raise _deep() from error
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from error
    _shallow(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise Malformed(f"the key {ascii(twice)[:80]} stands twice in one object")
    return found


def _whole(token: str) -> int:
    if len(token) > MOST_DIGITS or not token.removeprefix("-").isdigit():
        raise Malformed(f"{token[:40]} is not a whole number of at most {MOST_DIGITS} characters")
    return int(token)


def _shallow(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MOST_DEPTH + 1):
        inner: list[object] = []
        for one in level:
            if isinstance(one, dict):
                inner += cast("dict[str, object]", one).values()
            elif isinstance(one, list):
                inner += cast("list[object]", one)
        if not any(isinstance(one, (dict, list)) for one in level):
            return
        level = inner
    raise _deep()


def _deep() -> Malformed:
    return Malformed(f"nested more than {MOST_DEPTH} deep")
