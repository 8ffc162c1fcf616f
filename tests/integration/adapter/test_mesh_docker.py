"""Members of a cluster in containers: they are in a mesh before they begin, have what egress their
job has beside it, and leave nothing behind.
"""

from __future__ import annotations

import ctypes
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio.to_thread
import pytest

from adapter.core.workload import RuntimeFault
from adapter.daemon.meshes import Holder
from adapter.mesh import netns
from adapter.mesh.host import MeshHost, Placed
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.networks import holder_program
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.process import ProcessRuntime
from marketplace.domain.work.mesh_net import Seat
from marketplace.domain.work.parts import Port
from marketplace.domain.work.workload import NO_EGRESS, Egress, EgressMode, WorkloadSpec
from tests.integration.adapter.test_docker_isolation import TRY
from tests.integration.adapter.test_mesh import CALLS, SERVES, member, runtime_of
from tests.integration.support import images
from tests.integration.support.meshes import heard, host_at, left_of, peer, seat, until
from tests.requires import need_docker, need_holder, need_mesh
from tests.unit.support.adapter import gpu_job

pytestmark = [pytest.mark.docker, pytest.mark.anyio]
OPEN = Egress(EgressMode.OPEN)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def meshes(tmp_path: Path) -> Iterator[MeshHost]:
    need_docker()
    need_holder()
    with host_at(tmp_path, need_mesh()) as host:
        yield host


@pytest.fixture
def runtime(meshes: MeshHost) -> Iterator[DockerRuntime]:
    made = DockerRuntime(DockerConfig(meshes._state, meshes._adapter))
    yield made
    made.networks.sweep([])
    made.client.close()


async def place(
    meshes: MeshHost,
    runtime: DockerRuntime,
    at: Seat,
    egress: Egress = NO_EGRESS,
    ports: tuple[int, ...] = (),
) -> tuple[str, Placed]:
    """A lease whose network is held, with its mesh in it."""
    lease = images.lease_id()
    job = gpu_job(egress=egress, ports=tuple(map(Port, ports)))
    pid = await runtime.hold(lease, job, at)
    return lease, await anyio.to_thread.run_sync(meshes.up, lease, at, pid)


def meet(meshes: MeshHost, *members: tuple[int, str, Placed]) -> None:
    for at, lease, _ in members:
        meshes.meet(lease, [peer(n, placed) for n, _, placed in members if n != at])


def contained(lease: str, at: int, code: str, **changes: object) -> WorkloadSpec:
    return images.python_spec(code, lease=lease, mesh=seat(at), **changes)


async def test_members_in_containers_reach_each_other_by_name(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    (first, one), (second, two) = [await place(meshes, runtime, seat(at)) for at in (0, 1)]
    meet(meshes, (0, first, one), (1, second, two))
    async with images.running(runtime, contained(second, 1, SERVES)) as server:
        await images.until_log(runtime, server, lambda log: b"listens" in log)
        own = seat(0).address
        _, said = await images.outcome(runtime, contained(first, 0, CALLS))
        assert said == f"seen as {own} on {own}\n"


async def test_a_container_and_a_plain_process_are_members_of_one_mesh(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    plain = runtime_of(meshes)
    second, two = await place(meshes, runtime, seat(1))
    first = images.lease_id()
    meet(meshes, (0, first, meshes.up(first, seat(0))), (1, second, two))
    async with images.running(runtime, contained(second, 1, SERVES)) as server:
        await images.until_log(runtime, server, lambda log: b"listens" in log)
        _, said = await images.outcome(plain, member(first, 0, CALLS))
        assert said.startswith("seen as 100.")


@pytest.mark.parametrize("egress", [NO_EGRESS, OPEN])
async def test_egress_is_what_it_was_without_a_mesh(
    meshes: MeshHost, runtime: DockerRuntime, egress: Egress
) -> None:
    first, one = await place(meshes, runtime, seat(0), egress, (8000,))
    second, two = await place(meshes, runtime, seat(1))
    meet(meshes, (0, first, one), (1, second, two))
    there = "203.0.113.2"
    with images.outside(there), socket.create_server(("0.0.0.0", 0)) as neighbour:
        port = neighbour.getsockname()[1]
        async with images.running(runtime, contained(second, 1, SERVES)) as server:
            await images.until_log(runtime, server, lambda log: b"listens" in log)
            targets = [(there, 8099), (meshes.reach.endpoint, port), ("172.17.0.1", port)]
            command = ("python3", "-u", "-c", TRY, json.dumps([*targets, ("member-1", 9000)]))
            job = contained(first, 0, TRY, command=command, egress=egress, ports=(8000,))
            _, said = await images.outcome(runtime, job)
    assert list(json.loads(said).values()) == [egress is OPEN, False, False, True]


async def test_the_host_reaches_a_members_port(meshes: MeshHost, runtime: DockerRuntime) -> None:
    lease, _ = await place(meshes, runtime, seat(0), ports=(8000,))
    serves = "import socket; s = socket.create_server(('', 8000)); print('up'); s.accept()"
    async with images.running(runtime, contained(lease, 0, serves, ports=(8000,))) as handle:
        await images.until_log(runtime, handle, lambda log: b"up" in log)
        socket.create_connection(handle.ports[8000], timeout=5).close()


async def test_a_restarted_adapter_finds_a_members_network_by_its_workload(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    (first, one), (second, two) = [await place(meshes, runtime, seat(at)) for at in (0, 1)]
    meet(meshes, (0, first, one), (1, second, two))
    async with images.running(runtime, contained(second, 1, SERVES)):
        name = netns.name_of(second, meshes._adapter)
        assert ctypes.CDLL(None).umount2(str(netns.path_of(name)).encode(), 2) == 0  # MNT_DETACH
        (found,) = await DockerRuntime(runtime.config).adopt()
        after = MeshHost(meshes._state, meshes._adapter, meshes.reach)
        assert after.up(second, seat(1), found.pid) == two
        after.meet(second, [peer(0, one)])
        assert until(lambda: heard(after, second) == [0])
        after.close()


async def test_a_start_that_is_made_again_has_its_mesh_in_the_new_network(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    """What held the first one went with the try that failed."""
    (first, one), (second, two) = [await place(meshes, runtime, seat(at)) for at in (0, 1)]
    runtime.networks.remove(second)
    pid = await runtime.hold(second, gpu_job(), seat(1))
    assert meshes.up(second, seat(1), pid) == two
    meet(meshes, (0, first, one), (1, second, two))
    async with images.running(runtime, contained(second, 1, SERVES)) as server:
        await images.until_log(runtime, server, lambda log: b"listens" in log)
        assert until(lambda: heard(meshes, first) == [1])


async def test_nothing_is_left_of_a_member(meshes: MeshHost, runtime: DockerRuntime) -> None:
    lease, _ = await place(meshes, runtime, seat(0), OPEN)
    async with images.running(runtime, contained(lease, 0, "pass", egress=OPEN)):
        pass
    meshes.down(lease)
    assert left_of(netns.name_of(lease, meshes._adapter)) == []
    everything = runtime.client.containers.list(all=True)
    assert [one.name for one in everything if lease in one.name] == []
    assert [one.name for one in runtime.client.networks.list() if lease in str(one.attrs)] == []


async def test_a_network_that_is_held_for_nobody_goes_with_the_next_start(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    """Its adapter was killed before the workload began; one whose workload runs stays."""
    (first, _), (second, _) = [await place(meshes, runtime, seat(at)) for at in (0, 1)]
    async with images.running(runtime, contained(second, 1, SERVES)):
        assert [handle.lease for handle in await runtime.adopt()] == [second]
        with pytest.raises(RuntimeFault):
            await runtime.start(contained(first, 0, "pass"))
        left = [one.name for one in runtime.client.containers.list() if "-net-" in one.name]
        assert [second in name for name in left if meshes._adapter in name] == [True]


def test_the_holder_does_nothing_and_may_do_nothing(
    meshes: MeshHost, runtime: DockerRuntime
) -> None:
    program = holder_program()
    assert program is not None
    pid = runtime.networks.hold(images.lease_id(), NO_EGRESS, (), seat(0))
    status = Path(f"/proc/{pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status and "Uid:\t65534" in status


def test_a_process_runtime_holds_no_networks(tmp_path: Path) -> None:
    assert not isinstance(ProcessRuntime(ProcessConfig(tmp_path, "a")), Holder)
    assert isinstance(DockerRuntime(DockerConfig(tmp_path, "a")), Holder)
