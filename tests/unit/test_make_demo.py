"""`make demo` in a fresh checkout installs what runs the product, and nothing that only checks it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.requires import need_make

ROOT: Final = Path(__file__).parents[2]


def would_run(target: str, folder: Path) -> str:
    """What `make` would run for *target* where nothing is installed yet."""
    make = need_make()
    for name in ROOT.glob("**/package-lock.json"):
        if "node_modules" not in name.parts:
            there = folder / name.relative_to(ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.touch()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(  # not as a part of the `make` that runs the tests
        [make, "--dry-run", target],
        cwd=folder, env=alone, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_waits_for_no_package_of_a_test(tmp_path: Path) -> None:
    said = would_run("demo", tmp_path)
    assert said.rstrip().endswith(".venv/bin/tally demo")
    assert "'.[all]'" in said and "contracts/devnet" in said
    assert "tests/" not in said and "web/sdk" not in said


def test_what_checks_the_product_comes_on_top(tmp_path: Path) -> None:
    said = would_run("install", tmp_path)
    assert "'.[all]'" in said and "--requirements requirements.lock" in said
    assert "tests/browser" in said and "web/sdk" in said
