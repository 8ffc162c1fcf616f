"""``tally volume``: disk that outlives its jobs, and what lies on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
import typer

from marketplace.cli.commands.job_ports import run_story
from marketplace.cli.shared.consumer import load_purse, reading
from marketplace.cli.shared.options import DEFAULT_MARKET, Home, Json, Where
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.screen import err, out
from marketplace.client.jobs.volumes import is_volume, one_of
from marketplace.client.sdk.read_only import Reader

if TYPE_CHECKING:
    import pyrage

    from marketplace.client.sdk.job import Job
    from marketplace.client.wallet.purse import Purse

app = typer.Typer(
    help="Disk that outlives its jobs: what is there, out of it and into it.",
    no_args_is_help=True, rich_markup_mode=None,
)  # fmt: skip
Name = Annotated[str, typer.Argument(help="The volume's name, or its job's id.", metavar="NAME")]
IdentityFile = Annotated[
    Path | None,
    typer.Option("--identity", help="A file of age-keygen's; without it the purse's own."),
]
_MIB = 1 << 20


@app.callback()
def volume() -> None:
    """Disk that is rented by itself (`kind: volume` of a job file) and outlives the jobs that mount
    it.
    """


@app.command("list")
def list_(home: Home, market: MarketOption = DEFAULT_MARKET, as_json: Json = False) -> None:
    """Your volumes that run, and where they are."""

    async def story() -> None:
        async with reading(Where(market, "", "", home)) as opened:
            found = [job for job in await opened.jobs(state="RUNNING") if is_volume(job)]
        if as_json:
            print_json(found)
            return
        rows = [(one["name"], one["id"], one["lease"], one["provider"]) for one in found]
        columns = ("name", "job", "lease", "provider")
        print_table("volumes", columns, rows, whole=("job", "lease"), drop=("provider",))

    run_story(story)


@app.command()
def export(
    home: Home,
    name: Name,
    file: Annotated[Path, typer.Argument(help="Where to; one that is there is replaced.")],
    to: Annotated[
        str, typer.Option(help="Seal it to this age recipient (age1…), not to the purse.")
    ] = "",
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """All that lies on a volume, as a tar archive that is sealed before it leaves its provider."""

    async def story() -> None:
        from marketplace.client.sdk import volume

        async with reading(Where(market, "", "", home)) as opened:
            job, purse = await _chosen(opened, name)
            size = await volume.exported(job, purse, name, file, to, _shown(as_json))
        if as_json:
            print_json({"file": str(file), "bytes": size, "volume": job.id})
        else:
            out.print(f"{file}: {size} bytes", markup=False)

    run_story(story)


@app.command("import")
def import_(
    home: Home,
    name: Name,
    source: Annotated[
        str,
        typer.Argument(
            help="A folder, a tar archive, an exported file; - for an archive piped in."
        ),
    ],
    identity: IdentityFile = None,
    market: MarketOption = DEFAULT_MARKET,
    as_json: Json = False,
) -> None:
    """Put content onto an empty volume: all of it, or nothing."""

    async def story() -> None:
        from marketplace.client.sdk import volume

        opens = _identity(identity)
        path = None if source == "-" else Path(source)
        async with reading(Where(market, "", "", home)) as opened:
            job, purse = await _chosen(opened, name)
            size = await volume.imported(job, purse, name, path, opens, _shown(as_json))
        if as_json:
            print_json({"volume": job.id, "bytes": size})
        else:
            out.print(f"{name}: {size} bytes went there", markup=False)

    run_story(story)


@app.command("open")
def open_(
    home: Home,
    file: Annotated[Path, typer.Argument(help="What `tally volume export` wrote.")],
    identity: IdentityFile = None,
) -> None:
    """The tar archive of an exported file, on standard output: `tally volume open FILE | tar x`."""

    async def story() -> None:
        from marketplace.client.jobs import sealed_volumes
        from marketplace.client.sdk import volume

        opens = _identity(identity)
        if opens is None:
            purse = await anyio.to_thread.run_sync(load_purse, home)
            opens = sealed_volumes.identity_of(purse.signer)
        await anyio.to_thread.run_sync(volume.opened, file, sys.stdout.buffer, opens)
        sys.stdout.buffer.flush()

    run_story(story)


def _identity(file: Path | None) -> pyrage.x25519.Identity | None:
    from marketplace.client.jobs import sealed_volumes

    return None if file is None else sealed_volumes.identity_in(file)


async def _chosen(opened: Reader, name: str) -> tuple[Job, Purse]:
    found = one_of(name, await opened.jobs(state="RUNNING"))
    assert opened.purse is not None  # ``reading`` signed in with it
    return opened.job(found["id"]), opened.purse


def _shown(quiet: bool) -> Callable[[int], None]:
    def told(done: int) -> None:
        if err.is_terminal and not quiet:
            err.print(f"{done / _MIB:.0f} MiB", end="\r", markup=False)

    return told
