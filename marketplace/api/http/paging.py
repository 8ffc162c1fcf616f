"""Cursors: opaque to clients, the ordered values of a page's last item to us."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

from fastapi import Query

from marketplace.domain.errors import Malformed

T = TypeVar("T")
Cursor = Annotated[str, Query(max_length=500, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=200, description="items a page")]


def place_in(cursor: str, length: int, ints: Sequence[int] = ()) -> tuple[object, ...] | None:
    """The values in *cursor* (text, integers at the positions *ints*); Malformed."""
    if not cursor:
        return None
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, UnicodeError) as error:
        raise Malformed("cursor is not one of ours") from error
    values = cast(list[object], value) if isinstance(value, list) else []
    kinds = [int if i in ints else str for i in range(length)]
    if [type(v) for v in values] != kinds or any(not str(v).isascii() for v in values):
        raise Malformed("cursor is not one of ours")
    if any("\x00" in str(v) for v in values):
        raise Malformed("cursor is not one of ours")
    if any(isinstance(v, int) and not -(2**62) < v < 2**62 for v in values):
        raise Malformed("cursor is not one of ours")
    return tuple(values)


def page_of(
    items: list[dict[str, Any]],
    found: Sequence[T],
    limit: int,
    values: Callable[[T], tuple[object, ...]],
) -> dict[str, Any]:
    """``{items, next}``; *found* holds one more than *limit* when there is a next page."""
    following = None
    if len(found) > limit:
        last = json.dumps(values(found[limit - 1]), separators=(",", ":"))
        following = base64.urlsafe_b64encode(last.encode()).decode()
    return {"items": items, "next": following}
