"""Whatever goes wrong in a command ends as one line with a code, and with the exit code of its
kind.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marketplace.chain.errors import ChainFault
from marketplace.cli.shared.refusals import UsageError, guarded, wants_json
from marketplace.domain.errors import Malformed, NotFound


def raising(error: BaseException) -> Callable[[], Any]:
    def command() -> None:
        raise error

    return command


def tally(home: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    env = {"TALLY_HOME": str(home), "HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-m", "marketplace.cli.main", *words], capture_output=True, text=True,
        env=env, stdin=subprocess.DEVNULL, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("what?"), 2, "USAGE"),
        (Malformed("'lots' is not an amount"), 2, "see `tally COMMAND --help`"),
        (NotFound("no job x"), 3, "NOT_FOUND"),
        (ChainFault("no answer"), 4, "CHAIN_FAULT"),
        (OSError(errno.ENOSPC, "No space left on device"), 4, "DISK_FULL"),
        (OSError(errno.EACCES, "Permission denied", "/x"), 4, "MACHINE_REFUSED: /x"),
        (OSError(errno.EADDRINUSE, "Address already in use"), 3, "PORT_TAKEN"),
        (TimeoutError("no offer within 30 s"), 4, "NOT_IN_TIME: no offer within 30 s"),
        (TimeoutError(), 4, "NOT_IN_TIME: what was waited for"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("g", [KeyboardInterrupt()]), 130, ""),
        (ExceptionGroup("g", [ExceptionGroup("h", [ChainFault("away")])]), 4, "CHAIN_FAULT"),
        (ExceptionGroup("g", [OSError(errno.EDQUOT, "Disk quota exceeded")]), 4, "DISK_FULL"),
    ],
)
def test_an_error_becomes_one_line_and_its_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        guarded(raising(error))
    told = capsys.readouterr()
    assert ended.value.code == code and not told.out
    assert said in told.err and "Traceback" not in told.err
    assert len(told.err.splitlines()) == bool(said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["offers", "search", "gpu.vram>=24XB", "--json"], 2, "USAGE"),
        (["offers", "search", "--market", "nonsense", "--json"], 3, "NOT_A_MARKET"),
        (["purse", "show", "--json"], 3, "KEY_MISSING"),
        (["adapter", "withdraw", "addr_test1vz", "--json"], 3, "NO_ADAPTER_STATE"),
        (["job", "list", "--jsn", "--json"], 2, "USAGE"),
        (["job", "show", "--json"], 2, "USAGE"),
        (["spend", "--by", "year", "--json"], 2, "USAGE"),
        (["nosuch", "--json"], 2, "USAGE"),
        (["job", "list", "--market", "http://127.0.0.1:1", "--json"], 4, "MARKET_UNREACHABLE"),
    ],
)
def test_with_json_every_refusal_is_one_object(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = tally(tmp_path, words)
    assert done.returncode == code, done.stderr
    told = json.loads(done.stderr)
    assert told.keys() == {"code", "message", "remedy", "fields"} and not done.stdout
    assert told["code"] == said and told["message"] and told["remedy"]


def test_a_jobs_own_json_is_not_the_commands() -> None:
    assert wants_json(["run", "--json", "--", "x"])
    assert not wants_json(["run", "--image", "x", "--", "report", "--json"])


def test_a_defect_is_not_dressed_up_as_somebodys_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(raising(ZeroDivisionError()))
    with pytest.raises(ExceptionGroup):
        guarded(raising(ExceptionGroup("g", [ZeroDivisionError()])))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nosuch"], 2, "`tally --help` lists them"),
        (["offer"], 2, "did you mean `tally offers`"),
        (["up", "--port", "99999"], 2, "65535"),
        (["up", "--simulate", "nosuch"], 2, "h100"),
        (["offers", "search", "gpu.vram>=24XB"], 2, "24XB"),
        (["offers", "search", "--market", "nonsense"], 3, "NOT_A_MARKET"),
        (["market", "migrate", "--db", "mysql://x"], 2, "mysql"),
        (["faucet", "addr_test1", "lots"], 2, "'lots' is not an amount"),
        (["purse", "show"], 3, "KEY_MISSING"),
        (["wallet", "new", "--home", "/proc/nohome"], 4, "MACHINE_REFUSED"),
    ],
)
def test_wrong_input_is_answered_with_its_code(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = tally(tmp_path, words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_all_that_is_wrong_with_a_job_file_is_said_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("version: 7\nkined: job\nimage: 3\nprice: {budget: ten}\nports: ['8:8']\n")
    done = tally(tmp_path, ["job", "quote", str(file)])
    assert done.returncode == 3 and not done.stdout
    first, *others = done.stderr.splitlines()
    assert "and 4 more" in first and len(others) == 4, done.stderr
    for what in ("version", "kined", "image", "price.budget", "ports"):
        assert what in done.stderr, done.stderr
