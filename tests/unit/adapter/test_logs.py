"""A workload's log on its way from Docker to the market: each byte once, whoever asks at once and
whatever ends midway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from adapter.core.events import Logged
from adapter.core.workload import Handle
from adapter.daemon.logs import Logs
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.logs import begin, copy_new
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.docker.stamps import milliseconds
from adapter.runtime.logstore import LogStore
from marketplace import disk
from marketplace.disk import DiskFault

pytestmark = pytest.mark.anyio
HANDLE = Handle("docker", "lease", "c0ffee", 1_000)
LINES = [
    b"2026-11-30T06:00:%02d.%09dZ line %d\n" % (n // 2, n % 2 * 500_000_000, n) for n in range(9)
]
ALL = b"".join(line.partition(b" ")[2] for line in LINES)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Stream:
    """docker-py's, as far as it is read and ended."""

    lines: Iterator[bytes]
    _response: Any = field(default_factory=lambda: SimpleNamespace(close=lambda: None))

    def __iter__(self) -> Iterator[bytes]:
        return self.lines


class Printed:
    """A container whose log is read slowly, from the second that is asked for."""

    labels: dict[str, str] = {}  # noqa: RUF012 (as docker-py has it)

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.containers = self

    def get(self, _id: str) -> Printed:
        return self

    def logs(self, since: int | None = None, **_: Any) -> Stream:
        return Stream(self._said(since))

    def _said(self, since: int | None) -> Iterator[bytes]:
        for line in self.lines:
            at = milliseconds(line.partition(b" ")[0].decode())
            if since is None or (at or 0) >= since * 1000:
                time.sleep(0.002)
                yield line


def runtime_of(tmp_path: Path) -> DockerRuntime:
    return DockerRuntime(DockerConfig(tmp_path, "adapter"), client=Printed(LINES))


def test_two_that_copy_at_once_copy_each_line_once(tmp_path: Path) -> None:
    """As the round of every second does, and the one at a workload's end."""
    runtime = runtime_of(tmp_path)

    def copy() -> None:
        anyio.run(runtime.logs, HANDLE, 0, 1 << 20)

    both = [threading.Thread(target=copy) for _ in range(4)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert anyio.run(runtime.logs, HANDLE, 0, 1 << 20).data == ALL


@pytest.mark.parametrize("torn", [0, 3, len(ALL)])
def test_one_that_ends_before_the_cursor_moves_leaves_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    """*torn*: so many bytes of what it kept reached the disk."""
    logs, cursor = LogStore(tmp_path), tmp_path / "logs" / "lease.cursor"
    begin("lease", logs, cursor)
    copy_new(Printed(LINES[:4]), "lease", logs, cursor)
    begun = logs.end("lease")
    append = logs.append

    def partly(lease: str, data: bytes, limit: int) -> None:
        append(lease, data[:torn], limit)
        raise DiskFault("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(logs, "append", partly)
        with pytest.raises(DiskFault):
            copy_new(Printed(LINES[:7]), "lease", logs, cursor)
    assert logs.end("lease") == begun + min(torn, len(b"line 4\n" * 3))
    copy_new(Printed(LINES), "lease", logs, cursor)
    copy_new(Printed(LINES), "lease", logs, cursor)
    assert logs.read("lease", 0, 1 << 20).data == ALL


def test_a_cursor_of_before_is_taken_up(tmp_path: Path) -> None:
    logs, cursor = LogStore(tmp_path), tmp_path / "logs" / "lease.cursor"
    logs.append("lease", b"line 0\nline 1\n", 1 << 20)
    disk.write_whole(cursor, LINES[1].partition(b" ")[0])
    for _ in range(2):
        copy_new(Printed(LINES), "lease", logs, cursor)
    assert logs.read("lease", 0, 1 << 20).data == ALL


@dataclass
class Held:
    """What is kept of a lease, as far as its log goes."""

    id: str = "lease"
    exited: bool = False
    log_offset: int = 0


@dataclass
class Shipping:
    """Sends what a workload printed up to now; *sent*: from where to where."""

    end: int = 0
    up: bool = True
    sent: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    async def pump(self, _lease: Held, offset: int) -> tuple[int, bool]:
        if not self.up:
            return offset, False
        end = self.end
        self.sent.append((offset, end))
        await anyio.sleep(0.01)
        return end, True


async def test_what_is_sent_at_an_end_follows_what_is_being_sent() -> None:
    """Each from where the one before ended, by the lease as it stands then: of a part that begins
    again the market keeps nothing twice, and a part that another one moved past is lost.
    """
    kept, shipping = Held(), Shipping(end=5)

    async def remember(event: Any) -> None:
        nonlocal kept
        assert isinstance(event, Logged)
        kept = replace(kept, log_offset=event.offset)

    link = SimpleNamespace(up=True)
    logs = Logs(
        cast(Any, link), cast(Any, shipping), lambda: (), cast(Any, lambda _: kept), remember
    )
    async with anyio.create_task_group() as group:
        for end in (5, 8, 13):
            shipping.end = end
            group.start_soon(logs.ship, "lease")
            await anyio.sleep(0.001)
    assert shipping.sent == [(0, 5), (5, 13), (13, 13)]
    assert kept.log_offset == 13


async def test_what_was_printed_last_is_sent_once_the_line_is_back() -> None:
    """Of a workload that ended while it was down; and then no more."""
    kept, shipping = Held(log_offset=3), Shipping(end=3)

    async def remember(event: Any) -> None:
        nonlocal kept
        kept = replace(kept, log_offset=event.offset)

    link, leases = SimpleNamespace(up=True), cast(Any, [kept])
    logs = Logs(
        cast(Any, link), cast(Any, shipping), lambda: leases, cast(Any, lambda _: kept), remember
    )
    async with anyio.create_task_group() as group:
        group.start_soon(logs.run)
        await anyio.sleep(0.05)
        link.up = shipping.up = False
        shipping.end, kept = 9, replace(kept, exited=True)
        await logs.ship("lease")  # as its end asks
        assert shipping.sent == [(3, 3)]
        link.up = shipping.up = True
        await anyio.sleep(2.5)
        assert shipping.sent == [(3, 3), (3, 9)]
        group.cancel_scope.cancel()


def test_a_container_that_begins_anew_prints_its_own_log(tmp_path: Path) -> None:
    """What is kept of the one before, which was removed with its cursor, is none of its lines."""
    logs, cursor = LogStore(tmp_path), tmp_path / "logs" / "lease.cursor"
    begin("lease", logs, cursor)
    copy_new(Printed([LINES[0]]), "lease", logs, cursor)
    cursor.unlink()
    begin("lease", logs, cursor)
    for _ in range(2):
        copy_new(Printed(LINES[1:]), "lease", logs, cursor)
    assert logs.read("lease", 0, 1 << 20).data == ALL
