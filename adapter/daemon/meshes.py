"""The meshes of clusters' members, kept as the state says.

Level-triggered: each lease that has a mesh here has one task, from before its workload starts until
nothing of it is left on the host. It makes the mesh or finds it again after a restart, gives it the
peers of the newest order, and tells who is heard. What an earlier run left and no lease needs goes
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable

import anyio
import structlog
from anyio.abc import SocketStream, TaskGroup

from adapter.core.events import Event, Meet, MeshHeard, MeshUp
from adapter.core.state import Lease
from adapter.core.wish import Wish
from adapter.core.workload import Handle, Runtime
from adapter.daemon import reaching
from adapter.daemon.ports import Mesh
from adapter.host.processes import workload_of
from adapter.mesh.host import Placed
from adapter.mesh.netns import MeshFault
from adapter.runtime.calls import in_thread
from marketplace.domain.errors import Fault
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.mesh import Heard, PathKind
from marketplace.domain.work.mesh_net import Seat, is_guest
from marketplace.domain.work.mesh_relay import RelayPass

DEADLINE_S: Final = 30.0
ANSWER_S: Final = 1.0
EVERY_S: Final = 2.0
SOON_S: Final = 0.3
"""Between rounds while a peer is not heard yet, for as long as :data:`HOPES_S` after an order."""
HOPES_S: Final = 60.0
AGAIN_S: Final = 10.0
"""What is heard is said so often, though it be the same."""
AFTER_FAULT_S: Final = 2.0
RELAY_S: Final = 5.0
"""So long the relay's answer is awaited at each look."""

_log = structlog.get_logger("adapter")
T = TypeVar("T")


@runtime_checkable
class Holder(Protocol):
    """A runtime whose workloads' networks are made before them, and by it."""

    async def hold(self, lease: str, job: JobSpec, seat: Seat) -> int:
        """The network of a member that is about to start; a process that is in it."""
        ...


class Host(Protocol):
    """What is needed of the daemon."""

    def runtime(self, lease: Lease) -> Runtime:
        """The runtime that runs it."""
        ...

    def lease(self, id_: str) -> Lease | None:
        """The lease as it stands."""
        ...

    def adopted(self, id_: str) -> Handle | None:
        """A workload of that lease that was found on the host."""
        ...

    async def handle(self, event: Event) -> None:
        """Decide, persist, act."""
        ...

    def raise_alarm(self, code: str, message: str) -> None:
        """Tell the owner."""
        ...


@dataclass
class _Member:
    """*met*: what is ordered, *applied*: what its mesh has; *placed*: where it was said to be
    reached; *said*: whom it was said to hear, of which order, and when; *given*: leave to use the
    market's relay that its mesh does not know of yet.
    """

    met: Meet | None = None
    applied: Meet | None = None
    met_at: float = 0.0
    up: bool = False
    placed: Placed | None = None
    given: RelayPass | None = None
    hopes_at: float = 0.0
    cared: bool = False
    said: tuple[int, frozenset[int]] | None = None
    said_at: float = 0.0
    stir: anyio.Event = field(default_factory=anyio.Event)


class Meshes:
    """Of one adapter; *mesh*: None where this host has none."""

    def __init__(self, host: Host, mesh: Mesh | None) -> None:
        self._host = host
        self._mesh = mesh
        self._members: dict[str, _Member] = {}
        self._looked = False

    async def up(self, lease: Lease) -> None:
        """The mesh of a member that is about to start; nothing for others. :class:`MeshFault`."""
        seat = lease.job.seat
        if seat is not None:
            await self._up(lease, seat, self._member(lease.id))

    def meet(self, order: Meet) -> None:
        """These are its peers from now on."""
        member = self._member(order.lease)
        member.met, member.met_at = order, anyio.current_time()
        member.stir.set()

    def given(self, lease: str, ticket: RelayPass) -> None:
        """The market says that the lease may use its relay; of one that is none here, nothing."""
        member = self._members.get(lease)
        if member is not None:
            member.given = ticket
            member.stir.set()

    async def reach(self, lease: Lease, place: tuple[str, int]) -> SocketStream:
        """A port of a running workload, that the host reaches at *place*; of a plain process in a
        mesh inside that, for it is in no other network. :class:`MeshFault`, OSError.
        """
        if lease.job.seat is None or lease.job.placement.isolation.takes_image:
            return await reaching.reach(lease, place)
        made = await self._call("port", lambda mesh: mesh.dial(lease.id, place[1]))
        made.setblocking(False)
        return await SocketStream.from_socket(made)

    async def keep(self, group: TaskGroup) -> None:
        """See to every mesh that is here or shall be; *group* outlives the call."""
        if self._mesh is None:
            return
        if not self._looked:
            self._looked = True
            for found in await in_thread("meshes", self._mesh.held, DEADLINE_S):
                self._member(found)
        for id_, member in self._members.items():
            if not member.cared:
                member.cared = True
                group.start_soon(self._care, id_, member)

    def _member(self, id_: str) -> _Member:
        return self._members.setdefault(id_, _Member())

    async def _care(self, id_: str, member: _Member) -> None:
        """Until nothing is left of it; a fault is tried again, and ends nobody else's."""
        while True:
            member.stir = anyio.Event()
            lease = self._host.lease(id_)
            seat = None if lease is None else _needs(lease)
            try:
                if lease is None or seat is None:
                    await self._call("remove", lambda mesh: mesh.down(id_))
                    self._members.pop(id_, None)
                    return
                pause = await self._round(lease, seat, member)
            except (Fault, OSError) as fault:
                member.up, pause = False, AFTER_FAULT_S
                code = fault.code if isinstance(fault, Fault) else MeshFault.code
                self._host.raise_alarm(code, f"mesh of {id_}: {fault}")
            with anyio.move_on_after(pause):
                await member.stir.wait()

    async def _round(self, lease: Lease, seat: Seat, member: _Member) -> float:
        """Bring it up to what is ordered, and tell whom it hears; when to look again, in s."""
        id_ = lease.id
        if not member.up:
            await self._up(lease, seat, member)
        pause = await self._reached(id_, member)
        met = member.met
        if met is None:
            return pause
        if member.applied is not met:
            left = await self._call("peers", lambda mesh: mesh.meet(id_, met.peers))
            member.applied = met
            if left:
                self._host.raise_alarm(
                    "MESH_PEER_PRIVATE",
                    f"mesh of {id_}: nothing is sent to private addresses of members {left}",
                )
        heard = await self._call("hear", lambda mesh: mesh.hear(id_, ANSWER_S))
        if member.met is not met:
            return 0.0  # another order came meanwhile: this was of the one before
        await self._say(id_, met, member, heard)
        hopes = anyio.current_time() - member.met_at < HOPES_S
        missing = {one.member for one in met.peers} - {one.member for one in heard}
        awaited = any(not is_guest(one) for one in missing)  # a guest comes when it likes
        return SOON_S if awaited and hopes else pause

    async def _reached(self, id_: str, member: _Member) -> float:
        """Whether it is reached elsewhere by now, as its market's relay has it; when to look
        again, in s.
        """
        ticket = member.given
        if ticket is not None:
            await self._call("relay", lambda mesh: mesh.given(id_, ticket))
            if member.given is ticket:
                member.given = None
            if not _relayed(member):
                member.hopes_at = anyio.current_time() + RELAY_S
        placed = await self._call("place", lambda mesh: mesh.placed(id_))
        if placed != member.placed:
            member.placed = placed
            await self._host.handle(MeshUp(id_, placed.key, placed.candidates))
        waits = anyio.current_time() < member.hopes_at and not _relayed(member)
        return SOON_S if waits else EVERY_S

    async def _say(self, id_: str, met: Meet, member: _Member, heard: tuple[Heard, ...]) -> None:
        now, said = anyio.current_time(), (met.version, frozenset(one.member for one in heard))
        if said != member.said or now - member.said_at >= AGAIN_S:
            member.said, member.said_at = said, now
            await self._host.handle(MeshHeard(id_, met.version, heard))

    async def _up(self, lease: Lease, seat: Seat, member: _Member) -> None:
        id_ = lease.id
        pid = await self._inside(lease, seat)
        placed = await self._call("up", lambda mesh: mesh.up(id_, seat, pid))
        member.up, member.applied, member.said, member.placed = True, None, None, placed
        _log.info("mesh", lease=id_, port=placed.port)
        await self._host.handle(MeshUp(id_, placed.key, placed.candidates))

    async def _inside(self, lease: Lease, seat: Seat) -> int:
        """A process in its network: of its workload, by the kernel's word; before that runs, of
        what holds its network. 0 for none: it is made with the mesh.
        """
        handle = lease.handle or self._host.adopted(lease.id)
        if handle is not None:
            theirs = handle.pid and workload_of(handle.pid) == handle.id
            return handle.pid if theirs else 0
        runtime = self._host.runtime(lease) if self._mesh is not None else None
        return await runtime.hold(lease.id, lease.job, seat) if isinstance(runtime, Holder) else 0

    async def _call(self, what: str, action: Callable[[Mesh], T]) -> T:
        mesh = self._mesh
        if mesh is None:
            raise MeshFault("this host has no mesh: its owner names no endpoint for one")
        return await in_thread(f"mesh: {what}", lambda: action(mesh), DEADLINE_S)


def _relayed(member: _Member) -> bool:
    found = () if member.placed is None else member.placed.candidates
    return any(one.kind is PathKind.RELAY for one in found)


def _needs(lease: Lease) -> Seat | None:
    """Its seat, from where its start was decided on to its workload's end; None where no mesh is to
    be here.
    """
    begun = lease.runs or lease.wish in (Wish.RUN, Wish.FREEZE)
    return lease.job.seat if begun and not lease.exited else None
