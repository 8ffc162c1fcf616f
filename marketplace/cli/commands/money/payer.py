"""``tally payer``: pays for jobs that outlive their client, from the purse of its home."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import typer

from marketplace.chain.errors import ChainFault
from marketplace.cli.shared.consumer import answers
from marketplace.cli.shared.options import (
    DEFAULT_MARKET,
    ChainUrl,
    Home,
    Json,
    ProjectId,
    SubmitUrl,
    Where,
)
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.refusals import guarded
from marketplace.cli.shared.screen import err
from marketplace.client.net.http import MarketFault
from marketplace.client.wallet.patience import CLOSE_AFTER_S
from marketplace.domain.errors import Fault
from marketplace.domain.money.keep import KEEP
from marketplace.domain.units import parse_money, show_ada

if TYPE_CHECKING:
    from marketplace.client.payer.channel_payer import Paid
    from marketplace.client.sdk.market import Market

app = typer.Typer(
    help="Pay for jobs that outlive their client.", no_args_is_help=True, rich_markup_mode=None
)
_LOOK_S: Final = 2.0


@app.callback()
def payer() -> None:
    """Pay for jobs that outlive their client."""


@app.command()
def run(
    home: Home,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    low_balance: Annotated[
        str, typer.Option(help="Warn when the purse holds less than this.")
    ] = "5 ADA",
    close_after: Annotated[
        float,
        typer.Option(
            help=(
                "Seconds that a provider may leave an end unanswered before its channel is closed."
            ),
            min=0,
        ),
    ] = CLOSE_AFTER_S,
    keep: Annotated[
        str,
        typer.Option(
            help="How long a channel that a retry opens stays open once it is idle; 0 ends it."
        ),
    ] = KEEP,
    api: Annotated[
        int | None,
        typer.Option(
            help="Also take jobs over HTTP on this port of this machine (0: a free one), for"
            " programs in any language: the job file is the body of POST /v1/jobs.",
            min=0,
            max=65_535,
            metavar="PORT",
        ),
    ] = None,
    day_cap: Annotated[
        str, typer.Option(help="The most that jobs taken with --api may cost on one day (UTC).")
    ] = "50 ADA",
    as_json: Json = False,
) -> None:
    """Take every channel of the purse that no other process holds, and answer its receipts.

    Unattended, the passphrase comes from TALLY_PASSPHRASE_FILE or the systemd credential
    tally-passphrase.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    warn_below = guarded(lambda: parse_money(low_balance))
    opens = None if api is None else Opens(api, guarded(lambda: parse_money(day_cap)))

    async def story() -> None:
        while True:
            try:
                await _serve(where, warn_below, close_after, keep, as_json, opens)
                return
            except (MarketFault, ChainFault) as fault:
                _wait(as_json, fault)
                await anyio.sleep(_LOOK_S)

    guarded(lambda: anyio.run(story))


@dataclass(frozen=True)
class Opens:
    """The API of ``--api``: its port, and the lovelace that its jobs may cost on one day."""

    port: int
    most: int


@asynccontextmanager
async def _api(opened: Market, home: Path, opens: Opens | None) -> AsyncGenerator[dict[str, str]]:
    if opens is None:
        yield {}
        return
    from marketplace.cli.payer_api.serving import payer_api

    async with payer_api(opened, home, opens.port, opens.most) as told:
        yield told


async def _serve(
    where: Where,
    warn_below: int,
    close_after: float,
    keep: str,
    as_json: bool,
    opens: Opens | None,
) -> None:
    await answers(where.market)
    from marketplace.cli.shared.paying import at_market
    from marketplace.client.payer.standing_by import standing_by

    async def heard(paid: Paid) -> None:
        if paid.kind != "tick":
            row: dict[str, Any] = {
                "event": paid.kind,
                "channel": paid.session_vk.hex(),
                "lease": paid.lease,
            }
            _say(as_json, row | {"spent": paid.spent, "code": paid.code, "message": paid.message})

    async with at_market(where, keep=keep, close_after_s=close_after) as opened:
        opened.listen(heard)
        with standing_by(opened.runner.purse.channels, opened.url):
            async with _api(opened, where.home, opens) as told:
                ready = {"market": where.market, "purse": opened.runner.till.address}
                _say(as_json, {"event": "ready", **ready, **told})
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_until_told, tasks.cancel_scope)
                    tasks.start_soon(_look_after, opened, as_json)
                    tasks.start_soon(_watch_balance, opened, warn_below, as_json)


async def _until_told(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _look_after(opened: Market, as_json: bool) -> None:
    """Channels that a client let go of are taken, again and again."""
    while True:
        try:
            for job in await opened.resume_all():
                _say(as_json, {"event": "paying", "job": job})
        except (MarketFault, ChainFault) as fault:
            _wait(as_json, fault)
        await anyio.sleep(_LOOK_S)


async def _watch_balance(opened: Market, warn_below: int, as_json: bool) -> None:
    low = False
    while True:
        try:
            balance = await opened.runner.till.balance()
        except ChainFault:
            balance = None
        if balance is not None and (balance < warn_below) != low:
            low = balance < warn_below
            if low:
                message = f"the purse holds {show_ada(balance)}, less than {show_ada(warn_below)}"
                _say(as_json, {"event": "low_balance", "balance": balance, "message": message})
        await anyio.sleep(30.0)


def _wait(as_json: bool, fault: Fault) -> None:
    """Tells what is waited for, and what to do about it."""
    told = {"code": fault.code, "message": fault.message, "remedy": fault.remedy}
    _say(as_json, {"event": "waiting", **told})


def _say(as_json: bool, row: dict[str, Any]) -> None:
    """JSON lines for programs (the first says that it is ready), words for people."""
    if as_json or row["event"] == "ready":
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    if not as_json:
        words = " ".join(
            str(row[key]) for key in ("event", "job", "lease", "code", "message") if row.get(key)
        )
        words += f" — {row['remedy']}" if row.get("remedy") else ""
        err.print(words, markup=False)
