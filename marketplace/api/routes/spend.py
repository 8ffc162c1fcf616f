"""What an account spent: by day, by job, by API key; as JSON and for a spreadsheet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, Response

from marketplace.api.http.auth import PartsDep, Reader
from marketplace.api.http.paging import Cursor, Limit, page_of, place_in
from marketplace.api.http.problems import EVERYWHERE, documented
from marketplace.api.http.spreadsheet import ada, time_of, written
from marketplace.api.schemas import spend as shapes
from marketplace.api.schemas.shape import Shape, text_of
from marketplace.market.money import spend
from marketplace.market.money.spend import DAY_MS

router = APIRouter(prefix="/v1", tags=["spend"], responses=documented(*EVERYWHERE))

By = Annotated[Literal["day", "job", "key"], Query(description="what a row is of")]
Days = Annotated[int, Query(ge=1, le=366, description="so many days, up to the last one")]
Last = Annotated[
    int, Query(ge=0, le=2**53, description="a time on the last day, ms since 1970, UTC; 0: today")
]
_HEAD = ("of", "name", "from", "to", "jobs", "leases", "lovelace", "ada")


def _days(now: int, days: int, last_ms: int) -> tuple[int, int]:
    last = min(last_ms or now, now) // DAY_MS
    return last - days + 1, last


@router.get("/spend", summary="What was spent, by day, job or API key")
async def by_page(
    parts: PartsDep,
    who: Reader,
    by: By = "day",
    days: Days = 30,
    last_ms: Last = 0,
    cursor: Cursor = "",
    limit: Limit = 50,
) -> Annotated[dict[str, Any], Shape(shapes.Spend)]:
    """By the days on which receipts fell due (UTC): the sums of the three ways agree."""
    first, last = _days(parts.market.now, days, last_ms)
    rows = await spend.rows(parts.market, who.account, by, first, last)
    after = place_in(cursor, 2, ints=(0,))
    left = rows if after is None else [row for row in rows if _behind(by, _place(row), after)]
    head = {"by": by, "from_ms": first * DAY_MS, "to_ms": (last + 1) * DAY_MS,
            "owed": sum(row["owed"] for row in rows)}  # fmt: skip
    return {**head, **page_of(left[:limit], left, limit, _place)}


def _place(row: dict[str, Any]) -> tuple[int, str]:
    """Where a row stands among its kind: days by their beginning, jobs and keys by id."""
    return (0 if row["of"] else row["from_ms"], row["of"])


def _behind(by: str, place: tuple[int, str], after: tuple[object, ...]) -> bool:
    if by == "key":
        return place[1] > str(after[1])
    return place[1] < str(after[1]) if by == "job" else place[0] < int(str(after[0]))


@router.get(
    "/spend.csv",
    summary="The same for a spreadsheet, all rows",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/csv": text_of("RFC 4180: " + ", ".join(_HEAD))}}},
)
async def as_csv(
    parts: PartsDep, who: Reader, by: By = "day", days: Days = 30, last_ms: Last = 0
) -> Response:
    """A row each, without a sum; amounts in lovelace and, exactly, in ADA."""
    first, last = _days(parts.market.now, days, last_ms)
    rows = await spend.rows(parts.market, who.account, by, first, last)
    cells = [
        (row["of"], row["name"], time_of(row["from_ms"]), time_of(row["to_ms"]), row["jobs"],
         row["leases"], row["owed"], ada(row["owed"]))
        for row in rows
    ]  # fmt: skip
    return Response(
        written(_HEAD, cells), media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="spend-by-{by}.csv"'},
    )  # fmt: skip
