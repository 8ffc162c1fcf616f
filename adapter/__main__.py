"""``python -m adapter``: the daemon without the rest of the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adapter.config import load
from adapter.main import main
from marketplace.domain.errors import Refusal


def run(arguments: list[str] | None = None) -> int:
    """Parse the options and serve; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m adapter", description=__doc__)
    parser.add_argument("--config", type=Path, help="TOML or YAML file")
    parser.add_argument("--market", help="the market's URL")
    parser.add_argument("--chain-url", help="a Blockfrost-compatible URL")
    parser.add_argument("--project-id", help="for a hosted Blockfrost")
    parser.add_argument("--home", type=Path, help="default ~/.tally")
    parser.add_argument("--state", type=Path, help="default HOME/adapter")
    parser.add_argument("--simulate", help="simulated devices such as h100x2; devnet only")
    parser.add_argument("--runtime", help="auto, docker, process or both")
    given = vars(parser.parse_args(arguments))
    path = given.pop("config")
    try:
        return main(load(path, given), reread=lambda: load(path, given))
    except Refusal as refusal:
        print(refusal.line(), file=sys.stderr)  # noqa: T201  the command line's own voice
        return 3


if __name__ == "__main__":
    sys.exit(run())
