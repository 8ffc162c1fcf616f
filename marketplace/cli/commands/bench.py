"""``tally bench``: measure and print figures; nothing is asserted, machines are noisy."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Final

import typer

from marketplace.cli.shared.logs import configure_logs
from marketplace.cli.shared.refusals import UsageError

app = typer.Typer(help="Measure; print figures.", no_args_is_help=True, rich_markup_mode=None)

BENCHES: Final = {
    "openb": "Placement quality on Alibaba's GPU-sharing traces.",
    "matching": "Decisions and durable jobs per second.",
    "expected_start": "What quotes say of starts, held against the starts.",
    "locality": "How soon jobs run, by where their images are.",
    "fairness": "Finish-time fairness on Philly-derived jobs.",
    "channel": "What settling costs, from real signed transactions.",
    "purse": "What a hundred small jobs cost everybody, from real signed transactions.",
    "route": "What each party of a routed lease loses to a liar, over many worlds.",
    "start": "From a posted job to a running container.",
    "hub": "Ticks and reads of a market with 200 jobs.",
    "cluster": "How soon the members of a large cluster have their orders, and what they cost.",
    "runtimes": "What a container, a plain process and a mesh cost the same work in PyTorch.",
    "mesh": "Throughput of a mesh, direct and relayed, beside wireguard-go alone.",
    "notebook": "From asking for a notebook to a page that can be used.",
    "scaling": "What a service costs, and what is late, scaled by demand and ahead of it.",
    "gateway": "What the way through the market costs a request to a port.",
}


class BenchmarksMissing(UsageError):
    """The product is installed without its source checkout, where the benchmarks are."""

    code = "BENCHMARKS_MISSING"
    remedy = "run `tally bench` in a checkout of the source, after `make install`"


def _bench(name: str, purpose: str) -> None:
    @app.command(
        name,
        help=purpose + " Options: see --help-bench.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def run(ctx: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        arguments = ["--help" if a == "--help-bench" else a for a in ctx.args]
        if find_spec("benchmarks") is None:
            raise BenchmarksMissing("the benchmarks are not installed")
        configure_logs()
        code = importlib.import_module(f"benchmarks.{name}").main(arguments)
        if code:
            sys.exit(code)


for _name, _purpose in BENCHES.items():
    _bench(_name, _purpose)
