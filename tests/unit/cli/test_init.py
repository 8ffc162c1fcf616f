"""``tally init``: its file is a job as it is, every key that it shows is one, nothing is lost."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marketplace.cli.commands import init
from marketplace.client.jobs import jobfiles

ROOT = Path(__file__).parents[3]


def test_the_file_is_a_job_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(init.app, [])
    assert done.exit_code == 0 and "tally job quote job.yaml" in done.stdout
    spec = jobfiles.load("job.yaml").spec
    assert spec.name == "first" and spec.command[0] == "python3"
    assert spec.price.budget == 2_000_000 and spec.policy.max_duration_ms == 300_000


def test_what_is_left_out_holds_too_once_it_is_taken_in(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    init.write(file)
    (tmp_path / "train.py").write_text("")
    taken_in = re.sub(r"^( *)# ( *- \{|\w+:)", r"\1\2", file.read_text(), flags=re.MULTILINE)
    file.write_text(taken_in.replace("#   - {", "  - {"))
    spec = jobfiles.load(file).spec
    assert spec.kind == "service" and spec.ports[0].port == 8000 and spec.files and spec.egress
    assert spec.resources[0].gpu is not None and spec.policy.queue and spec.secrets
    assert spec.price.max_gpu_rate and spec.policy.retry_max == 2 and spec.outputs


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    mine = tmp_path / "job.yaml"
    mine.write_text("mine")
    link = tmp_path / "link.yaml"
    os.symlink(tmp_path / "elsewhere", link)
    for file in (mine, link):
        refused = CliRunner().invoke(init.app, [str(file)])
        assert refused.exit_code == 3 and "FILE_THERE" in refused.stderr
    assert mine.read_text() == "mine" and not (tmp_path / "elsewhere").exists()
    nowhere = CliRunner().invoke(init.app, [str(tmp_path / "no" / "job.yaml")])
    assert nowhere.exit_code == 4 and "MACHINE_REFUSED" in nowhere.stderr


def test_the_examples_come_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(init.app, ["--examples"])
    assert done.exit_code == 0 and "examples/hello.yaml" in done.stdout
    assert jobfiles.load("examples/hello.yaml").spec.name == "hello"
    assert [one.name for one in tmp_path.iterdir()] == ["examples"], "nothing else is left"
    again = CliRunner().invoke(init.app, ["--examples"])
    assert again.exit_code == 3 and "FILE_THERE" in again.stderr
    nowhere = CliRunner().invoke(init.app, ["--examples", str(tmp_path / "no" / "examples")])
    assert nowhere.exit_code == 4 and "MACHINE_REFUSED" in nowhere.stderr


def test_the_wheel_holds_each_example() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    there = {one for one in listed.stdout.split() if not one.startswith("examples/typescript/")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    named = {source: inside for source, inside in held.items() if source.startswith("examples")}
    assert there and named == {one: f"marketplace/{one}" for one in there}
