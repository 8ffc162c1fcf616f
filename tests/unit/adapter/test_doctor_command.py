"""``tally adapter doctor`` judges the host for what its configuration lets run there, and for
nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from marketplace.cli import main

DOCKERS = {"DOCKER_UNREACHABLE", "CONTAINER_FAILED", "IPTABLES_MISSING", "ALLOW_LIST_OPEN"}
PROCESSES = {"BUBBLEWRAP_MISSING", "SETPRIV_MISSING"}


@pytest.fixture(autouse=True)
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool is installed, no Docker answers, no market is meant."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("TALLY_MARKET", raising=False)


def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> set[str]:
    """The codes that the command prints."""
    monkeypatch.setattr(sys, "argv", ["tally", "adapter", "doctor", "--json", *words])
    with pytest.raises(SystemExit):
        main.main()
    return {one["code"] for one in json.loads(capsys.readouterr().out)["findings"]}


RUNTIMES = {"docker": DOCKERS, "process": PROCESSES, "both": DOCKERS | PROCESSES}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_host_is_judged_for_the_runtimes_that_are_configured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    runtime: str,
) -> None:
    file = tmp_path / "adapter.toml"
    file.write_text(f'runtime = "{runtime}"\nsimulate = "h100"\nmarket = "http://127.0.0.1:9"\n')
    found = doctor(monkeypatch, capsys, "--config", str(file))
    assert found & (DOCKERS | PROCESSES) == RUNTIMES[runtime]
    assert {"GPU_SIMULATED", "MARKET_UNREACHABLE", "KEY_MISSING"} <= found
    assert not {"CHECK_FAILED", "PAYOUT_MISSING"} & found


def test_the_runtime_is_an_option_as_it_is_of_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor(monkeypatch, capsys, "--quick", "--runtime", "process")
    assert found & (DOCKERS | PROCESSES) == PROCESSES
    found = doctor(monkeypatch, capsys, "--quick")
    assert found & (DOCKERS | PROCESSES) == DOCKERS - {"CONTAINER_FAILED"}
    assert "MARKET_UNSET" in found  # the default address is nobody's choice
