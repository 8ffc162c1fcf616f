"""The examples for CI: what they run is there, and the purse arrives as `tally` finds it."""

from __future__ import annotations

import base64
import os
import re
import stat
import subprocess
from pathlib import Path

import yaml

from marketplace.client.wallet.purse import Purse

ROOT = Path(__file__).parents[3]
CI = ROOT / "examples" / "ci"
PASSPHRASE = "a passphrase of the tests"


def test_a_purse_that_was_packed_as_the_page_says_opens_again(tmp_path: Path) -> None:
    home, there = tmp_path / "home", tmp_path / "runner" / "home"
    made = Purse.create(home, passphrase=PASSPHRASE)
    assert 'tar -C "$TALLY_HOME" -cz keys | base64 -w0' in (ROOT / "docs/ci.md").read_text()
    packed = subprocess.run(
        ["tar", "-C", str(home), "-cz", "keys"], check=True, capture_output=True
    ).stdout
    secret = tmp_path / "passphrase"
    env = {
        "PATH": os.environ["PATH"], "TALLY_HOME": str(there), "TALLY_PASSPHRASE": PASSPHRASE,
        "TALLY_PASSPHRASE_FILE": str(secret), "TALLY_PURSE": base64.b64encode(packed).decode(),
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(CI / "purse.sh")], env=env, check=True, capture_output=True, text=True
    )
    assert not done.stdout and not done.stderr
    assert secret.read_text() == PASSPHRASE + "\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600
    again = Purse.load(there, passphrase=PASSPHRASE)
    assert again.address(mainnet=False) == made.address(mainnet=False)
    del env["TALLY_PURSE"]
    assert subprocess.run(["sh", str(CI / "purse.sh")], env=env, capture_output=True).returncode


def test_the_script_ends_as_the_job_does(tmp_path: Path) -> None:
    program = tmp_path / "tally"
    program.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n[ "$2" != run ] || exit 3\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", str(CI / "run.sh"), "job.yaml"], env=env)
    assert done.returncode == 3
    asked = (tmp_path / "tally.log").read_text().splitlines()
    assert asked == ["job quote job.yaml", "job run job.yaml --yes --keep 0 --outputs outputs"]


def test_the_action_runs_what_is_there_and_puts_no_secret_on_a_command_line() -> None:
    action = yaml.safe_load((CI / "github-action.yml").read_text())
    steps = action["jobs"]["train"]["steps"]
    lines = [str(step["run"]) for step in steps if "run" in step]
    named = re.findall(r"examples/\S+", "\n".join(lines))
    assert named and all((ROOT / name).exists() for name in named)
    assert "secrets." not in "\n".join(lines)
