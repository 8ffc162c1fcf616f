"""What a command imports: only those that build transactions wait for the libraries that do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "pycardano",
    "ogmios",
    "blockfrost",
    "structlog",
    "fastapi",
    "sqlalchemy",
    "numpy",
    "docker",
    "pydantic",
    "click",
    "pygments",
)
"""The dear ones: pycardano and ogmios alone cost 1.6 s of CPU; click and pygments come with httpx,
for a command line of its own.
"""

FOR_COMMANDS = ("typer", "rich", "httpx", "anyio", "cbor2", "nacl")
"""What every command needs and the program's name and release do not."""

RUN = """
import json, sys
from marketplace.cli import main
from marketplace.domain.errors import TallyError
try:
    main.run(sys.argv[1:])
except (SystemExit, TallyError):
    pass
sys.stderr.write("\\nMODULES " + json.dumps(sorted({n.partition(".")[0] for n in sys.modules})))
"""


def imported(tmp: str, *words: str) -> set[str]:
    """The packages that are loaded once ``tally WORDS`` has ended; the market is not there."""
    env = {
        "TALLY_HOME": tmp,
        "TALLY_MARKET": "http://127.0.0.1:1",
        "PATH": "/usr/bin:/bin",
        "HOME": tmp,
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], capture_output=True, text=True, env=env,
        stdin=subprocess.DEVNULL, timeout=120, check=False,
    )  # fmt: skip
    told = done.stderr.rpartition("MODULES ")[2]
    assert told, done.stderr
    return set(json.loads(told))


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["offers", "search"],
        ["job", "--help"],
        ["job", "list"],
        ["job", "show", "job_x"],
        ["job", "logs", "job_x"],
        ["invoice", "job_x"],
        ["purse", "--help"],
        ["wallet", "show"],
        ["channel", "--help"],
    ],
    ids=" ".join,
)
def test_reading_commands_do_not_wait_for_what_builds_transactions(
    tmp_path: object, words: list[str]
) -> None:
    found = imported(str(tmp_path), *words)
    assert "marketplace" in found  # the command itself was loaded
    assert not found & set(HEAVY)


def test_a_search_reads_no_job_and_checks_no_signature(tmp_path: object) -> None:
    found = imported(str(tmp_path), "offers", "search")
    assert "httpx" in found  # the market was asked
    assert "nacl" not in found


def test_the_release_is_said_without_what_commands_need(tmp_path: object) -> None:
    assert not imported(str(tmp_path), "--version") & {*HEAVY, *FOR_COMMANDS}


def test_a_command_that_pays_is_seen_to_import_them(tmp_path: object) -> None:
    assert {"pycardano", "structlog"} <= imported(str(tmp_path), "payer", "run")
