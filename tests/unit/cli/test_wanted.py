"""A job said on the command line is the job that the same words in a file are, and is refused like
it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marketplace.cli.commands import job
from marketplace.cli.shared.wanted import Wanted
from marketplace.client.jobs import jobfiles
from marketplace.domain.errors import TallyError
from marketplace.domain.work.job import JobSpec

FILE = """\
version: 1
image: python:3.11
command: ["python", "-c", "print(1)"]
resources: {gpu: {model: H100, count: 2}, cpu: 2, memory: 4GB}
price: {budget: 5 ADA}
env: {EPOCHS: "1"}
policy: {max_duration: 15m}
"""


def wanted(
    *changes: str,
    file: Path | None = None,
    image: str | None = None,
    gpu: str | None = None,
    cores: str | None = None,
    memory: str | None = None,
    longest: str | None = None,
    command: tuple[str, ...] = (),
) -> JobSpec:
    return Wanted(file, image, gpu, cores, memory, longest, list(changes), command).load().spec


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    return path


def test_a_job_without_a_file_is_the_job_of_the_file_that_says_the_same(file: Path) -> None:
    said = wanted(
        "resources.gpu.count=2", "resources.gpu.model=H100", "price.budget=5 ADA", "env.EPOCHS=1",
        image="python:3.11", cores="2", memory="4GB", longest="15m",
        command=("python", "-c", "print(1)"),
    )  # fmt: skip
    assert said == jobfiles.load(file).spec


def test_what_is_set_replaces_what_the_file_says(file: Path) -> None:
    spec = wanted(
        "resources.gpu.count=4", "env.A_B=x=y", "name=two", "name=three", "outputs=[/workspace/o]",
        "placement.labels.image/tally/python:3.11=yes",
        file=file, longest="1h", command=("echo", "--json", "--", "a b"),
    )  # fmt: skip
    gpu = spec.resources[0].gpu
    assert gpu is not None and (gpu.models, gpu.count.least) == (("H100",), 4)
    assert spec.resources[0].cpu.least == 2000 and spec.image == "python:3.11"
    assert spec.env == {"EPOCHS": "1", "A_B": "x=y"} and spec.name == "three"
    assert spec.command == ("echo", "--json", "--", "a b") and spec.outputs == ("/workspace/o",)
    assert spec.placement.labels == {"image/tally/python:3.11": "yes"}
    assert spec.policy.max_duration_ms == 3_600_000


@pytest.mark.parametrize(
    ("gpu", "models", "least"), [("any", (), 1), ("2", (), 2), ("RTX 4090", ("RTX 4090",), 1)]
)
def test_a_gpu_is_a_model_a_count_or_any(gpu: str, models: tuple[str, ...], least: int) -> None:
    need = wanted(image="python:3.11", gpu=gpu).resources[0].gpu
    assert need is not None and (need.models, need.count.least) == (models, least)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("resorces.cpu=2", "JOB_UNKNOWN_KEY", "resorces: unknown key; did you mean 'resources'?"),
        ("resources.gpu.vrm=1GB", "JOB_UNKNOWN_KEY", "did you mean 'vram'?"),
        ("resources.memory=lots", "JOB_BAD_VALUE", "resources.memory: "),
        ("price.budget=5", "JOB_BAD_VALUE", "price.budget: "),
        ("image.name=x", "JOB_BAD_VALUE", "image is 'python:3.11' in the file: set image whole"),
        ("command.0=x", "JOB_WRONG_TYPE", "command is a list"),
        ("version=2", "JOB_BAD_VALUE", "version: "),
        ("image=", "JOB_BAD_VALUE", "image: "),
        ("name", "JOB_SYNTAX", "'name' sets nothing"),
        ("=3", "JOB_UNKNOWN_KEY", "'' is no key of a job"),
        ("resources..cpu=3", "JOB_UNKNOWN_KEY", "is no key of a job"),
        ("command=[a", "JOB_SYNTAX", "command: line "),
        ("command=*a", "JOB_SYNTAX", "anchors and aliases"),
        ("files=[{src: nosuch, dst: /workspace/x}]", "JOB_FILE_UNREADABLE", "is not a file"),
    ],
)
def test_what_is_set_is_refused_as_the_file_would_be(
    file: Path, change: str, code: str, said: str
) -> None:
    with pytest.raises(TallyError) as refused:
        wanted(change, file=file)
    assert refused.value.code == code and said in refused.value.message
    assert "line 0" not in refused.value.message


def test_options_are_refused_by_the_name_of_their_key() -> None:
    with pytest.raises(TallyError) as refused:
        wanted(image="Not An Image", cores="many", memory="1", longest="1 hour")
    problems = str(refused.value.fields["problems"])
    for key in ("image: ", "resources.cpu: ", "resources.memory: ", "policy.max_duration: "):
        assert key in problems


def test_what_stands_after_the_dashes_is_the_jobs_own(tmp_path: Path) -> None:
    """Not an option of ours, not a file, and not lost: it reaches the refusal of its image."""
    shell = CliRunner()
    home = ["--home", str(tmp_path), "--market", "http://127.0.0.1:1"]
    nothing = shell.invoke(job.app, ["run", *home])
    assert nothing.exit_code == 2 and "name a job file, or give --image" in nothing.stderr
    no_image = shell.invoke(job.app, ["run", *home, "--", "python3", "--yes"])
    assert no_image.exit_code == 3 and "image: is missing" in no_image.stderr
    two = shell.invoke(job.app, ["run", *home, "a.yaml", "b.yaml"])
    assert two.exit_code == 2
    told = shell.invoke(job.app, ["run", "--help"]).stdout
    assert "[-- COMMAND...]" in told and json.dumps("--set")[1:-1] in told
