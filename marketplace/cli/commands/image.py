"""``tally image``: one's images in the market's registry."""

from __future__ import annotations

from typing import Annotated

import anyio
import anyio.to_thread
import typer

from marketplace.cli.shared.consumer import reading
from marketplace.cli.shared.options import Home, Json, Where, Yes
from marketplace.cli.shared.options import Market as MarketOption
from marketplace.cli.shared.printing import print_json, print_table
from marketplace.cli.shared.refusals import Declined
from marketplace.cli.shared.screen import err, out
from marketplace.client.images.registry import Account, Holdings, MarketRegistry, NoImage, Stored
from marketplace.domain.work.image_names import Reference

app = typer.Typer(
    help="Your images in the market's registry.", no_args_is_help=True, rich_markup_mode=None
)
_MIB = 1 << 20


@app.callback()
def image() -> None:
    """Your images in the market's registry: private, unless you make one public."""


@app.command()
def push(
    name: Annotated[str, typer.Argument(help="As this machine's Docker calls it.")],
    home: Home,
    market: MarketOption,
    to: Annotated[str, typer.Option("--as", help="NAME[:TAG] there; without it, as here.")] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Anybody may pull it, from now on.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Push an image of this machine's Docker; prints the name to put into a job file."""

    async def run() -> None:
        from marketplace.client.images import pushing

        async with reading(Where(market, "", "", home)) as reader:
            registry = MarketRegistry(reader.http)
            account = await registry.account()
            there = account.name(to or _short(name))
            if public:
                await registry.set_public(there.repository.partition("/")[2], True)

            def told(done: int, most: int) -> None:
                if err.is_terminal and not as_json:
                    line = f"sent {done / _MIB:.0f} of {most / _MIB:.0f} MiB"
                    err.print(line, end="\r", markup=False)

            done = await anyio.to_thread.run_sync(
                pushing.push, name, there, reader.http.token, told
            )
        pinned = there.at(done.digest)
        if as_json:
            print_json(
                {
                    "name": done.name, "image": pinned, "layers": done.layers,
                    "moved": done.moved, "public": there.repository in account.public or public,
                }
            )  # fmt: skip
            return
        err.print(f"{done.moved} of {done.layers} layers were sent", markup=False)
        out.print(f"image: {done.name}", markup=False)
        out.print(f"       {pinned}", markup=False)

    anyio.run(run)


def _short(name: str) -> str:
    """``tally/python:local`` is ``python`` there: the tag ``local`` stands for no registry's."""
    reference = Reference.parse(name)
    tag = "latest" if reference.tag == "local" else reference.tag
    return f"{reference.repository.rpartition('/')[2]}:{tag}"


@app.command("list")
def list_(home: Home, market: MarketOption, as_json: Json = False) -> None:
    """What lies there, and the room that it takes."""

    async def run() -> None:
        async with reading(Where(market, "", "", home)) as reader:
            registry = MarketRegistry(reader.http)
            account = await registry.account()
            _show(account, await registry.holdings(account), as_json)

    anyio.run(run)


def _show(account: Account, held: Holdings, as_json: bool) -> None:
    prefix = f"{account.registry}/{account.namespace}/"
    if as_json:
        items = [
            {
                "image": f"{account.registry}/{one.repository}@{one.digest}", "tags": one.tags,
                "bytes": one.bytes, "layers": one.layers, "pushed_at_ms": one.pushed_ms,
                "public": one.repository in account.public,
            }
            for one in held.images
        ]  # fmt: skip
        print_json({"prefix": prefix, "used": held.used, "quota": held.quota, "items": items})
        return
    rows: list[tuple[object, ...]] = []
    for one in held.images:
        name = one.repository.partition("/")[2]
        who = "anybody" if one.repository in account.public else "you"
        label = ", ".join(f"{name}:{tag}" for tag in one.tags) or f"{name} (no tag)"
        rows.append((label, one.digest[7:19], f"{one.bytes / _MIB:.1f}", who))
    print_table("images", ("image", "digest", "MiB", "pulled by"), rows)
    out.print(
        f"{held.used / _MIB:.0f} of {held.quota / _MIB:.0f} MiB are taken. Whole names begin with"
        f" {prefix}",
        markup=False,
    )


@app.command()
def rm(
    name: Annotated[str, typer.Argument(help="NAME, NAME:TAG or NAME@sha256:…, as listed.")],
    home: Home,
    market: MarketOption,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete an image with all its tags; NAME alone: all of them. Leases that run keep theirs."""

    async def run() -> None:
        async with reading(Where(market, "", "", home)) as reader:
            registry = MarketRegistry(reader.http)
            account = await registry.account()
            chosen = _chosen(account, await registry.holdings(account), name)
            if not yes:
                for one in chosen:
                    err.print(f"{one.repository}@{one.digest} {', '.join(one.tags)}", markup=False)
                if not typer.confirm("Delete?", err=True):
                    raise Declined("nothing was deleted")
            for one in chosen:
                await registry.delete(account, one)
        if as_json:
            print_json({"deleted": [f"{one.repository}@{one.digest}" for one in chosen]})
            return
        out.print(
            f"{len(chosen)} deleted; the room comes back with the registry's next collection",
            markup=False,
        )

    anyio.run(run)


def _chosen(account: Account, held: Holdings, name: str) -> list[Stored]:
    wanted = account.name(name)
    tagged = ":" in name.removeprefix(f"{account.registry}/").partition("@")[0]
    found = [
        one
        for one in held.images
        if one.repository == wanted.repository
        and (not wanted.digest or one.digest == wanted.digest)
        and (not tagged or wanted.tag in one.tags)
    ]
    if not found:
        raise NoImage(f"there is no {name}")
    return found


@app.command()
def share(
    name: Annotated[str, typer.Argument(help="Its name, without a tag.")],
    home: Home,
    market: MarketOption,
    private: Annotated[bool, typer.Option("--private", help="End it.")] = False,
    as_json: Json = False,
) -> None:
    """Let anybody pull an image, all its tags; or end that."""

    async def run() -> None:
        async with reading(Where(market, "", "", home)) as reader:
            registry = MarketRegistry(reader.http)
            whole = (await registry.account()).name(name)
            await registry.set_public(whole.repository.partition("/")[2], not private)
        if as_json:
            print_json({"repository": whole.repository, "public": not private})
            return
        who = "your account, and the providers of its leases" if private else "anybody"
        out.print(f"{whole.host}/{whole.repository} is pulled by {who}", markup=False)

    anyio.run(run)
