"""A file holds one idea: none is over 400 lines but those that are named here, each with why."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MOST: Final = 400
MEDIAN: Final = 110
PYTHON: Final = ("adapter/*.py", "marketplace/*.py", "contracts/*.py", "benchmarks/*.py")
PAGES: Final = ("web/*.js", "web/*.css", "web/*.ts")
LONG: Final[Mapping[str, str]] = {
    "adapter/money/channel_agent.py": "one look at a channel, from what stands there to its step",
    "adapter/simulate/library.py": "a function for each symbol of NVML, like the header it mirrors",
    "contracts/channel/settle.py": "an auditor reads the whole script from top to bottom",
    "contracts/devnet/node.py": "what changes the chain holds one lock, and is seen in one place",
    "marketplace/client/wallet/chain_wallet.py": "what a purse does at a chain, under one lock",
    "marketplace/store/migrations/versions/0001_all_tables_of_the_first_release.py": (
        "one schema, made in one step; a released migration is not changed"
    ),
}


def lines_of(*patterns: str) -> dict[str, int]:
    """The lines of every tracked file that is not empty, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    found = {name: len((ROOT / name).read_text().splitlines()) for name in files}
    return {name: lines for name, lines in found.items() if lines}


def test_a_long_file_is_one_that_says_why() -> None:
    sizes = lines_of(*PYTHON, *PAGES)
    assert len(sizes) > 500, "the source is not where it was looked for"
    assert {name for name, lines in sizes.items() if lines > MOST} == LONG.keys()


def test_the_median_file_is_short() -> None:
    assert median(lines_of(*PYTHON).values()) <= MEDIAN
