"""``tally adapter``: the provider's side."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from rich.console import Group
from rich.live import Live

from adapter.config import Config, ConfigRefused, load
from adapter.daemon.reprice import read_prices
from adapter.daemon.reprice import reprice as write_prices
from adapter.daemon.status import ask
from adapter.devices.scrub import Quarantine
from adapter.doctor.configured import examine
from adapter.doctor.run import exit_code, report_json, support_bundle
from adapter.main import main as run_adapter
from adapter.main import withdraw_fees
from marketplace.cli.commands.adapter_screen import earnings_screen, status_screen
from marketplace.cli.commands.money.passphrase import change_passphrase
from marketplace.cli.shared.options import Json
from marketplace.cli.shared.printing import print_json
from marketplace.cli.shared.screen import out
from marketplace.domain.errors import NotFound
from marketplace.domain.units import show_ada

app = typer.Typer(
    help="The provider's side: doctor, run, status, drain.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML or YAML (docs/provider.md).")
]
Runtime = Annotated[str, typer.Option(help="docker, process or both.")]
State = Annotated[Path | None, typer.Option(help="Where the adapter keeps keys and journal.")]


@app.command()
def run(
    config: ConfigFile = None,
    market: Annotated[str, typer.Option(envvar="TALLY_MARKET")] = "",
    chain_url: Annotated[str, typer.Option(envvar="TALLY_CHAIN_URL")] = "",
    project_id: Annotated[str, typer.Option(envvar="TALLY_PROJECT_ID")] = "",
    payout: Annotated[str, typer.Option(help="Where you want to be paid.")] = "",
    simulate: Annotated[
        str, typer.Option(help="Simulated GPUs, such as h100x2: devnets only.")
    ] = "",
    runtime: Runtime = "",
    state: State = None,
) -> None:
    """Offer this machine until Ctrl-C; workloads live on and are taken over by the next run."""
    options = {
        "market": market, "chain_url": chain_url, "project_id": project_id, "payout": payout,
        "simulate": simulate, "runtime": runtime, "state": state,
    }  # fmt: skip
    code = run_adapter(
        load(config, options),
        lambda daemon, till: print_json(
            {
                "provider": daemon.own.offer.provider,
                "offer": daemon.own.offer.id,
                "fee_address": till.fees.address,
                "fund": till.fund,
            }
        ),
        lambda: load(config, options),
    )
    sys.exit(code)


def _load(config: Path | None, **options: object) -> Config:
    return load(config, options)


@app.command()
def doctor(
    config: ConfigFile = None,
    market: Annotated[str, typer.Option(envvar="TALLY_MARKET")] = "",
    state: State = None,
    bundle: Annotated[
        Path | None, typer.Option(help="Also write a support bundle, without secrets.")
    ] = None,
    runtime: Runtime = "",
    quick: Annotated[bool, typer.Option(help="Do not start a trial container.")] = False,
    as_json: Json = False,
) -> None:
    """Test this machine and the path a container takes; every finding has a code and a remedy."""
    loaded = _load(config, market=market, runtime=runtime, state=state)
    if not (market or config):
        loaded = replace(loaded, market="")  # the default address is nobody's choice
    if not (config or os.environ.get("TALLY_CHAIN_URL")):
        loaded = replace(loaded, chain_url="")
    findings = examine(loaded, quick=quick)
    if bundle is not None:
        texts = {"config": config.read_text()} if config is not None else {}
        support_bundle(bundle, findings, texts)
    if as_json:
        sys.stdout.write(report_json(findings) + "\n")
    else:
        colours = {"error": "red", "warning": "yellow", "info": "cyan"}
        for one in findings:
            colour = colours.get(one.severity.value, "white")
            out.print(f"[{colour}]{one.severity.value:<8}[/] [bold]{one.code}[/]")
            out.print(f"  {one.cause}\n  → {one.remedy}", markup=False)
        errors = sum(one.severity.value == "error" for one in findings)
        out.print(f"{len(findings)} findings, {errors} that keep this machine from work")
    sys.exit(exit_code(findings))


@app.command()
def status(
    config: ConfigFile = None,
    state: State = None,
    watch: Annotated[bool, typer.Option(help="Keep the table on screen.")] = False,
    as_json: Json = False,
) -> None:
    """Leases, utilisation, what was earned and is unclaimed, and why there is no work."""
    path = _load(config, state=state).status_path

    async def look() -> None:
        if as_json:
            print_json(await ask(path))
            return
        if not watch:
            out.print(_screen(await ask(path)))
            return
        with Live(_screen(await ask(path)), console=out, refresh_per_second=2) as live:
            while True:
                await anyio.sleep(1)
                live.update(_screen(await ask(path)))

    anyio.run(look)


@app.command()
def earnings(config: ConfigFile = None, state: State = None, as_json: Json = False) -> None:
    """What was claimed, what it cost and what is left: by day, by lease, by transaction."""
    found = anyio.run(ask, _load(config, state=state).status_path, "earnings")
    if as_json:
        print_json(found)
    else:
        out.print(earnings_screen(found, out.width))


@app.command("reload")
def reload_(config: ConfigFile = None, state: State = None, as_json: Json = False) -> None:
    """Read the configuration again: prices, minimum, labels, region and maintenance change at once,
    leases that run keep their price; the rest is named and needs a restart.
    """
    _told(anyio.run(ask, _load(config, state=state).status_path, "reload"), as_json)


@app.command()
def reprice(
    prices: Annotated[list[str], typer.Argument(help="core=5, or 'RTX 4090=220 lovelace'.")],
    config: ConfigFile = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """New prices: into the configuration file's [prices], and at once into the running adapter's
    offer. Leases that run keep their price.
    """
    if config is None:
        raise ConfigRefused("name the file with --config: prices are kept there")
    path = _load(config, state=state).status_path
    anyio.run(ask, path)  # nothing is written for an adapter that does not run
    write_prices(config, read_prices(prices))
    _told(anyio.run(ask, path, "reload"), as_json)


def _told(done: dict[str, Any], as_json: bool) -> None:
    """What a reload changed."""
    if as_json:
        print_json(done)
        return
    out.print(f"changed: {', '.join(done['applied']) or 'nothing'}", markup=False)
    if done["core"]:
        out.print(f"  core: {done['core']}", markup=False)
    for name, rate in done["prices"].items():
        out.print(f"  {name}: {rate}", markup=False)
    if done["restart"]:
        out.print(f"needs a restart: {', '.join(done['restart'])}", markup=False)


@app.command()
def drain(
    config: ConfigFile = None,
    state: State = None,
    off: Annotated[bool, typer.Option("--off", help="Take work again.")] = False,
) -> None:
    """Take no new work; what runs goes on to its end."""
    path = _load(config, state=state).status_path
    anyio.run(ask, path, "undrain" if off else "drain")
    out.print("takes work again" if off else "drains: running leases go on, nothing new is taken")


@app.command()
def withdraw(
    address: Annotated[str, typer.Argument(help="Where the fee key's ADA goes.")],
    config: ConfigFile = None,
    state: State = None,
    chain_url: Annotated[str, typer.Option(envvar="TALLY_CHAIN_URL")] = "",
    project_id: Annotated[str, typer.Option(envvar="TALLY_PROJECT_ID")] = "",
    as_json: Json = False,
) -> None:
    """Send the fee key's ADA home, once the adapter has stopped for good and no channel is open."""
    loaded = _load(config, state=state, chain_url=chain_url, project_id=project_id)
    tx, lovelace = withdraw_fees(loaded, address)
    if as_json:
        print_json({"tx": tx, "lovelace": lovelace, "address": address})
        return
    out.print(f"{show_ada(lovelace)} go to {address}: {tx}", markup=False)


@app.command()
def passphrase(config: ConfigFile = None, state: State = None) -> None:
    """Change the passphrase of this adapter's keys; one that runs goes on, its next start needs the
    new one.
    """
    change_passphrase(_load(config, state=state).folder / "keys")


@app.command()
def release(
    device: Annotated[str, typer.Argument(help="The quarantined device's UUID.")],
    config: ConfigFile = None,
    state: State = None,
) -> None:
    """Let a device that failed its scrub back into the market; reset it first."""
    if Quarantine(_load(config, state=state).folder / "quarantine.json").release(device):
        out.print(f"{device} may be rented again")
    else:
        raise NotFound(f"{device} is not in quarantine")


def _screen(report: dict[str, Any]) -> Group:
    return status_screen(report, out.width)
