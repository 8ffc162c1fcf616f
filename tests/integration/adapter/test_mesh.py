"""The network of a cluster's members on real hosts: wireguard-go, namespaces and bubblewrap, and
who is kept out.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.core.workload import RuntimeRefused
from adapter.mesh import device, netns, uapi
from adapter.mesh.host import MeshHost, folder_of
from adapter.mesh.netns import MeshFault
from adapter.mesh.sight import Ears
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.own_processes import own_modules
from adapter.runtime.process import ProcessRuntime
from marketplace.domain.work.mesh import MeshPeer, PathKind
from marketplace.domain.work.mesh_net import FIRST_GUEST, Seat, address
from marketplace.domain.work.workload import Egress, EgressMode, WorkloadSpec, WorkloadState
from tests.integration.adapter.test_process_runtime import need_own_groups, spec
from tests.integration.support import images
from tests.integration.support.meshes import (
    GROUP,
    heard,
    host_at,
    left_of,
    met,
    peer,
    seat,
    until,
)
from tests.requires import need_mesh

pytestmark = pytest.mark.anyio

SERVES = """
import os, socket
door = socket.create_server((os.environ["TALLY_MESH_ADDRESS"], 9000))
print("listens", flush=True)
while True:
    caller, (address, _) = door.accept()
    caller.sendall(address.encode())
    caller.close()
"""
CALLS = """
import socket
with socket.create_connection(("member-1", 9000), timeout=10) as way:
    print("seen as", way.recv(99).decode(), "on", socket.gethostbyname(socket.gethostname()))
"""
TRIES = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        print(place, "REACHED")
    except OSError as error:
        print(place, "not reached")
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print("RAW")
except PermissionError:
    print("not raw")
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def meshes(tmp_path: Path) -> Iterator[MeshHost]:
    with host_at(tmp_path, need_mesh()) as host:
        yield host


def runtime_of(meshes: MeshHost) -> ProcessRuntime:
    need_own_groups()
    return ProcessRuntime(ProcessConfig(meshes._state, meshes._adapter))


def member(
    lease: str, at: int, code: str, *arguments: str, group: bytes = b"g" * 32
) -> WorkloadSpec:
    command = ("python3", "-u", "-c", code, *arguments)
    return spec(code, lease=lease, mesh=seat(at, group), command=command)


async def said(runtime: ProcessRuntime, job: WorkloadSpec) -> str:
    """What *job* prints to its end."""
    async with images.running(runtime, job) as handle:
        await images.until_status(runtime, handle, WorkloadState.EXITED, 20)
        return (await runtime.logs(handle, 0, 4000)).data.decode()


# ---- whom it takes -------------------------------------------------------------------------------


async def test_members_reach_each_other_by_name(meshes: MeshHost) -> None:
    runtime = runtime_of(meshes)
    first, second = met(meshes, [seat(0), seat(1)])
    async with images.running(runtime, member(second, 1, SERVES)) as server:
        await images.until_log(runtime, server, lambda log: b"listens" in log)
        own = seat(0).address
        assert await said(runtime, member(first, 0, CALLS)) == f"seen as {own} on {own}\n"


async def test_of_two_members_the_lower_begins(meshes: MeshHost) -> None:
    """Where both do at once each drops the other's answer, and waits for 5 s."""
    leases = [images.lease_id(), images.lease_id()]
    first, second = (meshes.up(one, seat(at)) for at, one in enumerate(leases))

    def seen(at: int, key: bytes) -> uapi.PeerSeen:
        return uapi.get(device.socket_of(netns.name_of(leases[at], meshes._adapter))).peers[key]

    meshes.meet(leases[1], [peer(0, first)])
    for _ in range(3):
        assert heard(meshes, leases[1]) == []
    assert (seen(1, first.key).endpoint, seen(1, first.key).sent) == ("", 0)
    meshes.meet(leases[0], [peer(1, second)])
    assert until(lambda: heard(meshes, leases[0]) == [1] and heard(meshes, leases[1]) == [0])
    assert seen(0, second.key).sent and seen(1, first.key).sent
    assert seen(1, first.key).endpoint == f"{meshes.reach.endpoint}:{first.port}"


async def test_the_other_begins_where_nothing_comes_by_a_proven_path(meshes: MeshHost) -> None:
    leases = [images.lease_id(), images.lease_id()]
    first, second = (meshes.up(one, seat(at)) for at, one in enumerate(leases))
    names = [netns.name_of(one, meshes._adapter) for one in leases]
    meshes.meet(leases[0], [peer(1, second)])
    lost = f"public_key={second.key.hex()}\nremove=true\n"  # paths are tried beside it, and answer
    uapi.put(device.socket_of(names[0]), lost)
    meshes.meet(leases[1], [peer(0, first)])

    def endpoint() -> str:
        return uapi.get(device.socket_of(names[1])).peers[first.key].endpoint

    assert until(lambda: endpoint() != "", 20)
    assert endpoint() == f"{meshes.reach.endpoint}:{first.port}"


@pytest.mark.parametrize("at", ["127.0.0.1", "0.0.0.0", "os.environ['TALLY_MESH_ADDRESS']"])
async def test_a_port_of_a_plain_process_is_called_from_inside_its_mesh(
    meshes: MeshHost, at: str
) -> None:
    runtime = runtime_of(meshes)
    lease, other = met(meshes, [seat(0), seat(1)])
    here = at if at.startswith("os") else f'"{at}"'
    code = SERVES.replace('os.environ["TALLY_MESH_ADDRESS"]', here)
    async with images.running(runtime, replace(member(lease, 0, code), ports=(9000,))) as server:
        await images.until_log(runtime, server, lambda log: b"listens" in log)
        assert server.ports == {9000: ("127.0.0.1", 9000)}
        with meshes.dial(lease, 9000) as way:
            assert way.recv(99) in (b"127.0.0.1", seat(0).address.encode())
        with pytest.raises(MeshFault):
            meshes.dial(other, 9000)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", 9000), 1)


async def test_a_guest_is_in_while_an_order_names_it_and_no_prober_asks_it(
    meshes: MeshHost,
) -> None:
    """Here another mesh's device stands for the consumer's machine: it has WireGuard alone."""
    first, second = met(meshes, [seat(0), seat(1)])
    guest = images.lease_id()
    far = Seat(0, (address(GROUP, FIRST_GUEST),))
    placed = meshes.up(guest, far)
    named = MeshPeer(FIRST_GUEST, placed.key, ())
    one, two = meshes.up(first, seat(0)), meshes.up(second, seat(1))
    door = device.socket_of(netns.name_of(guest, meshes._adapter))
    wanted = [
        uapi.Peer(it.key, seat(at).address, it.candidates[0].endpoint, it.candidates[0].port)
        for at, it in enumerate((one, two))
    ]
    uapi.put(door, uapi.changes({}, wanted))

    def asks(at: int) -> bool:
        ears = Ears(netns.name_of(guest, meshes._adapter))
        try:
            return bool(ears.round({at: seat(at).address}, 0.5))
        finally:
            ears.close()

    assert not asks(0) and not asks(1)
    meshes.meet(first, [peer(1, two), named])
    assert until(lambda: asks(0)) and not asks(1), "only who was ordered so takes it"
    assert until(lambda: heard(meshes, first) == [1, FIRST_GUEST])
    assert [h.path for h in meshes.hear(first, 0.3)][1] is PathKind.SEEN
    meshes.meet(first, [peer(1, two)])
    assert not asks(0) and heard(meshes, first) == [1]


async def test_a_member_reaches_no_host_no_neighbour_and_no_other_group(meshes: MeshHost) -> None:
    """Not the group that has the very same addresses either."""
    runtime = runtime_of(meshes)
    first, second = met(meshes, [seat(0), seat(1)])
    _, theirs = met(meshes, [seat(0), seat(1)])
    other = met(meshes, [seat(0, b"o" * 32), seat(1, b"o" * 32)])[1]
    with socket.create_server(("0.0.0.0", 0)) as neighbour:
        port = neighbour.getsockname()[1]
        async with (
            images.running(runtime, member(theirs, 1, SERVES)) as one,
            images.running(runtime, member(other, 1, SERVES, group=b"o" * 32)) as two,
        ):
            for server in (one, two):
                await images.until_log(runtime, server, lambda log: b"listens" in log)
            places = [
                f"{meshes.reach.endpoint}:{port}", f"127.0.0.1:{port}", f"10.0.0.1:{port}",
                f"{seat(1).address}:9000", f"{seat(1, b'o' * 32).address}:9000",
            ]  # fmt: skip
            log = await said(runtime, member(first, 0, TRIES, *places))
    assert log == "".join(f"{place} not reached\n" for place in places) + "not raw\n"
    assert heard(meshes, second) == [0], "its own group is there all the time"


async def test_a_stranger_is_not_heard_until_an_order_names_its_key(
    meshes: MeshHost, tmp_path: Path
) -> None:
    first, second = met(meshes, [seat(0), seat(1)])
    here = meshes.up(first, seat(0))
    with host_at(tmp_path / "stranger", meshes.reach.endpoint) as other:
        lease = images.lease_id()
        stranger = other.up(lease, seat(2))
        other.meet(lease, [peer(0, here)])
        assert not until(lambda: heard(other, lease) != [], 2.0)
        name = netns.name_of(lease, other._adapter)
        assert netns.inside(name, lambda: _reaches(seat(0).address, 1)) is False
        meshes.meet(first, [peer(1, meshes.up(second, seat(1))), peer(2, stranger)])
        assert until(lambda: heard(other, lease) == [0]), "it is the order that kept it out"
        assert until(lambda: heard(meshes, first) == [1, 2])


async def test_a_member_cannot_speak_for_another(meshes: MeshHost) -> None:
    """By root on its own host: what bears an address that is not its key's is dropped."""
    first, second, _ = met(meshes, [seat(0), seat(1), seat(2)])
    assert until(lambda: heard(meshes, first) == [1, 2])
    liar = netns.name_of(second, meshes._adapter)
    netns.run("ip", "-n", liar, "address", "add", f"{seat(2).address}/24", "dev", "tally0")
    own = (seat(1).address, 0)
    with netns.inside(liar, lambda: _sender(own)) as honest:
        assert _arrives(meshes, first, honest)
    with netns.inside(liar, lambda: _sender((seat(2).address, 0))) as forged:
        assert not _arrives(meshes, first, forged)


async def test_who_is_no_peer_any_more_is_cut_off(meshes: MeshHost) -> None:
    first, second, third = met(meshes, [seat(0), seat(1), seat(2)])
    assert until(lambda: heard(meshes, first) == [1, 2])
    stays = peer(1, meshes.up(second, seat(1)))
    meshes.meet(first, [stays])
    assert until(lambda: heard(meshes, third) == [1], 5.0), "it hears the ex-peer no more"
    assert heard(meshes, first) == [1]
    name = netns.name_of(third, meshes._adapter)
    assert netns.inside(name, lambda: _reaches(seat(0).address, 1)) is False


async def test_a_replaced_member_has_its_address_with_another_key(meshes: MeshHost) -> None:
    first, second = met(meshes, [seat(0), seat(1)])
    assert until(lambda: heard(meshes, first) == [1])
    fresh = images.lease_id()
    placed = meshes.up(fresh, seat(1))
    meshes.meet(fresh, [peer(0, meshes.up(first, seat(0)))])
    meshes.meet(first, [peer(1, placed)])
    assert until(lambda: heard(meshes, first) == [1])
    assert until(lambda: heard(meshes, fresh) == [0])
    assert until(lambda: heard(meshes, second) == [], 5.0), "the old one is out"


async def test_a_frozen_member_is_heard_all_the_same(meshes: MeshHost) -> None:
    """Who holds a cluster still sees that it could go on."""
    runtime = runtime_of(meshes)
    first, second = met(meshes, [seat(0), seat(1)])
    async with images.running(runtime, member(second, 1, SERVES)) as handle:
        await runtime.pause(handle)
        assert until(lambda: heard(meshes, first) == [1])
        await runtime.resume(handle)


async def test_nothing_is_sent_to_itself_or_beyond_its_cluster(meshes: MeshHost) -> None:
    first, second = met(meshes, [seat(0), seat(1)])
    one, two = meshes.up(first, seat(0)), meshes.up(second, seat(1))
    assert meshes.meet(first, [peer(0, one), peer(1, two)]) == (0,)
    with pytest.raises(MeshFault):
        meshes.meet(first, [MeshPeer(3, b"k" * 32, two.candidates)])


@pytest.mark.parametrize(
    "changed",
    [{"egress": Egress(EgressMode.OPEN)}, {"lease": "lease-without-a-mesh"}],
)
async def test_what_a_plain_process_cannot_be_beside_a_mesh_is_refused(
    meshes: MeshHost, changed: dict[str, object]
) -> None:
    runtime = runtime_of(meshes)
    (lease,) = met(meshes, [seat(0)])
    with pytest.raises(RuntimeRefused):
        await runtime.start(spec("pass", **{"lease": lease, "mesh": seat(0), **changed}))


# ---- what becomes of it --------------------------------------------------------------------------


async def test_a_mesh_leaves_nothing_behind(meshes: MeshHost) -> None:
    (lease,) = met(meshes, [seat(0)])
    name = netns.name_of(lease, meshes._adapter)
    assert left_of(name) != []
    meshes.down(lease)
    assert left_of(name) == []
    assert meshes.held() == []
    meshes.down(lease)  # again


DIES = """
import os, signal, sys
from pathlib import Path
from adapter.mesh import device, netns
from adapter.mesh.host import MeshHost
from adapter.mesh.reach import Reach
from tests.integration.support.meshes import met, seat
host = MeshHost(Path(sys.argv[1]), sys.argv[2], Reach(sys.argv[3], int(sys.argv[4]), 32))
where = sys.argv[5]
step = {"netns": (netns, "make"), "device": (device, "start"), "port": (device, "configure")}
if where in step:
    module, name = step[where]
    before = getattr(module, name)
    def then(*given):
        before(*given)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, then)
print(*met(host, [seat(0), seat(1)]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(meshes: MeshHost, where: str) -> str:
    """What an adapter with the same state said that was killed *where*."""
    root = str(Path(__file__).parents[3])
    arguments = [meshes._adapter, meshes.reach.endpoint, str(meshes.reach.first), where]
    done = subprocess.run(
        [sys.executable, "-c", DIES, str(meshes._state), *arguments],
        env={**own_modules(), "PYTHONPATH": root}, capture_output=True, timeout=25, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("where", ["netns", "device", "port", "end"])
async def test_what_a_killed_adapter_left_is_found_and_taken_away(
    meshes: MeshHost, where: str
) -> None:
    killed(meshes, where)
    found = meshes.held()
    assert len(found) == (2 if where == "end" else 1)
    names = [netns.name_of(lease, meshes._adapter) for lease in found]
    assert all(left_of(name) for name in names)
    for lease in found:
        meshes.down(lease)
    assert [left_of(name) for name in names] == [[]] * len(names)
    assert meshes.held() == []


async def test_a_killed_adapters_mesh_goes_on_and_is_taken_up_as_it_was(meshes: MeshHost) -> None:
    first, second = killed(meshes, "end").splitlines()[-1].split()  # what it logs stands before
    name = netns.name_of(first, meshes._adapter)
    before = device._pid(name)
    one, two = meshes.up(first, seat(0)), meshes.up(second, seat(1))
    assert device._pid(name) == before, "the same process carries it"
    meshes.meet(first, [peer(1, two)])
    meshes.meet(second, [peer(0, one)])
    assert until(lambda: heard(meshes, first) == [1], 5.0)


async def test_a_device_that_dies_is_made_anew_with_its_key_port_and_peers(
    meshes: MeshHost,
) -> None:
    first, second = met(meshes, [seat(0), seat(1)])
    assert until(lambda: heard(meshes, first) == [1])
    placed, name = meshes.up(first, seat(0)), netns.name_of(first, meshes._adapter)
    pid = device._pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: device._pid(name) is None)
    with pytest.raises(MeshFault):
        meshes.hear(first, 0.1)
    assert meshes.up(first, seat(0)) == placed
    assert until(lambda: heard(meshes, first) == [1])
    assert until(lambda: heard(meshes, second) == [0])


async def test_a_namespace_that_lost_its_name_is_named_again(meshes: MeshHost) -> None:
    """A service with mounts of its own loses it whenever it is started anew."""
    runtime = runtime_of(meshes)
    first, second = met(meshes, [seat(0), seat(1)])
    async with images.running(runtime, member(second, 1, SERVES)) as handle:
        await images.until_log(runtime, handle, lambda log: b"listens" in log)
        name = netns.name_of(second, meshes._adapter)
        assert ctypes.CDLL(None).umount2(str(netns.path_of(name)).encode(), 2) == 0  # MNT_DETACH
        assert not netns.is_there(name)
        meshes.up(second, seat(1), handle.pid)
        assert until(lambda: heard(meshes, second) == [0])
        assert (await said(runtime, member(first, 0, CALLS))).startswith("seen as 100.")


async def test_each_lease_has_a_port_of_its_own_and_keeps_it(
    meshes: MeshHost, tmp_path: Path
) -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with taken:
        taken.bind(("", meshes.reach.first))  # another program's
        leases = met(meshes, [seat(0), seat(1)])
        ports = [meshes.up(lease, seat(at)).port for at, lease in enumerate(leases)]
    assert ports == [meshes.reach.first + 1, meshes.reach.first + 2]
    assert meshes.up(leases[0], seat(0)).port == ports[0], "though a lower one is free by now"
    assert (folder_of(tmp_path, leases[0]) / "key").stat().st_mode & 0o077 == 0


# ---- packets -------------------------------------------------------------------------------------


def _reaches(address: str, port: int) -> bool:
    """Whether anything there answers a connection, if only by refusing it."""
    try:
        socket.create_connection((address, port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _sender(source: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(source)
    return made


def _arrives(meshes: MeshHost, lease: str, sender: socket.socket) -> bool:
    """Whether a datagram of *sender* comes out in the namespace of *lease*, which is member 0."""
    name = netns.name_of(lease, meshes._adapter)
    with netns.inside(name, lambda: _sender((seat(0).address, 0))) as door:
        door.settimeout(1.0)
        for _ in range(5):
            sender.sendto(b"mark", (seat(0).address, door.getsockname()[1]))
        try:
            return door.recv(99) == b"mark"
        except TimeoutError:
            return False
