"""Why a container ended, as the adapter tells it: the tenant's doing, its own, or the daemon's
fall.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
import requests.exceptions
import urllib3.exceptions

from adapter.core.workload import Handle, RuntimeFault, RuntimeTimeout, WorkloadGone
from adapter.runtime.calls import note_reason, noted_reason
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import map_docker
from adapter.runtime.docker.runtime import DockerRuntime
from marketplace.domain.work.workload import ExitReason, WorkloadState

pytestmark = pytest.mark.anyio
HANDLE = Handle("docker", "lease", "c0ffee", 1_000)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Daemon:
    """The three calls of docker-py that a status needs; *state* is what inspect would say."""

    def __init__(self, **state: Any) -> None:
        self.down: Exception | None = None
        self.state = {"Status": "exited", "ExitCode": 0, "OOMKilled": False, **state}
        self.containers = self

    def get(self, _id: str) -> Any:
        if self.down is not None:
            raise self.down
        return SimpleNamespace(attrs={"State": self.state}, labels={}, status="exited")


def stamp(second: int) -> str:
    return f"2026-11-21T22:00:{second:02d}.123456789Z"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, ExitReason.COMPLETED),
        ({"ExitCode": 3}, ExitReason.CRASHED),
        ({"ExitCode": 137}, ExitReason.CRASHED),
        ({"ExitCode": 137, "OOMKilled": True}, ExitReason.OUT_OF_MEMORY),
    ],
)
async def test_a_container_that_ended_by_itself(
    tmp_path: Path, state: dict[str, Any], reason: ExitReason
) -> None:
    runtime = DockerRuntime(DockerConfig(tmp_path, "a"), client=Daemon(**state))
    assert (await runtime.status(HANDLE)).reason is reason


async def test_a_container_that_fell_with_its_daemon_is_the_providers_fault(tmp_path: Path) -> None:
    daemon = Daemon(ExitCode=137, StartedAt=stamp(1), FinishedAt=datetime.now(UTC).isoformat())
    runtime = DockerRuntime(DockerConfig(tmp_path, "a"), client=daemon)
    daemon.down = requests.exceptions.ConnectionError("refused")
    with pytest.raises(RuntimeFault):
        await runtime.status(HANDLE)
    daemon.down = None
    status = await runtime.status(HANDLE)
    assert (status.state, status.reason) == (WorkloadState.EXITED, ExitReason.PROVIDER_FAULT)
    daemon.state["ExitCode"] = 3
    assert (await runtime.status(HANDLE)).reason is ExitReason.CRASHED
    daemon.state.update(ExitCode=137, FinishedAt=stamp(2))
    assert (await runtime.status(HANDLE)).reason is ExitReason.CRASHED, "it ended long before"
    daemon.state.update(FinishedAt="2999-01-01T00:00:00Z")
    assert (await runtime.status(HANDLE)).reason is ExitReason.CRASHED, "it ended long after"


async def test_the_reason_that_was_noted_first_stands(tmp_path: Path) -> None:
    runtime = DockerRuntime(DockerConfig(tmp_path, "a"), client=Daemon(ExitCode=137))
    runtime._note("lease", ExitReason.DISK_LIMIT)  # pyright: ignore[reportPrivateUsage]  the only way in
    runtime._note("lease", ExitReason.STOPPED)  # pyright: ignore[reportPrivateUsage]  the only way in
    assert (await runtime.status(HANDLE)).reason is ExitReason.DISK_LIMIT


def test_a_reason_whose_writing_was_cut_short_is_none(tmp_path: Path) -> None:
    path = tmp_path / "reasons" / "lease"
    assert noted_reason(path) is None
    path.parent.mkdir()
    path.write_text("")
    assert noted_reason(path) is None
    note_reason(path, ExitReason.STOPPED)
    note_reason(path, ExitReason.DISK_LIMIT)
    assert noted_reason(path) is ExitReason.STOPPED


async def test_times_are_dockers_own_to_the_millisecond(tmp_path: Path) -> None:
    daemon = Daemon(StartedAt=stamp(1), FinishedAt="2026-11-21T22:00:04.5Z")
    times = (await DockerRuntime(DockerConfig(tmp_path, "a"), client=daemon).status(HANDLE)).times
    assert times.finished_ms is not None
    assert times.finished_ms - times.started_ms == 3_377
    daemon.state.update(Status="running", FinishedAt="0001-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (docker.errors.NotFound("x"), WorkloadGone),
        (docker.errors.APIError("x"), RuntimeFault),
        (requests.exceptions.ReadTimeout("x"), RuntimeTimeout),
        (requests.exceptions.ConnectionError("x"), RuntimeFault),
        (docker.errors.DockerException("x"), RuntimeFault),
        (urllib3.exceptions.ProtocolError("cut off"), RuntimeFault),
        (ConnectionResetError("reset"), RuntimeFault),
        (json.JSONDecodeError("half an answer", "{", 1), RuntimeFault),
        (KeyError("State"), RuntimeFault),
    ],
)
def test_every_error_of_the_library_becomes_ours(
    raised: Exception, expected: type[RuntimeFault]
) -> None:
    with pytest.raises(expected), map_docker("call"):
        raise raised
