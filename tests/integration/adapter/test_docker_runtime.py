"""The Docker runtime against a real daemon: a lease's life, and what survives a restart."""

from __future__ import annotations

import contextlib
import gc
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from adapter.core.workload import (
    Handle,
    ImageRefused,
    Progress,
    RuntimeFault,
    RuntimeRefused,
    Terminal,
    WorkloadGone,
)
from adapter.runtime.docker.arguments import create_arguments
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.runtime import DockerRuntime
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState
from tests.integration.support import images
from tests.requires import need_docker

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[DockerRuntime]:
    need_docker()
    made = images.docker_runtime(tmp_path)
    yield made
    if made.client is not None:
        made.client.close()


async def test_a_lease_from_start_to_outputs(runtime: DockerRuntime) -> None:
    code = (
        "import os; print(open('/workspace/in/a.txt').read(), os.environ['TOKEN'], flush=True)\n"
        "os.makedirs('/workspace/out', exist_ok=True); open('/workspace/out/b.txt','w').write('made')"
    )
    spec = images.python_spec(code, files={"in/a.txt": b"given"}, secrets={"TOKEN": "sesame"})
    seen: list[Progress] = []
    assert await runtime.prepare(spec.image, seen.append) == spec.image
    assert seen[-1].text == "ready"
    assert "sesame" not in repr(spec)
    async with images.running(runtime, spec) as handle:
        status = await images.until_status(runtime, handle, WorkloadState.EXITED)
        assert status.reason is ExitReason.COMPLETED
        assert status.times.exit_code == 0
        assert status.times.finished_ms is not None
        assert handle.started_ms <= status.times.finished_ms
        assert (await runtime.logs(handle, 0, 1000)).data == b"given sesame\n"
        outputs = await runtime.outputs(handle, ("out",), 10)
        with tarfile.open(outputs.path) as archive:
            assert archive.getnames() == ["out/b.txt"]
        assert outputs.path.stem == outputs.digest.removeprefix("sha256:")
    assert (await runtime.logs(handle, 6, 6)).data == b"sesame"[:6]
    with pytest.raises(WorkloadGone):
        await runtime.status(handle)
    await runtime.remove(handle)


async def test_start_is_idempotent_and_a_restarted_adapter_adopts(
    runtime: DockerRuntime, tmp_path: Path
) -> None:
    spec = images.python_spec("import time; time.sleep(300)", labels={"job": "j1"})
    async with images.running(runtime, spec) as handle:
        assert (await runtime.start(spec)).id == handle.id
        after = DockerRuntime(DockerConfig(tmp_path, runtime.config.adapter))
        assert await after.adopt() == [handle]
        assert handle.labels == {"job": "j1", "lease": spec.lease}
        assert handle.cgroup and handle.pid in await after.pids(handle)
        other = images.docker_runtime(tmp_path)
        assert await other.adopt() == []
        stopped = await after.stop(handle, 2000)
        assert (stopped.state, stopped.reason) == (WorkloadState.EXITED, ExitReason.STOPPED)
        assert (await after.stop(handle, 2000)).reason is ExitReason.STOPPED
        after.client.close()
        other.client.close()


async def test_a_pause_freezes_and_a_stop_reaches_a_frozen_workload(runtime: DockerRuntime) -> None:
    code = "import time\nwhile True: print('tick', flush=True); time.sleep(0.05)"
    async with images.running(runtime, images.python_spec(code)) as handle:
        await images.until_log(runtime, handle, lambda said: b"tick" in said)
        await runtime.pause(handle)
        assert (await runtime.status(handle)).state is WorkloadState.PAUSED
        frozen = runtime.cgroups.usage(handle.cgroup)
        await anyio.sleep(0.3)
        later = runtime.cgroups.usage(handle.cgroup)
        assert frozen is not None and later is not None and later.cpu_ns == frozen.cpu_ns
        await runtime.resume(handle)
        assert (await runtime.status(handle)).state is WorkloadState.RUNNING
        await runtime.pause(handle)
        assert (await runtime.stop(handle, 1000)).state is WorkloadState.EXITED


async def test_exec_is_bounded_in_time_and_output(runtime: DockerRuntime) -> None:
    spec = images.python_spec("import time; time.sleep(300)")
    async with images.running(runtime, spec) as handle:
        said = await runtime.exec(
            handle, ("python3", "-c", "import os; print(os.getuid())"), 20_000, 100
        )
        assert (said.exit_code, said.output) == (0, b"10001\n")
        loud = ("python3", "-c", "while True: print('x' * 1000)")
        flood = await runtime.exec(handle, loud, 20_000, 5000)
        assert len(flood.output) == 5000
        slow = await runtime.exec(
            handle, ("python3", "-c", "import time; time.sleep(300)"), 500, 100
        )
        assert slow.exit_code == 137
        assert (await runtime.status(handle)).state is WorkloadState.RUNNING


def connections() -> int:
    """How many sockets this process holds."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += one.readlink().name.startswith("socket:")
    return found


async def test_neither_a_command_nor_a_long_log_leaves_a_connection_open(
    runtime: DockerRuntime,
) -> None:
    code = "import time; print(('x' * 999 + '\\n') * 2000 + 'end', flush=True); time.sleep(300)"
    spec = images.python_spec(code, log_limit_kib=256)  # fetched in four parts
    gc.collect()
    held = connections()
    gc.disable()  # what only the collector would close stays open, and is counted
    try:
        async with images.running(runtime, spec) as handle:
            await images.until_log(runtime, handle, lambda said: said.endswith(b"end\n"))
            done = await runtime.exec(handle, ("echo", "x"), 20_000, 100)
            assert done.output == b"x\n"
            runtime.client.close()  # with those that it keeps for its next calls
            assert connections() == held
    finally:
        gc.enable()


async def test_a_port_is_reached_through_the_host(runtime: DockerRuntime) -> None:
    code = (
        "import socket; s = socket.create_server(('0.0.0.0', 8000)); print('up', flush=True)\n"
        "while True: c, _ = s.accept(); c.sendall(b'served'); c.close()"
    )
    async with images.running(runtime, images.python_spec(code, ports=(8000,))) as handle:
        await images.until_log(runtime, handle, lambda said: b"up" in said)
        address, port = handle.ports[8000]
        with anyio.fail_after(60):
            async with await anyio.connect_tcp(address, port) as stream:
                assert await stream.receive() == b"served"


async def test_a_crash_keeps_its_code(runtime: DockerRuntime) -> None:
    status, said = await images.outcome(runtime, images.python_spec("raise SystemExit(7)"))
    assert (status.reason, status.times.exit_code, said) == (ExitReason.CRASHED, 7, "")


async def test_outputs_wait_for_the_exit(runtime: DockerRuntime) -> None:
    async with images.running(runtime, images.python_spec("import time; time.sleep(99)")) as handle:
        with pytest.raises(RuntimeRefused):
            await runtime.outputs(handle, ("x",), 1)


async def test_images_are_refused_by_the_offers_list(tmp_path: Path) -> None:
    need_docker()
    digest = "sha256:" + "0" * 64
    strict = DockerRuntime(DockerConfig(tmp_path, "a", allow=("good/*",), local=False))
    with pytest.raises(ImageRefused, match="list"):
        await strict.prepare(f"evil/miner@{digest}", print)
    with pytest.raises(ImageRefused, match="only on the host"):
        await strict.prepare(digest, print)
    with pytest.raises(ImageRefused):
        await DockerRuntime(DockerConfig(tmp_path, "a")).prepare(digest, print)


async def test_a_daemon_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    absent = DockerRuntime(DockerConfig(tmp_path, "a", host=f"unix://{tmp_path}/none.sock"))
    with pytest.raises(RuntimeFault):
        await absent.adopt()
    with pytest.raises(RuntimeFault):
        await absent.status(Handle("docker", "l", "c", 0))


async def test_a_gpu_is_requested_by_cdi_and_refused_where_there_is_none(
    runtime: DockerRuntime,
) -> None:
    spec = images.python_spec("pass", gpus=("GPU-1", "MIG-2"))
    image = SimpleNamespace(id=spec.image, attrs={"Config": {"Volumes": {"/data": {}}}})
    asked = create_arguments(runtime.config, spec, image, "none")
    request = asked["device_requests"][0]
    assert request["Driver"] == "cdi"
    assert request["DeviceIDs"] == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=MIG-2"]
    assert set(asked["tmpfs"]) == {"/tmp", "/data"}, "an image's volumes must be bounded"
    assert asked["environment"]["LD_PRELOAD"] == ""
    assert asked["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    legacy = DockerRuntime(DockerConfig(runtime.config.state, "a", gpu_request="legacy"))
    old = create_arguments(legacy.config, spec, image, "none")
    assert old["device_requests"][0]["Capabilities"] == [["gpu", "compute", "utility"]]
    assert old["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,MIG-2"
    with pytest.raises(RuntimeFault, match=r"device driver|CDI|cdi"):
        await runtime.start(spec)
    assert await runtime.adopt() == [], "a failed start leaves nothing behind"


async def test_the_log_is_kept_whole_across_reads(runtime: DockerRuntime) -> None:
    code = "import time\nfor n in range(200): print(n, flush=True); time.sleep(0.005)"
    async with images.running(runtime, images.python_spec(code)) as handle:
        said = await images.until_log(runtime, handle, lambda said: said.endswith(b"199\n"))
    assert said.split() == [str(n).encode() for n in range(200)]


def test_the_spec_is_pinned() -> None:
    with pytest.raises(Exception, match="no digest"):
        WorkloadSpec("l", "python:3.11", ("x",)).pinned_image()


async def shown(terminal: Terminal, what: bytes) -> bytes:
    """Until somebody who sits there sees *what*."""
    seen = b""
    with anyio.fail_after(60):
        while what not in seen:
            data = await terminal.read()
            assert data, seen
            seen += data
    return seen


async def test_a_terminal_inside_ends_with_whoever_sits_there(runtime: DockerRuntime) -> None:
    spec = images.python_spec("import time; time.sleep(300)")
    async with images.running(runtime, spec) as handle:
        terminal = await runtime.terminal(handle, ("sh",), 40, 100)
        await terminal.write(b"id -u; python3 -c 'import os; print(os.get_terminal_size())'\n")
        seen = await shown(terminal, b"os.terminal_size(columns=100, lines=40)")
        assert b"10001" in seen
        await terminal.resize(20, 60)
        await terminal.write(b"python3 -c 'import os; print(os.get_terminal_size())'\n")
        await shown(terminal, b"os.terminal_size(columns=60, lines=20)")
        before = await runtime.pids(handle)
        await terminal.end()  # Docker itself would let it run on
        with anyio.fail_after(30):
            while len(await runtime.pids(handle)) >= len(before):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        again = await runtime.terminal(handle, ("sh", "-c", "echo over"), 24, 80)
        await shown(again, b"over")
        assert await again.read() == b""
        await again.end()
        await runtime.pause(handle)
        with pytest.raises((RuntimeFault, RuntimeRefused)):
            await runtime.terminal(handle, ("sh",), 24, 80)
        await runtime.resume(handle)
    with pytest.raises(WorkloadGone):
        await runtime.terminal(handle, ("sh",), 24, 80)
