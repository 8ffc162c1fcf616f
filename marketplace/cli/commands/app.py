"""``tally app FILE.py``: one's own page in Python, Gradio's or another's, on a rented device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.commands.page_session import Before, Browser, Idle, Outputs, Session
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
from marketplace.cli.shared.wanted import Change, Cores, Gpu, Longest, Memory, Wanted

app = typer.Typer(help="A Python app with a page, on a rented device.", rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="The program; it listens where PORT says.")]
More = Annotated[
    list[Path] | None,
    typer.Option("--with", help="A file that lies beside it; may be given again."),
]
AppImage = Annotated[
    str | None, typer.Option("--image", help="A container image with Python.", metavar="IMAGE")
]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="The port of its page.")]


@app.command("app")
def app_(
    home: Home,
    file: File,
    more: More = None,
    port: Port = 7860,
    image: AppImage = None,
    gpu: Gpu = None,
    cores: Cores = None,
    memory: Memory = None,
    longest: Longest = None,
    idle: Idle = "30m",
    before: Before = "",
    outputs: Outputs = None,
    browser: Browser = True,
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
    """Quote, ask, pay, open the page; Ctrl-C, or a while in which nobody came, ends it, and all of
    /workspace is kept. `tally job share ID --for 2h` lets others in.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))
    wanted = Wanted(None, None, gpu, cores, memory, longest, change, ())

    async def story() -> int:
        from marketplace.client.jobs.sessions import app_of

        brought = (file, *(more or ()))
        return await Session(
            where, wanted, image, idle, before, outputs, browser, yes, as_json, exact, price_url,
            brought,
        ).run(app_of(file.name, port))  # fmt: skip

    run_story(story)
