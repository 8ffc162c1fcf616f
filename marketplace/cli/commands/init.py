"""``tally init``: a first job file to write in, with a word about each key; or the examples that
the pages name.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from marketplace.cli.shared.refusals import DONE, guarded
from marketplace.cli.shared.screen import out
from marketplace.domain.errors import Refusal

app = typer.Typer(help="Write a first job file.", rich_markup_mode=None)

TEXT: Final = """\
# A job for Tally. What it costs, without paying:  tally job quote {file}
# Run it:  tally job run {file}     Every key: docs/jobs.md. What stands behind # here is left out.
version: 1
name: first
# kind: service                 # serves ports until it is stopped; a job ends by itself

# Any public image, such as python:3.11-slim. This one is what `tally up` makes of this machine's
# Python; on a public market write another.
image: tally/python:local
command: ["python3", "-c", "print('hello from a rented core')"]

resources:
  cpu: 1                        # cores, also 0.5; 2.. is two or more
  memory: 256MB                 # MB, GB or TB
  # disk: 10GB
  # gpu: H100                   # a model, or {{model: [H100, A100], count: 2, vram: 40GB..}}

# files:                        # from beside this file into the job
#   - {{src: train.py, dst: /workspace/train.py}}
# outputs: [/workspace/out]     # comes back: tally job run {file} --outputs FOLDER
# env: {{EPOCHS: "3"}}            # text: in quotes where YAML would see a number
# secrets: [HF_TOKEN]           # read from your environment, sealed to the provider
# ports: [{{port: 8000, auth: token}}]  # with kind: service
# egress: [pypi.org:443]        # without this the job reaches nothing

# placement: {{regions: [DE, FR], isolation: container}}

price:
  budget: 2 ADA                 # all that the job may ever cost
  # max_per_core_second: 50 lovelace
  # max_per_gpu_second: 3000 lovelace

policy:
  max_duration: 5m
  # retry: {{on: [provider_lost, start_failed], max: 2}}
  # queue: true                 # wait for a place instead of being refused
"""


_PACKAGE: Final = Path(__file__).resolve().parents[2]
_ELSEWHERE: Final = ("typescript", "__pycache__")  # npm's package needs a checkout


class FileThere(Refusal):
    """A file or folder of this name is there already, and stays as it is."""

    code = "FILE_THERE"
    remedy = "name another: `tally init FILE`"


@app.command()
def init(
    file: Annotated[
        Path | None,
        typer.Argument(help="Where to write it (job.yaml, examples).", metavar="[FILE]"),
    ] = None,
    examples: Annotated[
        bool, typer.Option("--examples", help="Write the folder of examples that the pages name.")
    ] = False,
) -> None:
    """Write a job file that runs as it is, with a word about each key."""
    if examples:
        folder = file or Path("examples")
        guarded(lambda: write_examples(folder))
        out.print(f"{folder} is written; try {folder / 'hello.yaml'} first", markup=False)
        raise typer.Exit(DONE)
    job = file or Path("job.yaml")
    guarded(lambda: write(job))
    out.print(f"{job} is written; `tally job quote {job}` says what it costs", markup=False)
    raise typer.Exit(DONE)


def write(file: Path) -> None:
    """The commented job file at *file*; :class:`FileThere` rather than over anything."""
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(TEXT.format(file=file))
    except FileExistsError as error:
        raise FileThere(f"{file} is there already") from error


def write_examples(folder: Path) -> None:
    """The examples as *folder*, all or none; :class:`FileThere` rather than over anything."""
    if folder.exists() or folder.is_symlink():
        raise FileThere(f"{folder} is there already")
    packaged = _PACKAGE / "examples"
    source = packaged if packaged.is_dir() else _PACKAGE.parent / "examples"
    with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as beside:
        made = Path(beside) / folder.name
        shutil.copytree(source, made, ignore=shutil.ignore_patterns(*_ELSEWHERE))
        made.rename(folder)
