"""A store as workloads see it: a folder of their own user, in a plain process and in a container, that
one reads when the other has written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.core.workload import Handle, Runtime
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.process import ProcessRuntime
from adapter.runtime.stores.mounts import StoreMounts
from marketplace.domain.work.workload import WorkloadSpec, WorkloadState
from marketplace.rclone import of_market
from tests.integration.adapter.test_store_mounts import KEYS, NOBODY, Server, mounts, server
from tests.integration.support import images
from tests.requires import need_bubblewrap, need_docker

__all__ = ["mounts", "server"]
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
WORK = """
import os, time
store = os.environ["TALLY_STORE"]
print(os.getuid(), sorted(os.listdir(store)), flush=True)
with open(f"{store}/draft", "w") as file:
    file.write("from " + os.environ["TALLY_LEASE"])
os.replace(f"{store}/draft", f"{store}/" + os.environ["TALLY_LEASE"])
print(sorted(os.listdir("/workspace")), open(f"{store}/" + os.environ["TALLY_LEASE"]).read())
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def spec(lease: str, image: str = "") -> WorkloadSpec:
    return WorkloadSpec(
        lease, image, ("python3", "-c", WORK), env={"TALLY_STORE": "/store"}, store=True,
        memory_mib=128,
    )  # fmt: skip


async def said(runtime: Runtime, handle: Handle) -> list[str]:
    """All that it prints; it has ended well."""
    status = await images.until_status(runtime, handle, WorkloadState.EXITED, 40)
    text = (await runtime.logs(handle, 0, 4096)).data.decode()
    assert status.times.exit_code == 0, text
    return text.splitlines()


async def test_a_plain_process_writes_what_another_reads(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    need_bubblewrap()
    runtime = ProcessRuntime(ProcessConfig(tmp_path / "state", "adapter"))
    lines: list[list[str]] = []
    for lease in ("lease_1", "lease_2"):
        mounts.up(lease, of_market(server.leave(lease), KEYS), NOBODY)
        handle = await runtime.start(spec(lease))
        lines.append(await said(runtime, handle))
        await runtime.remove(handle)
        mounts.down(lease)
    assert lines == [["10001 []", "[] from lease_1"], ["10001 ['lease_1']", "[] from lease_2"]]


@pytest.mark.docker
async def test_a_container_and_a_process_share_one(
    server: Server, mounts: StoreMounts, tmp_path: Path
) -> None:
    need_bubblewrap()
    need_docker()
    image = images.python_image()
    docker = DockerRuntime(DockerConfig(tmp_path / "state", "adapter"))
    for lease in ("lease_1", "lease_2"):
        mounts.up(lease, of_market(server.leave(lease), KEYS), NOBODY)
    handle = await docker.start(spec("lease_1", image))
    assert await said(docker, handle) == ["10001 []", "[] from lease_1"]
    await docker.remove(handle)
    docker.client.close()
    plain = ProcessRuntime(ProcessConfig(tmp_path / "state", "adapter"))
    other = await plain.start(spec("lease_2"))
    assert await said(plain, other) == ["10001 ['lease_1']", "[] from lease_2"]
    await plain.remove(other)
