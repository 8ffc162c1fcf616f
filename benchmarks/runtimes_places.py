"""Where ``tally bench runtimes`` runs its programs: on the host, as the process runtime and Docker
run a workload, and as members that reach each other over loopback or over a mesh.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from adapter.core.workload import Runtime, RuntimeFault
from adapter.daemon.meshes import ANSWER_S, SOON_S
from adapter.mesh import device, netns
from adapter.mesh.host import MeshHost
from adapter.mesh.reach import Reach, own_address
from adapter.runtime.confinement import ProcessConfig
from adapter.runtime.docker.config import DockerConfig
from adapter.runtime.docker.door import connect, map_docker
from adapter.runtime.docker.local_images import build_from
from adapter.runtime.docker.runtime import DockerRuntime
from adapter.runtime.process import ProcessRuntime
from marketplace.domain.errors import Fault
from marketplace.domain.work.mesh import MeshPeer, PathKind
from marketplace.domain.work.mesh_net import Seat, address
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.domain.work.workload import WorkloadSpec, WorkloadState
from marketplace.mesh_relay.process import relaying

IMAGE: Final = "tally/torch-bench"
MEMBERS: Final = 3
WITHIN_S: Final = 300
_MEETS_S: Final = 30
_LOGS: Final = 4 << 20
_MIB: Final = 1500
_PORT: Final = "29400"
_RANGES: Final = range(20_000, 56_000, 1_000)
PATHS: Final = {"direct": PathKind.PUBLIC, "relayed": PathKind.RELAY}


class RunFailed(Fault):
    """A program of the bench did not end well, or not in time."""

    code = "BENCH_RUN_FAILED"
    remedy = "look at what it printed; --torch names an environment of this Python with PyTorch"


@dataclass(frozen=True)
class Ran:
    """What a program printed, and when it was asked for, in ns of the host's clock."""

    asked_ns: int
    said: str


def on_host(line: Sequence[str], env: Mapping[str, str]) -> Ran:
    """*line* as a process of this machine's, as its own user runs it."""
    asked = time.time_ns()
    try:
        done = subprocess.run(
            line, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True,
            timeout=WITHIN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise RunFailed(f"it runs for more than {WITHIN_S} s") from late
    if done.returncode:
        raise RunFailed(f"exit code {done.returncode}: {done.stderr[-400:]}")
    return Ran(asked, done.stdout)


async def as_workload(runtime: Runtime, spec: WorkloadSpec) -> Ran:
    """*spec* to its end, and nothing left of it."""
    asked = time.time_ns()
    handle = await runtime.start(spec)
    try:
        with anyio.move_on_after(WITHIN_S):
            status = await runtime.status(handle)
            while status.state is not WorkloadState.EXITED:
                await anyio.sleep(0.1)
                status = await runtime.status(handle)
            said = (await runtime.logs(handle, 0, _LOGS)).data.decode(errors="replace")
            if code := status.times.exit_code:
                raise RunFailed(f"{runtime.name}: exit code {code}: {said[-400:]}")
            return Ran(asked, said)
        raise RunFailed(f"{runtime.name}: it runs for more than {WITHIN_S} s")
    finally:
        with anyio.CancelScope(shield=True):
            await runtime.remove(handle)


def spec(line: Sequence[str], env: Mapping[str, str], **more: Any) -> WorkloadSpec:
    """A workload of one core, of a lease that no other run has."""
    fields: dict[str, Any] = {
        "lease": f"lease-{secrets.token_hex(6)}", "image": "", "memory_mib": _MIB, **more,
    }  # fmt: skip
    return WorkloadSpec(command=tuple(line), env=env, **fields)


def processes(state: Path, name: str, torch: Path) -> ProcessRuntime:
    """The process runtime of an adapter of that *name*, whose workloads see *torch*."""
    return ProcessRuntime(ProcessConfig(state, name, readable=(str(torch),)))


def docker(state: Path, torch: Path) -> tuple[DockerRuntime, str] | str:
    """Docker's, and the image that is made of *torch*; else why there is none."""
    try:
        client = connect()
        try:
            with map_docker("ask Docker"):
                client.ping()
            image = build_from(client, f"{IMAGE}:local", torch)
        finally:
            client.close()
    except RuntimeFault as fault:
        return fault.message  # no daemon
    return DockerRuntime(DockerConfig(state, f"bench-{secrets.token_hex(4)}")), image


async def over_loopback(line: Callable[[int], Sequence[str]], env: Mapping[str, str]) -> list[str]:
    """What the members print as processes of this machine, in one network that has loopback
    alone.
    """
    name = netns.name_of("loopback", f"bench-{secrets.token_hex(4)}")
    told = {**env, "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _PORT}
    said = [""] * MEMBERS

    async def member(at: int) -> None:
        entered = ["nsenter", f"--net={netns.path_of(name)}", "--", *line(at)]
        said[at] = (await anyio.to_thread.run_sync(on_host, entered, told)).said

    netns.make(name)
    try:
        async with anyio.create_task_group() as tasks:
            for at in range(MEMBERS):
                tasks.start_soon(member, at)
    finally:
        netns.remove(name)
    return said


async def over_mesh(
    path: str, torch: Path, line: Callable[[int], Sequence[str]], env: Mapping[str, str]
) -> list[str]:
    """The same as plain processes of the product's, in meshes whose only path is *path*."""
    said = [""] * MEMBERS
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder:
        async with _meshes(Path(folder), PATHS[path]) as (name, seats):
            runtime = processes(Path(folder), name, torch)

            async def member(at: int, lease: str, seat: Seat) -> None:
                asked = spec(line(at), env, lease=lease, mesh=seat)
                said[at] = (await as_workload(runtime, asked)).said

            async with anyio.create_task_group() as tasks:
                for at, (lease, seat) in enumerate(seats.items()):
                    tasks.start_soon(member, at, lease, seat)
    return said


def lacks_mesh() -> str:
    """Why no members run here; empty for no reason."""
    missing = device.missing() or ("" if own_address() else "a network that it is in")
    return missing and f"this machine lacks {missing}"


@asynccontextmanager
async def _meshes(folder: Path, kind: PathKind) -> AsyncGenerator[tuple[str, dict[str, Seat]]]:
    """An adapter's name, and the seats of its leases, which hear each other by *kind* alone."""
    group, first, own = os.urandom(32), random.choice(_RANGES), own_address()
    addresses = tuple(address(group, at) for at in range(MEMBERS))
    name = f"bench-{secrets.token_hex(4)}"
    seats = {f"lease-{secrets.token_hex(6)}": Seat(at, addresses) for at in range(MEMBERS)}
    place = RelayPlace(own, first + 500, MEMBERS, os.urandom(32))
    host = MeshHost(folder, name, Reach(own, first, 2 * MEMBERS))
    try:
        async with relaying(place):
            for lease, seat in seats.items():
                await anyio.to_thread.run_sync(host.up, lease, seat)
                host.given(lease, place.give(name, seat.member, 1, time.time_ns() // 1_000_000))
            await anyio.to_thread.run_sync(_meet, host, list(seats), kind)
            yield name, seats
    finally:
        for lease in seats:
            with suppress(RuntimeFault):
                host.down(lease)
        host.close()


def _meet(host: MeshHost, leases: list[str], kind: PathKind) -> None:
    """Each is told of the others where they are reached by *kind*, until all hear all by it."""
    deadline = time.monotonic() + _MEETS_S
    peers: list[MeshPeer] = []
    while len(peers) < len(leases):
        _check(deadline, kind)
        placed = [host.placed(lease) for lease in leases]
        found = [tuple(c for c in one.candidates if c.kind is kind) for one in placed]
        peers = [
            MeshPeer(at, one.key, ways)
            for at, (one, ways) in enumerate(zip(placed, found, strict=True))
            if ways
        ]
        time.sleep(SOON_S)
    for at, lease in enumerate(leases):
        host.meet(lease, [one for one in peers if one.member != at])
    for lease in leases:
        while [one.path for one in host.hear(lease, ANSWER_S)] != [kind] * (len(leases) - 1):
            _check(deadline, kind)
            time.sleep(SOON_S)


def _check(deadline: float, kind: PathKind) -> None:
    if time.monotonic() > deadline:
        raise RunFailed(f"the members do not hear each other by {kind.value} in {_MEETS_S} s")
