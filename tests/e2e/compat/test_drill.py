"""Versions meet: an older adapter, payer or market and today's others carry a job from its file to
a bill that the ledger agrees with; a version from before the announced break gets its stated
refusal.

The golden files say that each format still reads; here the programs themselves say so to each
other, over sockets. Which versions: ``versions.toml``. ``make compat`` runs this alone.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.e2e.compat.place import Place, Version, install, place, this_version
from tests.e2e.support.embedded import PATIENCE_S, until_true
from tests.requires import need_bubblewrap, need_commit, need_devnet

VERSIONS: Final[dict[str, list[dict[str, str]]]] = tomllib.loads(
    Path(__file__).with_name("versions.toml").read_text()
)
PAIRINGS: Final = {
    "old-adapter": {"adapter"},
    "old-payer": {"payer"},
    "old-adapter-and-payer": {"adapter", "payer"},
    "old-market": {"market"},
}
"""Who is old; the others are of today."""
PATIENT: Final = PATIENCE_S + 500  # an install without uv's cache fetches some 800 MB

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(PATIENT)]

Get = Callable[[str], Version]


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """A version by its commit, installed once for all tests of this file."""
    there: dict[str, Version] = {}

    def got(commit: str) -> Version:
        need_commit(commit)
        if commit not in there:
            there[commit] = install(commit, tmp_path_factory.mktemp(commit[:7]))
        return there[commit]

    return got


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process's environment says reaches no part."""
    need_bubblewrap()
    need_devnet()
    for name in [name for name in os.environ if name.startswith("TALLY_")]:
        if name != "TALLY_REQUIRE_ALL":
            monkeypatch.delenv(name)


@pytest.mark.parametrize("row", VERSIONS["supported"], ids=lambda row: row["commit"][:7])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_an_older_version_carries_a_whole_job_with_todays_others(
    tmp_path: Path, get: Get, row: dict[str, str], pairing: str
) -> None:
    old, new = get(row["commit"]), this_version()
    parts = {
        part: old if part in PAIRINGS[pairing] else new for part in ("market", "adapter", "payer")
    }

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with place(tmp_path / "place", **parts) as made:
                await made.start_adapter()
                await made.listed()
                await whole_job(made, tmp_path, (old, new))

    anyio.run(main)


async def whole_job(made: Place, folder: Path, verifiers: tuple[Version, ...]) -> None:
    """Posted, matched, run, metered, paid, settled; each of *verifiers* reconciles the invoice."""
    at_once = ("--keep", "0") if made.payer == this_version() else ()  # as payers of before do
    ran = await made.pay("job", "run", job_file(folder), "--yes", "--json", *at_once)
    assert ran.last["reason"] == "COMPLETED" and ran.last["settled"] is True, str(ran)
    job = ran.last["job"]
    assert "hello from a drill" in "\n".join((await made.pay("job", "logs", job)).out)
    evidence = str(folder / "evidence.json")
    billed = await made.pay("invoice", job, "--verify", "--json", "--save", evidence)
    agreed(billed.last)
    for version in verifiers:
        said = await made.pay("invoice", evidence, "--verify", "--json", by=version)
        agreed(said.last)
        assert said.last["lines"] == billed.last["lines"], str(version)


def agreed(bill: dict[str, Any]) -> None:
    """The bill is for metered time on the GPU, and the ledger has it to the lovelace."""
    assert bill["reconciled"] is True, bill
    [line] = bill["lines"]
    assert line["resource"] == "gpu" and line["unit_ms"] > 1000, bill


@pytest.mark.parametrize("row", VERSIONS["refused"], ids=lambda row: row["commit"][:7])
def test_an_adapter_from_before_the_break_is_refused_by_name(
    tmp_path: Path, get: Get, row: dict[str, str]
) -> None:
    new = this_version()

    async def main() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with place(
                tmp_path / "place", market=new, adapter=get(row["commit"]), payer=new
            ) as made:
                await made.start_adapter()

                async def told() -> bool:
                    return row["code"] in made.said("adapter")

                await until_true(told, f"{row['code']}\n{made.said('adapter')}", 90)
                said = await made.pay("job", "run", job_file(tmp_path), "--yes", fails=True)
                assert "NO_MATCH" in str(said), str(said)

    anyio.run(main)


def job_file(folder: Path) -> str:
    """A job of two seconds on a GPU, without an image."""
    path = folder / "job.json"
    code = "import time\nprint('hello from a drill', flush=True)\ntime.sleep(2)"
    path.write_text(
        json.dumps({
            "version": 1,
            "name": "drill",
            "command": ["python3", "-c", code],
            "resources": {"cpu": 0.5, "memory": "128MB", "gpu": {"count": 1}},
            "placement": {"isolation": "process"},
            "price": {"budget": "5 ADA"},
            "policy": {"max_duration": "10m"},
        })
    )  # fmt: skip
    return str(path)
