"""``tally up``: the whole product on this machine, each part a process, until Ctrl-C; state is
kept.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.abc
import anyio.to_thread
import typer

from adapter.devices.nvml.faults import NvmlFault
from adapter.devices.nvml.nvml import Nvml
from adapter.simulate.profiles import parse_profile
from marketplace.cli.embedded.product import Embedded
from marketplace.cli.embedded.supervise import keep_running
from marketplace.cli.shared.options import Home
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.refusals import UsageError
from marketplace.cli.shared.screen import err, out
from marketplace.client.jobs.sessions import APP, NOTEBOOK
from marketplace.domain.errors import NotFound

app = typer.Typer(
    help="Run devnet, market, adapter and console on this machine.", rich_markup_mode=None
)
_PURSE: Final = 1_000_000_000


def gpus_to_simulate(asked: str) -> str:
    """*asked*, or nothing where a driver answers, or two simulated H100s where none does."""
    if asked:
        try:
            parse_profile(asked)
        except NotFound as unknown:
            raise UsageError(f"--simulate: {unknown.message}") from None
        return asked
    nvml = Nvml()
    try:
        nvml.open()
    except NvmlFault:
        return "h100x2"
    finally:
        nvml.close()
    return ""


def world_of(home: Path) -> Path:
    """*home*, or the home of the embedded market whose consumer's it is: who sourced its ``env``
    and types ``tally up`` again means that market, and no empty one within it.
    """
    inside = home.name == "consumer" and home.parent.name == "up"
    return home.parent.parent if inside and (home.parent / "passphrase").exists() else home


@asynccontextmanager
async def interruptible() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """A task group that Ctrl-C or SIGTERM cancels, so that everything below it is stopped in
    order.
    """

    async def listen(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen, tasks.cancel_scope)
        yield tasks
        tasks.cancel_scope.cancel()


@app.command()
def up(
    home: Home,
    simulate: Annotated[str, typer.Option(help="Simulated GPUs, such as h100x2.")] = "",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The market's and console's port.")
    ] = 8000,
    devnet_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The devnet's port; 0 takes a free one.")
    ] = 8090,
    resume_window: Annotated[
        str, typer.Option(help="How long a lost provider may take to come back.")
    ] = "1m",
    like_preprod: Annotated[
        bool, typer.Option(help="Once it is ready, the devnet goes as slowly as preprod does.")
    ] = False,
    notebooks: Annotated[
        bool,
        typer.Option("--notebooks", help="JupyterLab from PyPI as an image, for `tally notebook`."),
    ] = False,
    apps: Annotated[
        bool, typer.Option("--apps", help="Gradio from PyPI as an image, for `tally app`.")
    ] = False,
    registry: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="A registry of images at this port; 0: none."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line when ready.")] = False,
) -> None:
    """Serve until Ctrl-C; started again, it still knows its offers, jobs, channels and chain."""
    place = Embedded(
        world_of(home) / "up",
        simulate=gpus_to_simulate(simulate),
        port=port,
        devnet_port=devnet_port,
        resume_window=resume_window,
        like_preprod=like_preprod,
        routes=True,
        sessions=(*(NOTEBOOK,) * notebooks, *(APP,) * apps),
        registry=registry,
    )
    anyio.run(_up, place, as_json)


async def _up(place: Embedded, as_json: bool) -> None:
    place.prepare()
    async with interruptible() as tasks:
        try:
            await start(place, _PURSE, (lambda _: None) if as_json else _say)
            if place.like_preprod:
                await place.slow_down()
            for part in place.parts.values():
                tasks.start_soon(keep_running, part)
            if as_json:
                print_json({"ready": True, **place.environment})
            else:
                _welcome(place)
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await place.stop()
    if not as_json:
        out.print("stopped; `tally up` goes on from here")


async def start(place: Embedded, purse: int, say: Callable[[str], None] = lambda _: None) -> None:
    """All parts, each as soon as what it needs is there; the consumer's purse gets *purse*
    lovelace. *say* is told what is waited for.
    """

    async def image() -> None:
        place.image = await anyio.to_thread.run_sync(place.find_image, abandon_on_cancel=True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(image)
        say("a Cardano ledger")
        async with anyio.create_task_group() as first:
            first.start_soon(place.start_devnet)
            first.start_soon(place.purse, "operator")  # before the market opens the same keystore
            if place.routes:
                first.start_soon(place.purse, "router")
        tasks.start_soon(place.fund, purse)
        tasks.start_soon(place.fund_adapter)
        say("the market and its console")
        await place.start_market()
        if place.registry:
            tasks.start_soon(place.start_registry)
        say("purse, channel scripts and the job image")
    say("a provider's adapter")
    await place.start_adapter()


def _say(what: str) -> None:
    err.print(f"starting {what} …", style="dim", markup=False)


def _welcome(place: Embedded) -> None:
    env = place.home / "env"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in place.environment.items()]
    env.write_text("\n".join(lines) + "\n")
    out.print(f"[bold]Tally is up[/]: console and API at {place.market_url}")
    if place.like_preprod:
        out.print("blocks come every 20 s or so, as on preprod: a new channel waits for one")
    if place.simulate:
        out.print(f"GPUs are [yellow]SIMULATED[/] ({place.simulate}); cores are real")
    if not place.image:
        out.print("[yellow]no Docker answers[/]: jobs are plain processes (isolation: process)")
    out.print("in another terminal:\n", markup=False)
    out.print(f"  source {env}", markup=False)
    out.print("  tally offers search", markup=False)
    example = f"examples/{'hello' if place.image else 'process'}.yaml"
    if not Path(example).exists():  # installed without a checkout
        out.print("  tally init --examples", markup=False)
    out.print(f"  tally job run {example}\n", markup=False)
    out.print("Ctrl-C stops it; state is kept", markup=False)
