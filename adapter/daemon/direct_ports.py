"""The host's own ports that lead to workloads: whoever connects there reaches one, without the
market.

Level-triggered: once a second what is listened for is brought to what the state holds, so that a
start, a restart of either side and an end all go the same way. Connections are carried here and not
by a rule of the firewall, so that a workload without any way out is reached too, in a container as
on bare metal; it sees this host as its peer.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
import structlog
from anyio.abc import ByteStream, SocketStream, TaskGroup, TaskStatus

from adapter.core.events import Event, PortsOpened
from adapter.core.state import Lease, Own, State

MOST_CONNECTIONS: Final = 512  # to one port: as many as a node takes of its peers
KEPT_FILES: Final = 512
"""Of the files that this process may have open, so many are none of strangers' connections."""
CONNECT_S: Final = 5.0
_PIECE: Final = 64 * 1024

_log = structlog.get_logger("adapter")
_Place = tuple[str, int]


class Host(Protocol):
    """What is needed of the daemon."""

    @property
    def state(self) -> State:
        """The state as it stands."""
        ...

    @property
    def own(self) -> Own:
        """The offer and the rules as they stand."""
        ...

    async def handle(self, event: Event) -> None:
        """Decide, persist, act."""
        ...

    def raise_alarm(self, code: str, message: str) -> None:
        """Tell the owner."""
        ...


@dataclass
class _Opened:
    """A port that is listened for: where it leads, who is there, and its end."""

    place: _Place
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    connections: int = 0


class DirectPorts:
    """Of one adapter. *files*: how many this process may have open; all ports together have at most
    half of what is left of them, since each connection has two ends.
    """

    def __init__(self, host: Host, files: int | None = None) -> None:
        self._host = host
        self._opened: dict[int, _Opened] = {}
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if files is None else files
        self._most = max(1, (most - KEPT_FILES) // 2)

    async def keep(self, group: TaskGroup) -> None:
        """Listen for what leads to a workload that runs, and for nothing else; *group* outlives the
        call. A port that somebody else's program holds is the owner's to free: it is tried again.
        """
        where = self._host.own.limits.direct
        running = [lease for lease in self._host.state.leases.values() if lease.direct]
        wanted = {} if where is None else _wanted(running)
        for outer, one in list(self._opened.items()):
            if wanted.get(outer) != one.place:
                one.scope.cancel()
                del self._opened[outer]
        if where is None:
            return
        for outer, place in wanted.items():
            if outer not in self._opened:
                await self._open(group, where.bind, outer, place)
        for lease in running:
            there = lease.runs and all(outer in self._opened for _, outer in lease.direct)
            if there and lease.direct_at != where.address:
                await self._host.handle(PortsOpened(lease.id))

    async def _open(self, group: TaskGroup, bind: str, outer: int, place: _Place) -> None:
        opened = _Opened(place)
        try:
            await group.start(self._serve, bind, outer, opened)
        except OSError as error:
            self._host.raise_alarm("DIRECT_PORT_BUSY", f"cannot listen on {bind}:{outer}: {error}")
            return
        self._opened[outer] = opened
        _log.info("direct port", port=outer, to=f"{place[0]}:{place[1]}")

    async def _serve(
        self, bind: str, outer: int, opened: _Opened, *, task_status: TaskStatus[None]
    ) -> None:
        listener = await anyio.create_tcp_listener(local_host=bind, local_port=outer)
        task_status.started()
        with opened.scope:
            try:
                async with listener:
                    await listener.serve(lambda caller: self._carry(caller, opened))
            except Exception as error:  # noqa: BLE001  whatever strangers do, leases are metered on
                self._host.raise_alarm(
                    "DIRECT_PORT_FAILED", f"port {outer} is opened anew: {error}"
                )
                if self._opened.get(outer) is opened:
                    del self._opened[outer]

    async def _carry(self, caller: SocketStream, opened: _Opened) -> None:
        """Both ways until both have ended, each by itself; one that breaks ends the other."""
        everywhere = sum(one.connections for one in self._opened.values())
        if opened.connections >= MOST_CONNECTIONS or everywhere >= self._most:
            await caller.aclose()
            return
        opened.connections += 1
        try:
            async with caller:
                with anyio.fail_after(CONNECT_S):
                    workload = await anyio.connect_tcp(*opened.place)
                async with workload, anyio.create_task_group() as both:
                    both.start_soon(_pump, caller, workload, both.cancel_scope)
                    both.start_soon(_pump, workload, caller, both.cancel_scope)
        except (OSError, TimeoutError):
            pass  # the workload does not listen: its caller sees the connection end
        finally:
            opened.connections -= 1


def _wanted(leases: list[Lease]) -> dict[int, _Place]:
    """Where each of the host's ports leads; those of a workload that is gone lead nowhere: its
    address may be somebody else's by now.
    """
    return {
        outer: lease.handle.ports[inner]
        for lease in leases
        if lease.runs and lease.handle is not None
        for inner, outer in lease.direct
        if inner in lease.handle.ports
    }


async def _pump(source: ByteStream, sink: ByteStream, broken: anyio.CancelScope) -> None:
    try:
        while True:
            await sink.send(await source.receive(_PIECE))
    except anyio.EndOfStream:
        try:
            await sink.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            broken.cancel()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        broken.cancel()
