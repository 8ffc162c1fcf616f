"""What a command imports: only those that build transactions wait for the libraries that do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

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
sys.stderr.write("\\nMODULES " + json.dumps(sorted(n for n in sys.modules if "." not in n)))
"""


@contextmanager
def anybody() -> Generator[str]:
    """The address of a market that says which network it is on, and nothing else."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def imported(tmp: str, *words: str, market: str = "http://127.0.0.1:1") -> set[str]:
    """The packages that are loaded once ``tally WORDS`` has ended: by itself, for want of a market
    or of a purse.
    """
    env = {
        "TALLY_HOME": tmp,
        "TALLY_MARKET": market,
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


PAYING = (["payer", "run"], ["job", "stop", "job_x"])


@pytest.mark.parametrize("words", PAYING, ids=" ".join)
def test_a_command_that_pays_imports_them_once_its_market_answered(
    tmp_path: object, words: list[str]
) -> None:
    with anybody() as market:
        found = imported(str(tmp_path), *words, market=market)
    assert {"pycardano", "structlog"} <= found
    assert "ogmios" not in found, "the chain is not asked by way of Ogmios"


def test_a_command_that_pays_does_not_wait_for_them_where_no_market_is(tmp_path: object) -> None:
    assert not imported(str(tmp_path), "job", "stop", "job_x") & set(HEAVY)
