"""Brings one lease's workload to where the lease's ``wish`` says, and keeps it there.

A loop that compares and acts, never a queue of commands: after a crash, a failed call or a change
of mind it looks again and does what is still missing.  Every call to a runtime may be repeated.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

import anyio
import structlog

from adapter.core.events import Collected, Event, Failed, Preparing, Removed, Started
from adapter.core.lifecycle import grace_ms
from adapter.core.state import Lease
from adapter.core.wish import Wish
from adapter.core.workload import (
    Handle,
    Progress,
    Runtime,
    RuntimeFault,
    Status,
    Times,
    WorkloadGone,
)
from marketplace.domain.errors import Fault, Halt, Refusal
from marketplace.domain.work.lease import EndReason
from marketplace.domain.work.workload import ExitReason, WorkloadSpec, WorkloadState

TRIES: Final = 3
FIRST_WAIT_S: Final = 1.0
MOST_WAIT_S: Final = 60.0
PROGRESS_EVERY_S: Final = 1.0

_log = structlog.get_logger("adapter.reconciler")


class Host(Protocol):
    """What a driver needs of the daemon."""

    def lease(self, id_: str) -> Lease | None:
        """The lease as it stands now."""
        ...

    def runtime(self, lease: Lease) -> Runtime:
        """The runtime that runs it."""
        ...

    def adopted(self, id_: str) -> Handle | None:
        """A workload of that lease that was found on the host."""
        ...

    async def handle(self, event: Event) -> None:
        """Decide on what happened; durable when it returns."""
        ...

    async def spec(self, lease: Lease) -> WorkloadSpec:
        """What to run: files fetched, secrets opened."""
        ...

    async def measure(self, lease: str) -> None:
        """Read its meters now, next to a change of phase."""
        ...

    async def exited(self, lease: Lease, status: Status) -> None:
        """Read the last of its meters and report its end."""
        ...

    async def archive(self, lease: Lease) -> Collected:
        """Collect its outputs; what is left of its log is sent."""
        ...

    async def cleanse(self, lease: Lease) -> None:
        """Make its devices fit for the next tenant, or quarantine them."""
        ...


class Reconciler:
    """One per lease; ends with it."""

    def __init__(self, lease: str, host: Host, grace_ms: int) -> None:
        self._id = lease
        self._host = host
        self._grace_ms = grace_ms
        self._stir = anyio.Event()
        self._scope: anyio.CancelScope | None = None
        self._busy_with: tuple[Wish, bool] | None = None
        self._frozen: bool | None = None
        self._fails = 0
        self._idle = False

    @property
    def idle(self) -> bool:
        """True while everything is as wished."""
        return self._idle

    def wake(self) -> None:
        """The wish may have changed: look again; what serves an older wish is cut short."""
        lease = self._host.lease(self._id)
        if lease is not None and self._scope is not None:
            if (lease.wish, lease.hard) != self._busy_with:
                self._scope.cancel()
        self._idle = False
        self._stir.set()

    async def run(self) -> None:
        """Until the lease is gone."""
        while (lease := self._host.lease(self._id)) is not None and not lease.removed:
            self._stir = anyio.Event()
            try:
                done = await self._step(lease)
                self._fails = 0
            except Halt:
                raise  # the journal cannot be written: the process ends, workloads live on
            except Fault as fault:
                self._fails += 1
                _log.warning("retrying", lease=self._id, code=fault.code, cause=fault.message)
                await self._failed(lease, fault)
                with anyio.move_on_after(min(MOST_WAIT_S, FIRST_WAIT_S * 2**self._fails)):
                    await self._stir.wait()
                continue
            if not done and not self._stir.is_set():
                self._idle = True
                await self._stir.wait()

    async def _step(self, lease: Lease) -> bool:
        """One act; False when everything is as wished."""
        match lease.wish:
            case Wish.RUN if lease.handle is None:
                return await self._start(lease)
            case Wish.RUN | Wish.FREEZE if lease.runs:
                return await self._freeze(lease, lease.wish is Wish.FREEZE)
            case Wish.STOP if not lease.exited:
                return await self._stop(lease)
            case Wish.STOP:
                await self._host.handle(await self._host.archive(lease))
                return True
            case Wish.GONE:
                return await self._remove(lease)
            case _:
                return False

    async def _start(self, lease: Lease) -> bool:
        runtime = self._host.runtime(lease)
        try:
            handle = self._host.adopted(lease.id)
            if handle is None:
                handle = await self._prepare_and_start(lease, runtime)
            if handle is None:
                return True  # the wish changed while the image came
        except Refusal as refusal:
            await self._host.handle(
                Failed(lease.id, EndReason.START_FAILED, refusal.code, refusal.message)
            )
            return True
        await self._host.handle(Started(lease.id, handle))
        self._frozen = False
        await self._host.measure(lease.id)
        return True

    async def _prepare_and_start(self, lease: Lease, runtime: Runtime) -> Handle | None:
        spec: WorkloadSpec | None = None
        with self._for(lease):
            await self._prepare(lease, runtime)
            spec = await self._host.spec(lease)
        self._scope = None
        if spec is None:
            return None
        await self._host.handle(Preparing(lease.id, starting=True))
        return await runtime.start(spec)

    def _for(self, lease: Lease) -> anyio.CancelScope:
        """A scope that :meth:`wake` cancels when the wish is another."""
        self._scope, self._busy_with = anyio.CancelScope(), (lease.wish, lease.hard)
        return self._scope

    async def _prepare(self, lease: Lease, runtime: Runtime) -> None:
        """Pull, telling how far it is about once a second."""
        latest: list[Progress] = [Progress(0, 0)]

        async def tell() -> None:
            while True:
                await self._host.handle(Preparing(lease.id, latest[0].done, latest[0].total))
                await anyio.sleep(PROGRESS_EVERY_S)

        def note(progress: Progress) -> None:
            latest[0] = progress

        failed: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(tell)
            try:
                await runtime.prepare(lease.job.image, note, lease.id)
            except (Fault, Refusal) as error:
                failed = error  # raised below, outside the group, as itself
            group.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _failed(self, lease: Lease, fault: Fault) -> None:
        """A start that keeps failing is the provider's fault, and is not tried for ever."""
        starting = lease.wish is Wish.RUN and lease.handle is None
        if starting and self._fails >= TRIES:
            await self._host.handle(
                Failed(lease.id, EndReason.PROVIDER_FAULT, fault.code, fault.message)
            )

    async def _freeze(self, lease: Lease, frozen: bool) -> bool:
        assert lease.handle is not None
        if self._frozen is frozen:
            return False
        runtime = self._host.runtime(lease)
        if frozen:
            await runtime.pause(lease.handle)
        else:
            status = await runtime.status(lease.handle)
            if status.state is WorkloadState.PAUSED:
                await runtime.resume(lease.handle)
        self._frozen = frozen
        await self._host.measure(lease.id)
        return True

    async def _stop(self, lease: Lease) -> bool:
        handle = lease.handle or self._host.adopted(lease.id)
        if handle is None:
            await self._host.handle(
                Failed(lease.id, EndReason.CANCELLED, "STOPPED", "stopped before it ran")
            )
            return True
        runtime, status = self._host.runtime(lease), None
        with self._for(lease):
            try:
                status = await runtime.stop(handle, grace_ms(lease, self._grace_ms))
            except WorkloadGone:
                status = await _last_status(runtime, handle)
        self._scope = None
        if status is not None and lease.handle is not None:
            await self._host.exited(lease, status)
        elif status is not None:
            await runtime.remove(handle)
            await self._host.handle(
                Failed(lease.id, EndReason.CANCELLED, "STOPPED", "stopped before it was recorded")
            )
        return True

    async def _remove(self, lease: Lease) -> bool:
        handle = lease.handle or self._host.adopted(lease.id)
        if handle is not None:
            with suppress(WorkloadGone):
                await self._host.runtime(lease).remove(handle)
            await self._host.cleanse(lease)
        await self._host.handle(Removed(lease.id))
        return True


async def _last_status(runtime: Runtime, handle: Handle) -> Status:
    """What the runtime remembers of a workload that it lost."""
    try:
        return await runtime.status(handle)
    except RuntimeFault:
        times = Times(handle.started_ms)
        return Status(WorkloadState.EXITED, times, ExitReason.LOST)
