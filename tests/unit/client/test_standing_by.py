"""Whether a payer stands by is the kernel's word, for one purse at one market."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from marketplace.client.payer.standing_by import NobodyPays, somebody_pays, standing_by

HERE = "http://127.0.0.1:8000"
STANDS = """\
import sys
from pathlib import Path
from marketplace.client.payer.standing_by import standing_by
with standing_by(Path(sys.argv[1]), sys.argv[2]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_payer_stands_by_for_its_purse_and_its_market_alone(tmp_path: Path) -> None:
    with standing_by(tmp_path / "one", HERE):
        somebody_pays(tmp_path / "one", "http://localhost:8000/")  # the same market
        with pytest.raises(NobodyPays):
            somebody_pays(tmp_path / "one", "http://127.0.0.1:8001")
        with pytest.raises(NobodyPays):
            somebody_pays(tmp_path / "two", HERE)
        with standing_by(tmp_path / "one", HERE):
            somebody_pays(tmp_path / "one", HERE)
        somebody_pays(tmp_path / "one", HERE)
    with pytest.raises(NobodyPays):
        somebody_pays(tmp_path / "one", HERE)


def test_a_payer_that_was_killed_stands_by_no_more(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STANDS, str(tmp_path), HERE]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as payer:
        assert payer.stdout is not None and payer.stdout.readline() == b"ready\n"
        somebody_pays(tmp_path, HERE)
        payer.kill()
        payer.wait(30)
    with pytest.raises(NobodyPays):
        somebody_pays(tmp_path, HERE)
