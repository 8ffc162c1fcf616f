"""The Docker daemon dies under a lease and comes back: the lease survives, or ends as the provider's
fault; either way nothing is billed that was not delivered.

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
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapter.runtime.base import RuntimeFault
from adapter.runtime.docker import connect
from marketplace.client.payers import Paid
from marketplace.domain.job import JobSpec, Policy, Price, Range, Resources
from marketplace.domain.lease import EndReason
from marketplace.domain.units import LOVELACE_PER_ADA
from tests.e2e.support_embedded import World, settled_bill, story, until_true
from tests.requires import need_docker

pytestmark = pytest.mark.prove
TICK_MS = 1000
SCRIPT = "import time\nfor n in range(30):\n    print('line', n, flush=True)\n    time.sleep(1)"


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
        # Where nobody reaps orphans the dead containerd's pid stays taken, and dockerd would wait for it.
        pidfile = self.folder / "exec" / "containerd" / "containerd.pid"
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pidfile.read_text()), signal.SIGKILL)
        pidfile.unlink()

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


@pytest.mark.parametrize("live_restore", [True, False])
def test_the_docker_daemon_is_killed_under_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live_restore: bool
) -> None:
    async def tell(world: World) -> None:
        at: dict[str, int] = {}
        ticks: list[str] = []

        async def heard(paid: Paid) -> None:
            if paid.kind == "stage" and paid.code == "STARTED":
                at["started"] = time.monotonic_ns() // 1_000_000
            if paid.kind == "tick":
                ticks.append(paid.lease)

        async def ticked() -> bool:
            return len(ticks) >= 3

        silence = world.market.listen(heard)
        job = await world.market.run(_spec(world.place.image))
        await until_true(ticked, "three ticks")
        daemon.kill()
        killed = time.monotonic_ns() // 1_000_000
        await anyio.to_thread.run_sync(daemon.start)
        view = await job.wait()
        ended = time.monotonic_ns() // 1_000_000
        silence()
        assert view["reason"] in (EndReason.COMPLETED, EndReason.PROVIDER_FAULT), view
        bill = await settled_bill(world, job.id)
        (line,) = bill.lines
        billed_ms = line.unit_ms * 1000 // line.units_milli
        print(live_restore, view["reason"], billed_ms, killed - at["started"])
        lived = ended if view["reason"] == EndReason.COMPLETED else killed
        assert 0 < billed_ms <= lived - at["started"] + TICK_MS
        assert sum(total.claimed or 0 for total in bill.channels) == bill.owed

    with private_daemon(live_restore) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        story(tmp_path, tell)
