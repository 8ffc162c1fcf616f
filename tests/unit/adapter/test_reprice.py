"""Prices written into an owner's file, and one adapter for one state folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from adapter.config import ConfigMissing, ConfigRefused, load, parse
from adapter.daemon.reload import LIVE, Settings
from adapter.daemon.reprice import read_prices, reprice, with_prices
from adapter.host.single import AdapterRuns, only_one
from adapter.journal.codec import JournalHeld
from adapter.journal.journal import Journal

FILE = """payout = "addr1"   # mine
[prices]
# what I ask
"RTX 4090" = "220 lovelace"   # by day
core = "6 lovelace"

[[prices.schedule]]
hours = "22-7"
percent = 70
[limits]
max_leases = 4
"""


def test_only_the_prices_that_are_named_change() -> None:
    new = with_prices(FILE, {"core": "5 lovelace", "RTX 4090": "200 lovelace", "L4": "9 lovelace"})
    assert new.splitlines()[3:7] == [
        '"RTX 4090" = "200 lovelace"   # by day', 'core = "5 lovelace"', 'L4 = "9 lovelace"', "",
    ]  # fmt: skip
    kept = [line for line in FILE.splitlines() if "lovelace" not in line]
    assert [line for line in new.splitlines() if "lovelace" not in line] == kept
    read = parse(tomllib.loads(new.replace('payout = "addr1"', "")))
    assert read.prices.core_rate == 5_000_000 and read.limits.max_leases == 4


def test_a_file_without_prices_gets_its_table() -> None:
    read = parse(tomllib.loads(with_prices('region = "EU"', {"core": "5 lovelace"})))
    assert (read.region, read.prices.core_rate) == ("EU", 5_000_000)


@pytest.mark.parametrize("word", ["core", "=5", "core=", "core=cheap", "L4=0", "L4=-1 lovelace"])
def test_what_is_no_price_changes_nothing(tmp_path: Path, word: str) -> None:
    path = tmp_path / "adapter.toml"
    path.write_text(FILE)
    with pytest.raises(ConfigRefused):
        reprice(path, read_prices([word]))
    assert path.read_text() == FILE


def test_a_price_cannot_smuggle_another_key(tmp_path: Path) -> None:
    path = tmp_path / "adapter.toml"
    path.write_text(FILE)
    for word in ('core=5"\npayout = "addr1evil', 'a" = "1"\n[limits]\nx=1'):
        with pytest.raises(ConfigRefused):
            reprice(path, read_prices([word]))
    assert path.read_text() == FILE


def test_a_written_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "adapter.toml"
    path.write_text(FILE.replace("addr1", ""))
    path.chmod(0o640)
    reprice(path, read_prices(["core=5"]))
    assert path.stat().st_mode & 0o777 == 0o640
    assert parse(tomllib.loads(path.read_text())).prices.core_rate == 5_000_000


def test_a_reload_takes_prices_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "adapter.toml"
    path.write_text('region = "EU"\n[prices]\ncore = "6 lovelace"\n')
    stirred: list[int] = []
    settings = Settings(load(path, {}, {}), lambda: load(path, {}, {}))
    settings.changed = lambda: stirred.append(settings.now.prices.core_rate or 0)
    assert settings.reload()["applied"] == [] and not stirred
    path.write_text('region = "EU"\nruntime = "process"\n[prices]\ncore = "5 lovelace"\n')
    done = settings.reload()
    assert (done["applied"], done["restart"], stirred) == (["prices"], ["runtime"], [5_000_000])
    assert settings.now.runtime == "docker"
    path.write_text('region = "US"\n[prices]\ncore = "much"\n')
    with pytest.raises(ConfigRefused):
        settings.reload()
    assert settings.now.region == "EU" and settings.now.prices.core_rate == 5_000_000
    assert {"limits", "treasury", "payout", "market"}.isdisjoint(LIVE)


def test_all_that_is_wrong_with_a_file_is_said_at_once() -> None:
    with pytest.raises(ConfigRefused) as caught:
        parse(
            {
                "regoin": "EU", "tick": "1 ms", "reserve": {"cors": 2, "memory": "much"},
                "prices": {"core": "cheap", "schedule": [{"hours": "x"}, {"hours": "1-2", "percent": 0}]},
                "limits": {"max_leases": "four"}, "maintenance": [{"start": "never"}],
            }
        )  # fmt: skip
    said = caught.value.problems
    for what in ("regoin", "tick", "reserve.cors", "size", "core", "max_leases", "maintenance"):
        assert any(what in line for line in said), what
    assert sum("prices.schedule" in line for line in said) == 2
    assert len(said) == len(set(said)) >= 9


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigMissing, match=r"/no/adapter\.toml: No such file"):
        load(Path("/no/adapter.toml"), {}, {})


def test_a_second_adapter_is_told_who_has_the_folder(tmp_path: Path) -> None:
    hold = (
        "import sys, pathlib; from adapter.host.single import only_one\n"
        "with only_one(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(AdapterRuns, match=f"pid {first.pid}\\)"), only_one(tmp_path):
            pass
        first.kill()  # however it ends, the folder is free
        first.wait()
    with only_one(tmp_path):
        assert (tmp_path / "adapter.lock").read_text() == f"{os.getpid()}\n"


def test_a_journal_that_another_holds_is_not_to_be_restored(tmp_path: Path) -> None:
    one = Journal(tmp_path / "journal.db")
    one.load()
    with pytest.raises(JournalHeld) as caught:
        Journal(tmp_path / "journal.db", wait_s=0.1)
    assert "restore nothing" in caught.value.remedy
    one.close()
