"""Workloads for tests that need no registry: this machine's Python as an image, and small
helpers.
"""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio

from adapter.core.workload import Handle, Runtime, Status
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import connect
from adapter.runtime.docker.local_images import build_python
from adapter.runtime.docker.runtime import DockerRuntime
from marketplace.domain.work.workload import WorkloadSpec, WorkloadState

_IMAGES: dict[str, str] = {}


def python_image() -> str:
    """The id of the image made of this machine's Python; built once a run."""
    if "python" not in _IMAGES:
        client = connect()
        try:
            _IMAGES["python"] = build_python(client)
        finally:
            client.close()
    return _IMAGES["python"]


def lease_id(prefix: str = "t") -> str:
    """A lease id that no other test run uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def python_spec(code: str, **changes: object) -> WorkloadSpec:
    """A lease of *code* in the local image, small limits, no network."""
    fields: dict[str, object] = {
        "lease": lease_id(),
        "image": python_image(),
        "command": ("python3", "-u", "-c", code),
        "memory_mib": 128,
        "disk_mib": 64,
        "pids": 64,
        **changes,
    }
    return WorkloadSpec(**fields)  # type: ignore[arg-type]


def docker_runtime(state: Path, adapter: str = "") -> DockerRuntime:
    """A runtime with an identity of its own, so that tests never see each other's containers."""
    return DockerRuntime(DockerConfig(state, adapter or lease_id("a")))


@contextlib.asynccontextmanager
async def running(runtime: Runtime, spec: WorkloadSpec) -> AsyncIterator[Handle]:
    """The workload of *spec*, removed afterwards whatever happens."""
    handle = await runtime.start(spec)
    try:
        yield handle
    finally:
        with anyio.CancelScope(shield=True):
            await runtime.remove(handle)


async def until_status(
    runtime: Runtime, handle: Handle, wanted: WorkloadState, seconds: float = 60
) -> Status:
    """Poll, as the adapter does, until the workload is in *wanted*."""
    with anyio.fail_after(seconds):
        status = await runtime.status(handle)
        while status.state is not wanted:
            await anyio.sleep(0.2)
            status = await runtime.status(handle)
        return status


async def until_log(
    runtime: Runtime, handle: Handle, holds: Callable[[bytes], bool], seconds: float = 60
) -> bytes:
    """Read the log until *holds* is true of all of it."""
    said, offset = b"", 0
    with anyio.fail_after(seconds):
        while not holds(said):
            chunk = await runtime.logs(handle, offset, 1 << 20)
            said, offset = said + chunk.data, chunk.next
            if not chunk.data:
                await anyio.sleep(0.1)
        return said


async def outcome(runtime: Runtime, spec: WorkloadSpec, seconds: float = 60) -> tuple[Status, str]:
    """Run *spec* to its end: its last status and everything it said."""
    async with running(runtime, spec) as handle:
        status = await until_status(runtime, handle, WorkloadState.EXITED, seconds)
        said = (await runtime.logs(handle, 0, 1 << 20)).data
        return status, said.decode(errors="replace")


@contextlib.contextmanager
def outside(address: str) -> Iterator[str]:
    """A machine elsewhere: a network namespace with a listener on port 8099, routed by this
    host. One at a time on it: two tests that run beside each other may mean one address.
    """
    with (Path(tempfile.gettempdir()) / "tally-outside.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with _outside(address) as name:
            yield name


@contextlib.contextmanager
def _outside(address: str) -> Iterator[str]:
    name = lease_id("n")[:12]
    host = address.rpartition(".")[0] + ".1"
    lines = (
        f"ip netns add {name}",
        f"ip link add o{name[-8:]} type veth peer name i{name[-8:]} netns {name}",
        f"ip addr add {host}/24 dev o{name[-8:]}",
        f"ip link set o{name[-8:]} up",
        f"ip -n {name} addr add {address}/24 dev i{name[-8:]}",
        f"ip -n {name} link set i{name[-8:]} up",
    )
    code = (
        f"import socket\ns = socket.create_server(('{address}', 8099))\n"
        "print('listens', flush=True)\nwhile True: s.accept()"
    )
    try:
        for line in lines:
            subprocess.run(line.split(), check=True, timeout=20)
        command = ["ip", "netns", "exec", name, sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            try:
                assert server.stdout.readline() == b"listens\n"
                yield name
            finally:
                server.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, timeout=20)
