"""The product without a checkout: built, installed into an empty environment, and run from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.requires import need_docker, need_node

ROOT = Path(__file__).parents[2]
HELD = (
    "marketplace/web/assets/app.js", "marketplace/web/templates/base.html", "contracts/plutus.json",
    "contracts/devnet/ledger/glue.js", "contracts/devnet/package-lock.json",
    "marketplace/store/migrations/script.py.mako", "marketplace/web/screen/xterm.js",
    "marketplace/web/screen/LICENSE", "marketplace/web/presets/1-core.yaml",
)  # fmt: skip
UP_WITHIN_S = 300


def _built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that was made from it."""
    subprocess.run(
        [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", str(folder), str(ROOT)],
        check=True, timeout=300,
    )  # fmt: skip
    [sdist], [wheel] = list(folder.glob("*.tar.gz")), list(folder.glob("*.whl"))
    return sdist, wheel


def _ready(said: str) -> dict[str, str] | None:
    """What `tally up --json` says once it serves: the names that its commands read."""
    lines = [line for line in said.splitlines() if line.startswith('{"ready"')]
    if not lines:
        return None
    return {name: text for name, text in json.loads(lines[0]).items() if name.startswith("TALLY_")}


def _own_jobs(venv: Path, folder: Path, where: dict[str, str]) -> None:
    """A developer's first ten minutes as docs/developer.md has them: the examples, a job by the
    command line and one by Python, each to its reconciled end.
    """
    path = f"{venv / 'bin'}:{where['PATH']}"
    for command, signs in (
        ("tally init --examples", ["examples is written"]),
        ("tally job run examples/hello.yaml --yes --keep 0", ["rented core 3", "COMPLETED"]),
        ("python examples/run_job.py examples/hello.yaml", ["COMPLETED", "reconciled: True"]),
    ):
        done = subprocess.run(
            command.split(), cwd=folder, env={**where, "PATH": path}, capture_output=True,
            text=True, timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert all(sign in done.stdout for sign in signs), f"{command}: {done.stdout[-2000:]}"


@pytest.mark.prove
@pytest.mark.timeout(1500)
def test_the_wheel_is_the_product(tmp_path: Path) -> None:
    sdist, wheel = _built(tmp_path / "dist")
    with zipfile.ZipFile(wheel) as made:
        names = set(made.namelist())
        assert set(HELD) <= names
        assert not any("node_modules" in name or name.startswith("tests/") for name in names)
        assert not any(name.startswith("marketplace/web/sdk/") for name in names), "npm has it"
        [meta] = [made.read(name).decode() for name in names if name.endswith("/METADATA")]
    with tarfile.open(sdist) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"packaging/tally-adapter.service", "docs/provider.md", "SECURITY.md"} <= inside
    assert {"adapter", "all", "client", "devnet", "market"} <= set(
        re.findall(r"^Provides-Extra: (\S+)$", meta, re.MULTILINE)
    )
    home, venv = tmp_path / "home", tmp_path / "venv"
    home.mkdir()
    run = [sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, str(venv)]
    subprocess.run(run, check=True, timeout=120)
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python",
         str(venv / "bin/python"), "--constraint", str(ROOT / "requirements.lock"),
         f"tally-compute[all] @ file://{wheel}"],
        check=True, timeout=600,
    )  # fmt: skip
    away = tmp_path / "elsewhere"
    away.mkdir()
    mine = ("TALLY_", "PYTHON", "VIRTUAL_ENV", "XDG_")
    plain = {name: text for name, text in os.environ.items() if not name.startswith(mine)}
    npmrc = str(Path.home() / ".npmrc")  # where this machine gets its packages from
    where = {"NPM_CONFIG_USERCONFIG": npmrc, **plain, "HOME": str(home), "PYTHONSAFEPATH": "1"}
    tally = str(venv / "bin" / "tally")

    doctor = subprocess.run(
        [tally, "adapter", "doctor", "--quick", "--json"],
        cwd=away, env=where, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert doctor.returncode in (0, 1), doctor.stderr
    assert "PAYOUT_MISSING" in {one["code"] for one in json.loads(doctor.stdout)["findings"]}

    need_docker()
    need_node()
    log = tmp_path / "up.log"
    with log.open("w") as said:
        place = subprocess.Popen(
            [tally, "up", "--port", "0", "--devnet-port", "0", "--json"],
            cwd=away, env=where, stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + UP_WITHIN_S
        while (ready := _ready(log.read_text())) is None:
            assert place.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)
        offers = subprocess.run(
            [tally, "offers", "search", "--json"],
            cwd=away, env={**where, **ready}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert offers.returncode == 0, offers.stderr
        assert json.loads(offers.stdout)["items"], "nothing is listed"
        _own_jobs(venv, away, {**where, **ready})
    finally:
        place.send_signal(signal.SIGINT)
        place.wait(timeout=120)
