"""A session as a job, and what ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marketplace.client.jobs import in_session
from marketplace.client.jobs.jobfiles import setting
from marketplace.client.jobs.sessions import (
    APP,
    KEPT,
    NOTEBOOK,
    PYPI,
    SEAT,
    SHELL,
    TAKEN_UP,
    app_of,
)
from marketplace.domain.errors import Refusal

WATCH = in_session.Jupyter()
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
    assert in_session.main(SLEEPS, 1, WATCH) == 0
    assert time.monotonic() - began >= 1
    assert "nobody worked here for 1 s" in capfd.readouterr().out


def test_it_says_before_that_it_will_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert in_session.main(SLEEPS, 2, WATCH) == 0
    said = capfd.readouterr().out.splitlines()
    assert [line.startswith(in_session.SAYS) for line in said] == [True, True]
    assert "has worked here for 1 s: it ends in 0 s" in said[0] and "ends" in said[1]


def test_a_program_that_somebody_comes_to_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: int | None = 5
    used = 1.0
    monkeypatch.setattr(in_session, "_visits", lambda: visits)
    monkeypatch.setattr(in_session, "_used", lambda: used)
    watch = in_session.Visits()
    assert watch.last_work(100.0) == 0.0
    visits = 6
    assert watch.last_work(200.0) == 200.0
    assert watch.last_work(300.0) == 200.0
    used = 50.0  # it computes, for somebody who came long ago
    assert watch.last_work(400.0) == 400.0
    assert watch.last_work(500.0) == 400.0
    visits = None  # it cannot be read: better too long than too short
    assert watch.last_work(600.0) == 600.0


def test_a_program_that_only_waits_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    used, clock = 1.0, 50.0
    monkeypatch.setattr(in_session, "_visits", lambda: 5)
    monkeypatch.setattr(in_session, "_used", lambda: used)
    monkeypatch.setattr("time.monotonic", lambda: clock)
    watch = in_session.Visits()
    for _ in range(20):  # Gradio's queue, at rest: 7 % of a slow core
        used, clock = used + 0.35, clock + 5.0
        assert watch.last_work(clock) == 0.0
    used, clock = used + 2.5, clock + 5.0  # half a core
    assert watch.last_work(clock) == clock


def test_whoever_sits_at_a_terminal_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    used, times = 1.0, [400.0, 700.0]
    monkeypatch.setattr(in_session, "_used", lambda: used)
    monkeypatch.setattr(in_session, "_sat_at", lambda: iter(times))
    watch = in_session.Terminals()
    assert watch.last_work(500.0) == 400.0  # what is dated in the future holds nothing open
    assert watch.last_work(800.0) == 700.0
    times.clear()
    assert watch.last_work(900.0) == 0.0
    used = 80.0
    assert watch.last_work(1000.0) == 1000.0
    assert watch.last_work(1100.0) == 1000.0


def test_a_shell_has_no_page_and_waits_for_the_files_of_the_one_before() -> None:
    spec = SHELL.job(SHELL.local, 90_000, ()).spec
    assert (spec.ports, spec.command[-2:], spec.env["WATCH"]) == (
        (),
        ("sleep", "infinity"),
        "terminals",
    )
    assert TAKEN_UP in SEAT[-1] and SEAT[:2] == ("sh", "-c")


def test_connections_and_processor_time_are_read_from_the_kernel() -> None:
    before, used = in_session._visits(), in_session._used()  # pyright: ignore[reportPrivateUsage] -- what everything else goes by
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()
    after = in_session._visits()  # pyright: ignore[reportPrivateUsage]
    assert before is not None and after is not None and after > before
    assert used > 0


def test_an_app_brings_its_file_and_what_its_image_lacks(tmp_path: Path) -> None:
    file, beside = tmp_path / "hello.py", tmp_path / "data.csv"
    file.write_text("print()")
    beside.write_text("1,2")
    here = app_of("hello.py").job(APP.local, 90_000, (), None, (file, beside)).spec
    assert [one.dst for one in here.files] == ["/workspace/hello.py", "/workspace/data.csv"]
    assert (here.command[-1], here.env["WATCH"], here.egress.allow) == ("hello.py", "visits", ())
    there = app_of("hello.py", 8000).job("python:3.11-slim", 90_000, (), None, (file,)).spec
    assert [one.dst for one in there.files] == ["/workspace/hello.py", "/workspace/.packages.lock"]
    assert list(there.egress.allow) == PYPI and there.env["PACKAGE"] == "gradio"
    assert (there.ports[0].port, there.env["PORT"]) == (8000, "8000")


def test_what_the_image_has_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKAGE", "json")
    in_session.install()
    monkeypatch.setenv("PACKAGE", "no_such_package_anywhere")
    monkeypatch.setenv("LOCK", "no.lock")
    with pytest.raises(subprocess.CalledProcessError):  # the job ends, and its log says why
        in_session.install()


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
    assert in_session.main((sys.executable, "-c", "raise SystemExit(7)"), 60, WATCH) == 7
    # Whoever stops the job ends the program as well, which has its own files to write.
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert in_session.main(SLEEPS, 60, WATCH) == 0


def test_what_was_left_is_taken_up(workspace: Path) -> None:
    (workspace / "made.txt").write_text("48")
    with tarfile.open(in_session.TAKEN_UP, "w") as archive:
        archive.add("made.txt", "deep/made.txt")
    in_session.take_up()
    assert (workspace / "deep" / "made.txt").read_text() == "48"
    assert not Path(in_session.TAKEN_UP).exists()


def test_what_came_with_this_session_stays(workspace: Path) -> None:
    (workspace / "app.py").write_text("old")
    (workspace / "notes").write_text("kept")
    with tarfile.open(in_session.TAKEN_UP, "w") as archive:
        archive.add("app.py")
        archive.add("notes")
    (workspace / "app.py").write_text("new")
    (workspace / "notes").unlink()
    in_session.take_up()
    assert ((workspace / "app.py").read_text(), (workspace / "notes").read_text()) == (
        "new",
        "kept",
    )


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
