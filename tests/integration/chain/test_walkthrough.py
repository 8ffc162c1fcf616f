"""The documented walk-through, run as a user runs it: another process, a URL, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.support.chain import ADA, devnet

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "examples" / "preprod_walkthrough.py"


def _start(url: str, keys: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--url", url, "--keys", str(keys), "--poll", "0.2", *more],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(keys)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _steps(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, (out, err)
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_the_walk_through_goes_all_the_way_and_a_second_run_deploys_nothing(tmp_path: Path) -> None:
    with devnet(block_ms=300) as served:
        faucet = f"{served.control}/faucet"
        process = _start(served.url, tmp_path, "--faucet", faucet, "--close")
        steps: list[dict[str, object]] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                steps.append(json.loads(line))
                if steps[-1]["step"] == "waiting":
                    served.devnet.advance(600_000)  # the close period passes
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.communicate()
        names = [
            s["step"] for s in steps if s["step"] != "please fund"
        ]  # said if the faucet is slow
        assert names == [
            "connected", "funded", "deployed", "scripts", "opened", "capacity", "claimed",
            "topped up", "finished", "account", "opened", "closed", "waiting", "sent home", "done",
        ]  # fmt: skip
        by = {s["step"]: s for s in steps}
        assert (by["account"]["claimed"], by["account"]["refunded"]) == (4 * ADA, 14 * ADA)
        assert {p.stat().st_mode & 0o077 for p in tmp_path.glob("*.seed")} == {0}

        again = _steps(_start(served.url, tmp_path))
        assert "deployed" not in [s["step"] for s in again]
        assert again[-1]["step"] == "done"


def test_it_says_what_is_wrong_with_a_url(tmp_path: Path) -> None:
    process = _start("http://127.0.0.1:9/api/v0", tmp_path)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert json.loads(out)["code"] == "CHAIN_FAULT"
