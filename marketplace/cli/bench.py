"""``tally bench``: measure and print figures; nothing is asserted, machines are noisy."""

from __future__ import annotations

import importlib
import sys
from typing import Final

import typer

app = typer.Typer(help="Measure; print figures.", no_args_is_help=True)

BENCHES: Final = {
    "openb": ("bench_openb", "Placement quality on Alibaba's GPU-sharing traces."),
    "matching": ("bench_matching", "Decisions and durable jobs per second."),
    "fairness": ("bench_fairness", "Finish-time fairness on Philly-derived jobs."),
    "channel": ("bench_channel", "What settling costs, from real signed transactions."),
    "start": ("bench_start", "From a posted job to a running container."),
    "hub": ("bench_hub", "Ticks and reads of a market with 200 jobs."),
}


def _bench(name: str, module: str, purpose: str) -> None:
    @app.command(
        name,
        help=purpose + " Options: see --help-bench.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(ctx: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        arguments = ["--help" if a == "--help-bench" else a for a in ctx.args]
        code = importlib.import_module(f"marketplace.cli.{module}").main(arguments)
        if code:
            sys.exit(code)


for _name, (_module, _purpose) in BENCHES.items():
    _bench(_name, _module, _purpose)
