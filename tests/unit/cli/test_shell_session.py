"""What becomes of a session when its terminal is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from io import StringIO
from typing import Any, cast

import anyio
import pytest
from rich.console import Console
from rich.progress import Progress

from marketplace.cli.commands import job_shell, page_session
from marketplace.client.sdk.terminal import TerminalLost
from marketplace.domain.errors import Refusal, TallyError


class Job:
    """It runs for as many looks as it is given."""

    id = "job_1"

    def __init__(self, looks: int) -> None:
        self.looks, self.stopped = looks, False

    async def refresh(self) -> dict[str, str]:
        self.looks -= 1
        return {"state": "RUNNING" if self.looks >= 0 else "ENDING"}

    async def stop(self) -> None:
        self.stopped = True

    async def logs(self) -> AsyncIterator[str]:
        yield "session: it ends in 60 s\x1b[2J"
        await anyio.sleep_forever()


def sat(
    monkeypatch: pytest.MonkeyPatch, job: Job, error: TallyError | None = None
) -> tuple[str, list[bytes]]:
    """(what the command says, what is shown in the terminal)."""
    screen, shown = StringIO(), list[bytes]()

    async def shell(_job: object, _command: Sequence[str]) -> None:
        await anyio.sleep(0.05)
        if error is not None:
            raise error

    monkeypatch.setattr(job_shell, "shell", shell)
    monkeypatch.setattr(job_shell, "show", shown.append)
    monkeypatch.setattr(page_session, "GONE_S", 0.5)
    bar = Progress(console=Console(file=screen, width=100))
    anyio.run(page_session.sit, cast(Any, job), bar)
    return screen.getvalue(), shown


def test_leaving_it_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(looks=1000)
    _, shown = sat(monkeypatch, job)
    assert job.stopped
    assert shown == [b"\r\nsession: it ends in 60 s [2J\r\n"]


def test_a_session_that_ended_by_itself_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(looks=1)
    sat(monkeypatch, job)
    assert not job.stopped


def test_a_line_that_breaks_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(looks=1000)
    said, _ = sat(monkeypatch, job, TerminalLost("the market hung up"))
    assert not job.stopped
    assert "TERMINAL_LOST" in said and "tally job shell job_1" in said


def test_whoever_is_refused_pays_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(looks=1000)
    with pytest.raises(Refusal):
        sat(monkeypatch, job, Refusal("no terminals here"))
    assert job.stopped
