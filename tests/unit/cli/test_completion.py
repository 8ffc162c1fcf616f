"""Completion scripts: made from the commands that exist, and what a shell makes of them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from marketplace.cli.commands import completion
from marketplace.cli.main import COMMANDS

TABLE = {
    "up": completion.Known(("--home", "--port")),
    "job": completion.Known((), {"quote": ("--json",), "run": ("--help", "--yes")}),
}


def completed(*words: str) -> list[str]:
    """What bash offers for the last of *words*."""
    line = " ".join(f"'{word}'" for word in words)
    told = completion.script("bash", TABLE) + (
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _tally; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", told], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("tally", ""), ["up", "job"]),
        (("tally", "j"), ["job"]),
        (("tally", "job", ""), ["quote", "run"]),
        (("tally", "job", "run", "-"), ["--help", "--yes"]),
        (("tally", "job", "run", "x"), []),  # files, by the shell itself
        (("tally", "job", "run", "a.yaml", "--y"), ["--yes"]),
        (("tally", "up", "--p"), ["--port"]),
        (("tally", "nothing", ""), []),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered


def test_every_command_is_in_every_script() -> None:
    table = {name: completion.known(name) for name in COMMANDS}
    assert {"quote", "run", "list", "show", "logs", "exec", "stop"} <= set(table["job"].below)
    assert {"--yes", "--json", "--home"} <= set(table["job"].below["run"])
    assert "--verify" in table["invoice"].options
    for shell in completion.SHELLS:
        script = completion.script(shell, table)
        assert all(name in script for name in COMMANDS)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_reads_its_script(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    told = completion.script(shell, TABLE)
    done = subprocess.run([program, "-n"], input=told, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
