"""The Docker daemon dies under a lease and comes back: the lease survives, or ends as the
provider's fault; either way nothing is billed that was not delivered.

The daemon is this test's own, with its own data, in a network namespace of its own: the shared one
and its bridges are never touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from adapter.core.workload import RuntimeFault
from adapter.runtime.docker.door import connect
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Job
from marketplace.domain.money.invoice.bill import Line
from marketplace.domain.units import LOVELACE_PER_ADA
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import EndReason
from marketplace.domain.work.parts import Policy, Price, Range, Resources
from tests.e2e.support.embedded import World, settled_bill, story, until_true
from tests.requires import need_docker

TICK_MS = 1000
AWAY_S = 12
"""Longer than the meter bridges without proof."""
SCRIPT = "import time\nfor n in range(60):\n    print('line', n, flush=True)\n    time.sleep(1)"


@dataclass
class PrivateDaemon:
    """A dockerd that can be killed."""

    folder: Path
    live_restore: bool
    process: subprocess.Popen[bytes] | None = None
    namespace: str = field(default_factory=lambda: f"tally{os.getpid()}")

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/sock"

    def start(self) -> None:
        """Until it answers."""
        arguments = [
            "nsenter", f"--net=/run/netns/{self.namespace}", "dockerd", "--host", self.host,
            "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
            "--pidfile", str(self.folder / "pid"),
        ]  # fmt: skip
        if self.live_restore:
            arguments.append("--live-restore")
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        deadline = time.monotonic() + 90
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "dockerd does not answer"
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            connect(self.host).close()
        except RuntimeFault:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, for its containerd as well; the containers' shims live on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        # Where nobody reaps orphans the dead containerd's pid stays taken, and dockerd would wait
        # for it.
        pidfile = self.folder / "exec" / "containerd" / "containerd.pid"
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pidfile.read_text()), signal.SIGKILL)
        pidfile.unlink()

    def container(self) -> dict[str, Any]:
        """The one container's state, as the daemon tells it."""
        client = connect(self.host)
        (container,) = client.containers.list(all=True)
        client.close()
        return container.attrs["State"]

    def end(self) -> None:
        """In order, so that it takes its containers and its containerd with it."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.start()
        client = connect(self.host)
        for container in client.containers.list(all=True):
            container.remove(force=True)
        client.close()
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def private_daemon(live_restore: bool) -> Generator[PrivateDaemon]:
    """A daemon beside the shared one."""
    need_docker()
    if os.geteuid() or not shutil.which("nsenter") or not shutil.which("ip"):
        pytest.skip("a second Docker daemon takes root, nsenter and ip")
    made = PrivateDaemon(Path(tempfile.mkdtemp(prefix="tally-dockerd-")), live_restore)
    subprocess.run(["ip", "netns", "add", made.namespace], check=True)
    try:
        made.start()
        yield made
    finally:
        try:
            made.end()
        finally:
            subprocess.run(["ip", "netns", "delete", made.namespace], check=True)
            # dockerd mounts its data onto itself and leaves it so
            subprocess.run(["umount", str(made.folder / "data")], check=False, capture_output=True)
            shutil.rmtree(made.folder, ignore_errors=True)


def _spec(image: str) -> JobSpec:
    return JobSpec(
        name="restart",
        image=image,
        command=("python3", "-c", SCRIPT),
        resources=(Resources(cpu=Range(500), memory=Range(128)),),
        price=Price(budget=5 * LOVELACE_PER_ADA),
        policy=Policy(max_duration_ms=600_000),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[1])


@dataclass
class Life:
    """How long the workload really lived: its first process, watched in /proc by nobody's leave."""

    pid: int
    started_ms: int
    died_ms: int = 0

    async def watch(self) -> None:
        """Until it is dead."""
        while _alive(self.pid):  # noqa: ASYNC110  the kernel tells nobody
            await anyio.sleep(0.02)
        self.died_ms = _now_ms()

    @property
    def ms(self) -> int:
        """From Docker's own start to its death."""
        return self.died_ms - self.started_ms

    def end_with_its_shim(self) -> None:
        """As when a service manager ends all that belongs to Docker."""
        for pid in (_parent(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def _running(world: World, daemon: PrivateDaemon) -> tuple[Job, Life]:
    """A lease with three ticks behind it."""
    ticks: list[str] = []

    async def heard(paid: Paid) -> None:
        if paid.kind == "tick":
            ticks.append(paid.lease)

    async def ticked() -> bool:
        return len(ticks) >= 3

    silence = world.market.listen(heard)
    job = await world.market.run(_spec(world.place.image))
    await until_true(ticked, "three ticks")
    silence()
    state = await anyio.to_thread.run_sync(daemon.container)
    begun = datetime.fromisoformat(state["StartedAt"][:23] + "+00:00")
    return job, Life(int(state["Pid"]), int(begun.timestamp() * 1000))


def _billed_ms(line: Line) -> int:
    return line.unit_ms * 1000 // line.units_milli


@pytest.mark.parametrize(
    ("live_restore", "dies_with_it", "reason"),
    [
        pytest.param(True, False, EndReason.COMPLETED, id="outlives it", marks=pytest.mark.prove),
        pytest.param(
            False,
            False,
            EndReason.PROVIDER_FAULT,
            id="ended by its return",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            True, True, EndReason.PROVIDER_FAULT, id="falls with it", marks=pytest.mark.nightly
        ),
    ],
)
def test_the_docker_daemon_is_killed_under_a_lease(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    live_restore: bool,
    dies_with_it: bool,
    reason: EndReason,
) -> None:
    async def outage(life: Life) -> int:
        """Docker goes and comes back; when it went."""
        daemon.kill()
        gone_ms = _now_ms()
        if dies_with_it:
            life.end_with_its_shim()
        await anyio.sleep(AWAY_S)
        assert _alive(life.pid) is not dies_with_it
        await anyio.to_thread.run_sync(daemon.start)
        return gone_ms

    async def tell(world: World) -> None:
        job, life = await _running(world, daemon)
        gone: list[int] = []
        async with anyio.create_task_group() as group:
            group.start_soon(life.watch)
            gone.append(await outage(life))
            await job.wait()
        (gone_ms,) = gone
        assert job.reason == reason, job.view
        bill = await settled_bill(world, job.id)
        (line,) = bill.lines
        billed = _billed_ms(line)
        print(job.reason, "billed", billed, "lived", life.ms)
        assert 0 < billed <= life.ms + TICK_MS
        if reason == EndReason.COMPLETED:  # it ran all the while, and the meter can prove it
            assert billed >= life.ms - 2 * TICK_MS
        else:  # nobody can show when it fell: nothing after the last good look
            assert billed <= gone_ms - life.started_ms + TICK_MS
        assert sum(total.claimed or 0 for total in bill.channels) == bill.owed

    with private_daemon(live_restore) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        story(tmp_path, tell)
