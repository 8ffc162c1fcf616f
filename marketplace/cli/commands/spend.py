"""``tally spend``: what this purse's account spent, by day, by job or by API key."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import anyio
import typer

from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import DEFAULT_MARKET, Home, Json, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import guarded
from marketplace.cli.shared.screen import out
from marketplace.client.net.answers import SpendRowAnswer
from marketplace.client.net.reading import read_all
from marketplace.domain.units import show_ada

app = typer.Typer(rich_markup_mode=None)


class By(StrEnum):
    """What a row is of."""

    DAY = "day"
    JOB = "job"
    KEY = "key"


_COLUMNS: Final[dict[By, tuple[str, ...]]] = {
    By.DAY: ("day (UTC)", "jobs", "spent"),
    By.JOB: ("job", "name", "day", "spent"),
    By.KEY: ("key", "name", "jobs", "spent"),
}


@app.command()
def spend(
    home: Home,
    by: Annotated[By, typer.Option(help="A row for each day, job or API key.")] = By.DAY,
    days: Annotated[int, typer.Option(min=1, max=366, help="So many days, with today.")] = 30,
    market: MarketOption = DEFAULT_MARKET,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a spreadsheet's rows.")] = False,
    as_json: Json = False,
) -> None:
    """What was spent, by the days on which it fell due; network fees are on each job's invoice."""

    async def story() -> None:
        asked: dict[str, Any] = {"by": by.value, "days": days}
        async with reading(Where(market, "", "", home)) as opened:
            if as_csv:
                sys.stdout.buffer.write(await opened.http.text("/v1/spend.csv", **asked))
                return
            found = await opened.http.all("/v1/spend", **asked)
        rows = read_all(SpendRowAnswer, found, "spend")
        if as_json:
            print_json(rows)
        else:
            show(by, rows)

    guarded(lambda: anyio.run(story))


def show(by: By, rows: Sequence[SpendRowAnswer]) -> None:
    """The table, and its sum below."""
    cells = [_cells(by, row) for row in rows]
    print_table("spend", _COLUMNS[by], cells, whole=("job", "key"), drop=("day", "name"))
    if rows:
        out.print(f"together {show_ada(sum(row['owed'] for row in rows))}", markup=False)


def _cells(by: By, row: SpendRowAnswer) -> tuple[object, ...]:
    spent = show_ada(row["owed"])
    if by is By.DAY:
        return (_day(row["from_ms"]), row["jobs"], spent)
    if by is By.JOB:
        return (row["of"], row["name"], _day(row["from_ms"]), spent)
    return (row["of"] or "-", row["name"], row["jobs"], spent)


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"
