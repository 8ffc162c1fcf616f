"""``tally key``: API keys for programs, with verbs, a budget and an end."""

from __future__ import annotations

import sys
import time
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
from marketplace.cli.shared.screen import err, out
from marketplace.client.net.answers import KeyAnswer, NewKeyAnswer
from marketplace.client.net.reading import read, read_all
from marketplace.domain.errors import Malformed
from marketplace.domain.units import parse_duration_ms, parse_money, show_ada

app = typer.Typer(
    help="API keys for programs: make, list, revoke.", no_args_is_help=True, rich_markup_mode=None
)


class Verb(StrEnum):
    """What a key may do."""

    READ = "read"
    JOBS = "jobs"
    CHANNELS = "channels"
    BLOBS = "blobs"
    WEBHOOKS = "webhooks"
    KEYS = "keys"


_USUAL: Final = [Verb.READ, Verb.JOBS]
_LAST_MS: Final = 253_402_300_799_000  # the year 9999: no date is written beyond it


@app.command()
def create(
    home: Home,
    name: Annotated[str, typer.Argument(help="What you call it.")],
    verb: Annotated[
        list[Verb] | None,
        typer.Option(help="What it may do; may be given again. None: read and jobs."),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="The most that its jobs may cost in all; 0: it posts none.")
    ] = "5 ADA",
    month_cap: Annotated[
        str,
        typer.Option(
            help="The most that what it posts in one month (UTC) may cost; 0: no such cap."
        ),
    ] = "0",
    lasts: Annotated[str, typer.Option("--for", help="When it ends, such as 12h or 30d.")] = "30d",
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """Make a key. Its secret is all that is printed, this once: the market keeps its hash alone."""

    async def story() -> None:
        asked: dict[str, Any] = {
            "name": name,
            "verbs": [str(one) for one in verb or _USUAL],
            "budget": _money(budget),
            "month_cap": _money(month_cap),
            "expires_at_ms": time.time_ns() // 1_000_000 + parse_duration_ms(lasts),
        }
        async with reading(Where(market, "", "", home)) as opened:
            made = read(NewKeyAnswer, await opened.http.post("/v1/keys", asked), "key")
        if made["secret"] is None:
            raise Malformed("the market gave a key without its secret")
        if as_json:
            print_json(made)
            return
        sys.stdout.write(made["secret"] + "\n")
        err.print(
            f"{made['id']}: {', '.join(made['verbs'])}; at most {show_ada(made['budget'])} in all,"
            f" {_cap(made)}; ends {_day(made['expires_at_ms'])}. Shown this once.",
            markup=False,
        )

    guarded(lambda: anyio.run(story))


@app.command("list")
def list_keys(home: Home, market: MarketOption = DEFAULT_MARKET, as_json: Json = False) -> None:
    """Your account's keys, oldest first, without their secrets."""

    async def story() -> None:
        async with reading(Where(market, "", "", home)) as opened:
            keys = read_all(KeyAnswer, await opened.http.all("/v1/keys"), "keys")
        if as_json:
            print_json({"items": keys})
        else:
            print_table(
                "keys",
                ("key", "name", "may", "used", "budget", "a month", "ends"),
                [_cells(key) for key in keys],
                whole=("key",),
                drop=("a month", "may", "used"),
            )

    guarded(lambda: anyio.run(story))


@app.command()
def revoke(
    home: Home,
    key: Annotated[str, typer.Argument(help="Its name in the market, key_…: `tally key list`.")],
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """End a key at once; jobs that it posted go on."""

    async def story() -> None:
        async with reading(Where(market, "", "", home)) as opened:
            await opened.http.delete(f"/v1/keys/{key}")
        if as_json:
            print_json({"id": key, "revoked": True})
        else:
            out.print(f"{key} opens nothing any more", markup=False)

    guarded(lambda: anyio.run(story))


def _money(text: str) -> int:
    return 0 if text.strip() == "0" else parse_money(text)


def _cells(key: KeyAnswer) -> tuple[object, ...]:
    now_ms = time.time_ns() // 1_000_000
    over = "revoked" if key["revoked_at_ms"] else "ended" if key["expires_at_ms"] <= now_ms else ""
    month = f"{show_ada(key['month_committed'])} of {show_ada(key['month_cap'])}"
    return (
        key["id"],
        key["name"],
        ",".join(key["verbs"]),
        show_ada(key["committed"]),
        show_ada(key["budget"]),
        month if key["month_cap"] else "-",
        over or _day(key["expires_at_ms"]),
    )


def _cap(key: NewKeyAnswer) -> str:
    cap = key["month_cap"]
    return f"{show_ada(cap)} a month" if cap else "no cap a month"


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC):%Y-%m-%d %H:%M} UTC"
