"""A session as a job, and what ends it."""

from __future__ import annotations

import os
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marketplace.client.jobs import in_session
from marketplace.client.jobs.jobfiles import setting
from marketplace.client.jobs.sessions import KEPT, NOTEBOOK, TAKEN_UP
from marketplace.domain.errors import Refusal

SLEEPS = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(in_session, "LOOK_S", 0.05)
    monkeypatch.setattr(in_session, "_asked", lambda _what: [])
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def says(monkeypatch: pytest.MonkeyPatch, **lists: list[dict[str, str]]) -> None:
    monkeypatch.setattr(in_session, "_asked", lambda what: lists.get(what, []))


def test_it_is_a_service_whose_whole_workspace_is_kept(tmp_path: Path) -> None:
    archive = tmp_path / "left.tar"
    archive.write_bytes(b"left")
    more = [setting("resources.memory=4GB"), setting("env.LANG=C")]
    loaded = NOTEBOOK.job("tally/jupyter:local", 90_000, more, archive)
    spec = loaded.spec
    assert (spec.kind, spec.image, spec.outputs) == ("service", "tally/jupyter:local", (KEPT,))
    assert [(one.port, one.auth) for one in spec.ports] == [(8888, "token")]
    assert (spec.env["IDLE_S"], spec.env["LANG"], spec.env["HOME"]) == ("90", "C", "/workspace")
    assert [one.dst for one in spec.files] == [TAKEN_UP]
    assert list(loaded.blobs.values()) == [archive]
    with pytest.raises(Refusal):
        NOTEBOOK.job("tally/jupyter:local", 90_000, [setting("resources.memroy=4GB")])


@pytest.mark.parametrize(
    ("market", "image"),
    [
        ("http://127.0.0.1:8000", "tally/jupyter:local"),
        ("http://localhost:8000", "tally/jupyter:local"),
        ("https://market.example", "quay.io/jupyter/minimal-notebook:latest"),
    ],
)
def test_only_a_market_on_this_machine_has_this_machines_image(market: str, image: str) -> None:
    assert NOTEBOOK.image_at(market) == image


def test_it_ends_when_nobody_works(capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert in_session.main(SLEEPS, 1) == 0
    assert time.monotonic() - began >= 1
    assert "nobody worked here for 1 s" in capfd.readouterr().out


def test_what_counts_as_work(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_session.last_work(1000.0) == 0.0
    (workspace / "a.ipynb").write_text("")
    os.utime(workspace / "a.ipynb", (500, 500))
    assert in_session.last_work(1000.0) == 500.0
    (workspace / "tomorrow").write_text("")
    os.utime(workspace / "tomorrow", (2000, 2000))  # it would hold the session open for ever
    assert in_session.last_work(1000.0) == 500.0
    idle = {"execution_state": "idle", "last_activity": "1970-01-01T00:10:00.000000Z"}
    says(monkeypatch, kernels=[idle])
    assert in_session.last_work(1000.0) == 600.0
    says(monkeypatch, kernels=[idle], terminals=[{"last_activity": "1970-01-01T00:15:00Z"}])
    assert in_session.last_work(1000.0) == 900.0
    says(monkeypatch, kernels=[idle, {**idle, "execution_state": "busy"}])
    assert in_session.last_work(1000.0) == 1000.0
    for odd in ({}, {"last_activity": "yesterday"}):
        says(monkeypatch, terminals=[odd])
        assert in_session.last_work(1000.0) == 1000.0


def test_a_program_that_ends_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_session.main((sys.executable, "-c", "raise SystemExit(7)"), 60) == 7
    # Whoever stops the job ends the program as well, which has its own files to write.
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert in_session.main(SLEEPS, 60) == 0


def test_what_was_left_is_taken_up(workspace: Path) -> None:
    (workspace / "made.txt").write_text("48")
    with tarfile.open(in_session.TAKEN_UP, "w") as archive:
        archive.add("made.txt", "deep/made.txt")
    in_session.take_up()
    assert (workspace / "deep" / "made.txt").read_text() == "48"
    assert not Path(in_session.TAKEN_UP).exists()


def test_nothing_is_put_beside_the_workspace(workspace: Path) -> None:
    """Who ran the session before has made the archive."""
    inside = workspace / "inside"
    inside.mkdir()
    os.chdir(inside)
    with tarfile.open(in_session.TAKEN_UP, "w") as archive:
        archive.add(__file__, "../beside")
    with pytest.raises(tarfile.TarError):
        in_session.take_up()
    assert not (workspace / "beside").exists()
