"""Every listing command in terminals of 80 and 60 columns: no word is broken, whatever is left
out; and what money looks like on each of them.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.integration.client.test_cli import JOB, Shell, provide
from tests.integration.support.client import World, story
from tests.unit.cli.test_prices import source
from tests.unit.support.terminal import lines_of

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(800)]
LISTINGS = [
    "offers search", "offers search price<1 --explain", "job list", "job show {job}",
    "job quote {file}", "job outputs {job}", "invoice {job}", "purse show", "channel list",
    "spend --by day", "spend --by job", "spend --by key",
]  # fmt: skip


def broken(narrow: list[str], wide: str, columns: int) -> list[str]:
    """Words of *narrow* that are part of a word of *wide* only, and lines that do not fit."""
    whole = set(wide.split())
    cut = [w for line in narrow for w in line.split() if w not in whole and _piece(w, whole)]
    beyond = [x for x in narrow if len(x) > columns and len(x.split()) > 2 and _is_row(x, columns)]
    return cut + beyond


def _piece(word: str, whole: set[str]) -> bool:
    return len(word) > 3 and any(word in one for one in whole)


def _is_row(line: str, columns: int) -> bool:
    """Not a sentence, which a terminal folds, nor a value that is longer than the terminal."""
    gaps = re.findall(r"\S {2,}(?=\S)", line)
    return len(gaps) > 1 and max(map(len, line.split())) < columns - 20


def test_no_listing_breaks_a_word_and_money_is_by_the_hour(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        shell, file = Shell(world), tmp_path / "job.yaml"
        world.purse()
        file.write_text(JOB)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(provide, world)
            done = await shell.tally("job", "run", str(file), "--yes")
            assert done.returncode == 0, done.stderr
        [job] = [one["id"] for one in await shell.json("job", "list")]

        async def screen(words: list[str], columns: int) -> list[str]:
            command = [sys.executable, "-m", "marketplace.cli.main", *words]
            return await anyio.to_thread.run_sync(lines_of, command, columns, shell.env)

        for listing in LISTINGS:
            words = [word.format(job=job, file=file) for word in listing.split()]
            wide = await shell.tally(*words)
            assert wide.returncode == 0, wide.stderr
            for columns in (80, 60):
                found = broken(await screen(words, columns), wide.stdout, columns)
                assert found == [], (listing, columns)

        offers = (await shell.tally("offers", "search")).stdout
        assert "0.018 ADA" in offers and "5 lovelace per core-second" in offers
        assert offers.index("0.018 ADA") < offers.index("5 lovelace")
        exact = (await shell.tally("job", "quote", str(file), "--exact")).stdout
        assert "301 lovelace" in exact and " ADA per" not in exact
        answer = {"ada_usd": "0.5", "at_ms": time.time_ns() // 1_000_000}
        with source(answer) as url:
            for words in (["offers", "search"], ["job", "quote", str(file)], ["job", "show", job]):
                told = (await shell.tally(*words, "--price-url", url)).stdout
                assert "≈ $0.009" in told and "1 ADA ≈ $0.5 at 20" in told, told
        assert "$" not in offers  # nobody was named

    story(tmp_path, tell)
