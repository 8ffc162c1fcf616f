"""A market that does not answer is said soon, with what to do, whatever it does not answer with."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

WHAT_TO_DO = "--market or TALLY_MARKET"
HELLO = str(Path(__file__).parents[3] / "examples" / "hello.yaml")
ASKS = (
    ["offers", "search"],
    ["job", "quote", HELLO],
    ["job", "run", HELLO, "--yes"],
    ["job", "list"],
    ["job", "stop", "job_x"],
    ["invoice", "job_x"],
    ["spend"],
)
"""Commands that read and commands that pay. None has a purse here: the market is asked before."""
PAYER = ["payer", "run"]
asks = pytest.mark.parametrize("words", ASKS, ids=lambda words: " ".join(words[:2]))


def command(tmp_path: Path, port: int, *words: str) -> subprocess.Popen[str]:
    """``tally WORDS`` at a market of this machine, under way."""
    env = {
        "TALLY_HOME": str(tmp_path),
        "TALLY_MARKET": f"http://127.0.0.1:{port}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "marketplace.cli.main", *words],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.fixture
def listening() -> Generator[socket.socket]:
    """A socket that listens and is never accepted from; one connection waits at most."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        found.listen(0)
        yield found


@pytest.mark.parametrize("words", [*ASKS, PAYER], ids=lambda words: " ".join(words[:2]))
def test_a_market_that_takes_connections_and_says_nothing_is_told_while_it_is_waited_for(
    tmp_path: Path, listening: socket.socket, words: list[str]
) -> None:
    with command(tmp_path, listening.getsockname()[1], *words) as run:
        assert run.stderr is not None
        line = run.stderr.readline()
        still_waits = run.poll() is None
        run.kill()
    assert "has not answered yet" in line and WHAT_TO_DO in line
    assert still_waits


@pytest.fixture
def full(listening: socket.socket) -> Generator[socket.socket]:
    """One whose queue is full: what knocks now hears nothing at all."""
    with ExitStack() as stack:
        for _ in range(8):
            knock = stack.enter_context(closing(socket.socket()))
            knock.setblocking(False)
            knock.connect_ex(listening.getsockname())
        yield listening


@asks
def test_one_that_takes_no_connection_is_given_up(
    tmp_path: Path, full: socket.socket, words: list[str]
) -> None:
    with command(tmp_path, full.getsockname()[1], *words) as run:
        _, told = run.communicate(timeout=60)
    last = told.splitlines()[-1]
    assert run.returncode == 4
    assert "MARKET_UNREACHABLE" in last and "ConnectTimeout" in last and WHAT_TO_DO in last


@pytest.fixture
def free() -> Generator[socket.socket]:
    """Nobody listens there, and nobody else can."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        yield found


@asks
def test_one_that_refuses_is_given_up(
    tmp_path: Path, free: socket.socket, words: list[str]
) -> None:
    with command(tmp_path, free.getsockname()[1], *words) as run:
        _, told = run.communicate(timeout=60)
    assert run.returncode == 4
    assert "MARKET_UNREACHABLE" in told and "ConnectError" in told and WHAT_TO_DO in told


def test_a_payer_says_for_which_market_it_waits_and_goes_on_waiting(
    tmp_path: Path, free: socket.socket
) -> None:
    with command(tmp_path, free.getsockname()[1], *PAYER) as run:
        assert run.stderr is not None
        lines = [run.stderr.readline() for _ in range(3)]
        still_waits = run.poll() is None
        run.kill()
    assert all(WHAT_TO_DO in line for line in lines)
    # On a busy machine the refusal itself may be late enough for a word about that.
    assert sum("waiting MARKET_UNREACHABLE" in line for line in lines) >= 2
    assert still_waits


def test_programs_hear_of_it_in_the_refusal_alone(tmp_path: Path, full: socket.socket) -> None:
    with command(tmp_path, full.getsockname()[1], "offers", "search", "--json") as run:
        _, told = run.communicate(timeout=60)
    assert told.count("\n") == 1 and told.startswith('{"code": "MARKET_UNREACHABLE"')
