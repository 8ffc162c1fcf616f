"""``tally model``: a folder of weights as an image, and as a service that answers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import anyio
import anyio.from_thread
import anyio.to_thread
import typer

from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.shared.consumer import answers, reading
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
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import err, out
from marketplace.cli.shared.wanted import ANY_GPU, Change, Cores, Gpu, Memory
from marketplace.client.images.registry import MarketRegistry
from marketplace.disk import private_folder

app = typer.Typer(
    help="A model as an image of the market's registry, and as a service.", rich_markup_mode=None,
    no_args_is_help=True,
)  # fmt: skip


@app.callback()
def model() -> None:
    """A model as an image of the market's registry, and as a service."""


@app.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="Weights, and whatever serves them.")],
    home: Home,
    base: Annotated[
        str, typer.Option(help="An image there to build on: yours by name, or anybody's in full.")
    ],
    to: Annotated[
        str, typer.Option("--as", help="NAME[:TAG] there; without it, the folder's.")
    ] = "",
    command: Annotated[
        str, typer.Option(help="What serves it, run in /model; without it, the base's own.")
    ] = "",
    entry: Annotated[
        str, typer.Option(help="In place of a command: llama.cpp, vllm, or python for serve.py.")
    ] = "",
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """Put the files of FOLDER into an image, at /model, each large one a layer of its own, and push
    it: of a new version only what changed is sent.
    """

    if entry and command:
        raise UsageError("give --entry or --command, not both")

    async def story() -> None:
        from marketplace.client.images.entries import entry as entry_of
        from marketplace.client.images.model import pack as push
        from marketplace.client.images.packing import layers_of

        words = entry_of(entry, folder) if entry else tuple(shlex.split(command))
        async with reading(Where(market, "", "", home)) as reader:
            registry = MarketRegistry(reader.http)
            account = await registry.account()
            there = account.name(to or folder.resolve().name.lower())
            below = account.anybodys(base)
            layers = await anyio.to_thread.run_sync(layers_of, folder)

            def token(*scopes: str) -> str:
                return anyio.from_thread.run(registry.token, *scopes)

            done = await anyio.to_thread.run_sync(push, there, below, layers, words, token)
        pinned = there.at(done.digest)
        if as_json:
            print_json({"name": done.name, "image": pinned, "bytes": done.bytes, "sent": done.sent})
            return
        err.print(
            f"{done.sent / 2**20:.1f} of {done.bytes / 2**20:.1f} MiB were sent", markup=False
        )
        out.print(f"image: {done.name}", markup=False)
        out.print(f"       {pinned}", markup=False)

    run_story(story)


@app.command()
def serve(
    name: Annotated[str, typer.Argument(help="NAME[:TAG], as it was packed.")],
    home: Home,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="At which it answers.")] = 8000,
    gpu: Gpu = None,
    cores: Cores = "1",
    memory: Memory = "1GB",
    budget: Annotated[str, typer.Option(help="Of each replica.")] = "20 ADA",
    health: Annotated[str, typer.Option(help="A path that answers once it is loaded.")] = "",
    public: Annotated[bool, typer.Option("--public", help="Anybody may ask it.")] = False,
    change: Change = None,
    market: MarketOption = DEFAULT_MARKET,
    chain_url: ChainUrl = "",
    project_id: ProjectId = "",
    submit_url: SubmitUrl = None,
    yes: Yes = False,
) -> None:
    """Keep it running behind one address, as `tally service up` does; `tally service` shows, shares
    and ends it. For more than the options say: --set, or a file of one's own.
    """
    where = Where(market, chain_url, project_id, home, tuple(submit_url or ()))

    async def story() -> int:
        from marketplace.cli.commands import service_keep

        await answers(market)
        async with reading(where) as reader:
            account = await MarketRegistry(reader.http).account()
        image = account.name(name)
        short = image.repository.partition("/")[2].replace(".", "-").replace("_", "-")
        said = {
            "version": 1, "name": short, "kind": "service",
            "image": f"{image.host}/{image.repository}"
            + (f"@{image.digest}" if image.digest else f":{image.tag}"),
            "resources": {
                "cpu": cores, "memory": memory,
                **({"gpu": "1" if gpu == ANY_GPU else gpu} if gpu else {}),
            },
            "ports": [{"port": port, "auth": "public" if public else "token"}],
            "price": {"budget": budget},
            "policy": {"max_duration": "24h"},
            "service": {"replicas": 1, "health": {"start": "10m", **_path(health)}},
        }  # fmt: skip
        file = private_folder(home / "models") / f"{short}.json"
        file.write_text(json.dumps(said, indent=1) + "\n")
        return await service_keep.up(where, file, change or [], yes)

    run_story(story)


def _path(health: str) -> dict[str, str]:
    return {"path": health} if health else {}
