"""The stores of clusters' members, kept as the state says.

One is mounted before its workload starts. Once that has ended, and where a lease is over, the mount
goes: also when a workload that is stopped has not ended in its time, for a program that waits for a
store which is away hears no signal before. A mount whose program has died ends the workload, which
could not see another in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from adapter.core.lifecycle import grace_ms
from adapter.core.state import Lease
from adapter.core.wish import Wish
from adapter.core.workload import Handle, Runtime
from adapter.daemon.ports import Stores as Mounts
from adapter.runtime.calls import in_thread
from adapter.runtime.stores.mounts import StoreFault
from adapter.runtime.workspace import owner_ids
from marketplace.domain.errors import Fault
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_store import Store, StorePass
from marketplace.domain.work.workload import DEFAULT_USER
from marketplace.rclone import Source, StoreRefused, of_consumer, of_market

DEADLINE_S: Final = 60.0
GIVEN_S: Final = 10.0
"""So long the market's leave is awaited at each try to start."""
AGAIN_S: Final = 10.0
LATE_S: Final = 2.0

_log = structlog.get_logger("adapter")
T = TypeVar("T")


class Host(Protocol):
    """What is needed of the daemon."""

    def lease(self, id_: str) -> Lease | None:
        """The lease as it stands."""
        ...

    def runtime(self, lease: Lease) -> Runtime:
        """The runtime that runs it."""
        ...

    def adopted(self, id_: str) -> Handle | None:
        """A workload of that lease that was found on the host."""
        ...

    def raise_alarm(self, code: str, message: str) -> None:
        """Tell the owner."""
        ...


@dataclass
class Stores:
    """Of one adapter; *mounts*: None where this host shows no stores. *send* tells the market,
    *open_secrets* opens what was sealed for a lease; *grace_ms*: how long a workload may take to
    stop.
    """

    host: Host
    mounts: Mounts | None
    send: Callable[[wire.Message], None]
    open_secrets: Callable[[Mapping[str, bytes]], dict[str, str]]
    grace_ms: int = 10_000
    given_s: float = GIVEN_S
    _given: dict[str, StorePass] = field(default_factory=dict[str, StorePass], repr=False)
    _waits: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    _stopping: dict[str, float] = field(default_factory=dict[str, float])
    _cared: set[str] = field(default_factory=set[str])
    _looked: bool = False

    async def up(self, lease: Lease) -> None:
        """The store of a member that is about to start, mounted; nothing for others. StoreRefused,
        StoreFault.
        """
        store, mounts = lease.job.store, self.mounts
        if store is None:
            return
        if mounts is None:
            raise StoreRefused("this host shows no stores")
        source = await self._source(lease, store)
        owner = owner_ids(DEFAULT_USER)
        await in_thread("store", lambda: mounts.up(lease.id, source, owner), DEADLINE_S)
        self._cared.add(lease.id)
        _log.info("store", lease=lease.id, server=f"{source.at[0]}:{source.at[1]}")

    def given(self, lease: str, leave: StorePass) -> None:
        """The market says that the lease may use its store."""
        if lease in self._waits:
            self._given[lease] = leave
            self._waits[lease].set()

    async def keep(self, group: TaskGroup) -> None:
        """See to every mount that is here; *group* outlives the call."""
        mounts = self.mounts
        if mounts is None:
            return
        if not self._looked:
            self._looked = True
            self._cared |= set(await in_thread("stores", mounts.held, DEADLINE_S))
        for id_ in sorted(self._cared):
            lease = self.host.lease(id_)
            if lease is None or not _needs(lease) or self._late(lease):
                self._cared.discard(id_)
                group.start_soon(self._down, mounts, id_)
            elif lease.runs and not await self._stands(mounts, id_):
                self._cared.discard(id_)
                group.start_soon(self._lost, mounts, lease)

    def _late(self, lease: Lease) -> bool:
        """Whether it was to have stopped by now."""
        if lease.wish is not Wish.STOP:
            self._stopping.pop(lease.id, None)
            return False
        now = anyio.current_time()
        since = self._stopping.setdefault(lease.id, now)
        return now - since > grace_ms(lease, self.grace_ms) / 1000 + LATE_S

    async def _source(self, lease: Lease, store: Store) -> Source:
        secrets = self.open_secrets(lease.secrets)
        if store.name:
            leave = await self._leave(lease.id)
            return await in_thread("store", lambda: of_market(leave, secrets), DEADLINE_S)
        return await in_thread("store", lambda: of_consumer(store, secrets), DEADLINE_S)

    async def _leave(self, id_: str) -> StorePass:
        """The market's, asked for."""
        came = self._waits[id_] = anyio.Event()
        try:
            self.send(wire.StoreAsked(id_))
            with anyio.move_on_after(self.given_s):
                await came.wait()
            leave = self._given.pop(id_, None)
        finally:
            self._waits.pop(id_, None)
        if leave is None:
            raise StoreFault("the market gave no leave for its store")
        return leave

    async def _stands(self, mounts: Mounts, id_: str) -> bool:
        return await in_thread("store", lambda: mounts.stands(id_), DEADLINE_S)

    async def _lost(self, mounts: Mounts, lease: Lease) -> None:
        """Its workload is ended for the host's own fault; then what is left of the mount goes."""
        self.host.raise_alarm("STORE_LOST", f"store of {lease.id}: its mount has ended")
        handle = lease.handle or self.host.adopted(lease.id)
        try:
            await in_thread("store", lambda: mounts.note_loss(lease.id), DEADLINE_S)
            if handle is not None:
                await self.host.runtime(lease).stop(handle, 0)
        except Fault as fault:
            self.host.raise_alarm(fault.code, f"store of {lease.id}: {fault.message}")
        await self._down(mounts, lease.id)

    async def _down(self, mounts: Mounts, id_: str) -> None:
        """Until nothing is left of it; a fault is tried again."""
        self._stopping.pop(id_, None)
        while True:
            try:
                await in_thread("store", lambda: mounts.down(id_), DEADLINE_S)
                return
            except (Fault, OSError) as fault:
                self.host.raise_alarm(StoreFault.code, f"store of {id_}: {fault}")
            await anyio.sleep(AGAIN_S)


def _needs(lease: Lease) -> bool:
    """Whether its store is to be here: from where its start was decided on to its workload's
    end.
    """
    begun = lease.runs or lease.wish in (Wish.RUN, Wish.FREEZE)
    return lease.job.store is not None and begun and not lease.exited
