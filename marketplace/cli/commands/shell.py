"""``tally shell``: a terminal on a rented device."""

from __future__ import annotations

import typer

from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.commands.page_session import Before, Idle, Outputs, Session
from marketplace.cli.shared.options import (
    DEFAULT_MARKET,
    ChainUrl,
    Home,
    Json,
    ProjectId,
    SubmitUrl,
    Where,
    Yes,
)
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.prices import Exact, Source
from marketplace.cli.shared.wanted import Change, Cores, Gpu, Image, Longest, Memory, Wanted

app = typer.Typer(help="A terminal on a rented device.", rich_markup_mode=None)


@app.command()
def shell(
    home: Home,
    image: Image = None,
    gpu: Gpu = None,
    cores: Cores = None,
    memory: Memory = None,
    longest: Longest = None,
    idle: Idle = "30m",
    before: Before = "",
    outputs: Outputs = None,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
    as_json: Json = False,
    exact: Exact = False,
    price_url: Source = "",
) -> None:
    """Quote, ask, pay, sit down; leaving it, or an idle while, ends it, and all of /workspace is
    kept.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    wanted = Wanted(None, None, gpu, cores, memory, longest, change, ())

    async def story() -> int:
        from marketplace.client.jobs.sessions import SHELL

        return await Session(
            where, wanted, image, idle, before, outputs, False, yes, as_json, exact, price_url
        ).run(SHELL)

    run_story(story)
