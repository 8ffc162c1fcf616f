"""A round over the running workloads: how each is, what its meters read, and whether that makes a
tick.

What came of it goes through the daemon's one door.  A workload that hangs in its runtime holds up
no other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from adapter.core.events import (
    Event,
    Exited,
    Measured,
)
from adapter.core.lifecycle import phase_of
from adapter.core.state import Lease, Now, State
from adapter.core.workload import (
    Runtime,
    RuntimeFault,
    Status,
    Times,
    WorkloadGone,
)
from adapter.daemon.ports import Market, Meters
from adapter.metering.meter import Subject
from adapter.metering.relays import Relays
from adapter.metering.telemetry import Gauges, telemetry
from marketplace.domain.metering.reading import Cause, Phase, Reading
from marketplace.domain.protocol import wire
from marketplace.domain.work.workload import ExitReason, WorkloadState

PERIOD_MS: Final = 1000
LOOK_S: Final = 3.0

_log = structlog.get_logger("adapter")


class Host(Protocol):
    """What a round needs of the daemon."""

    link: Market
    gauges: Gauges

    @property
    def state(self) -> State:
        """The state as it stands."""
        ...

    def now(self) -> Now:
        """One look at the clocks."""
        ...

    def lease(self, id_: str) -> Lease | None:
        """The lease as it stands."""
        ...

    def runtime(self, lease: Lease) -> Runtime:
        """The one that its workload runs under."""
        ...

    async def handle(self, event: Event) -> None:
        """Decide on what was read; durable when it returns."""
        ...


class Rounds:
    """One per daemon."""

    def __init__(self, host: Host, meters: Meters) -> None:
        self._host = host
        self._meters = meters
        # Readings are taken and counted one poll after the other: of two at a time the older might
        # be counted last, and a counter would seem to go backwards.
        self._reading = anyio.Lock()
        self._looking: set[str] = set()
        self._seen: dict[str, Status] = {}
        self._looked = anyio.Event()
        self._due: dict[str, int] = {}
        self._relays = Relays(lambda: host.now().wall_ms)

    def forget(self, id_: str) -> None:
        """That lease's workload is gone."""
        self._due.pop(id_, None)
        self._relays.forget(id_)
        self._host.gauges.forget(id_)

    async def measure_all(self, group: TaskGroup) -> None:
        """Look at every running workload, read its meters, and decide; *group* outlives a look
        that hangs.
        """
        seen = await self._look_at_all(group)
        over = {k for k, status in seen.items() if status.state is WorkloadState.EXITED}
        for id_ in over:
            lease = self._host.lease(id_)
            if lease is not None:
                await self.exited(lease, seen[id_])
        await self._look_at_relays(group, seen)
        async with self._reading:
            subjects = [
                subject
                for id_ in seen.keys() - over
                if (lease := self._host.lease(id_)) is not None and lease.runs
                if (subject := self._subject(lease, seen[id_])) is not None
            ]
            for id_, readings in (await self._poll(subjects)).items():
                await self._measured(id_, readings, self._is_due(id_))

    async def _look_at_relays(self, group: TaskGroup, seen: dict[str, Status]) -> None:
        """At those that run, and at none that is frozen."""
        for id_, status in seen.items():
            lease = self._host.lease(id_)
            if lease is None or lease.job.relay is None or lease.handle is None:
                continue
            at = lease.handle.ports.get(lease.job.relay.port)
            if phase_of(lease, status.state is WorkloadState.RUNNING) is not Phase.RUNNING:
                self._relays.forget(id_)
            elif at is not None:
                self._relays.follow(group, id_, at, lease.job.relay)
        await self._relays.look()

    async def _look_at_all(self, group: TaskGroup) -> dict[str, Status]:
        """The state of every running workload, as far as it is told within :data:`LOOK_S`: one that
        hangs in its runtime does not hold up its neighbours, and is not asked twice at a time."""
        self._seen = {}
        running = [lease for lease in self._host.state.leases.values() if lease.runs]
        fresh = [lease for lease in running if lease.id not in self._looking]
        for lease in fresh:
            self._looking.add(lease.id)
            group.start_soon(self._look, lease)
        with anyio.move_on_after(LOOK_S):
            while any(lease.id in self._looking for lease in fresh):
                await self._looked.wait()
        return self._seen

    async def _look(self, lease: Lease) -> None:
        try:
            status = await self._status(lease)
            if status is not None:
                self._seen[lease.id] = status
        finally:
            self._looking.discard(lease.id)
            self._looked.set()
            self._looked = anyio.Event()

    async def measure(self, lease: str) -> None:
        """Read one lease's meters now, next to a change of phase."""
        found = self._host.lease(lease)
        if found is None or not found.runs:
            return
        status = await self._status(found)
        if status is None or status.state is WorkloadState.EXITED:
            return  # the ticker reports the end
        async with self._reading:
            found = self._host.lease(lease)
            if found is None or not found.runs:
                return
            for uuid in found.devices:
                self._meters.relist(uuid)
            subject = self._subject(found, status)
            for readings in (await self._poll([subject] if subject else [])).values():
                await self._measured(lease, readings, False)

    async def _measured(self, id_: str, readings: list[Reading], due: bool) -> None:
        await self._host.handle(Measured(id_, tuple(readings), due))
        lease = self._host.lease(id_)
        if lease is not None:
            values = telemetry(lease, readings)
            self._host.gauges.note(id_, values)
            if self._host.link.up and self._host.link.backlog < 50:
                self._host.link.send(wire.Telemetry(id_, self._host.now().wall_ms, values))

    async def _status(self, lease: Lease) -> Status | None:
        """What its runtime says; None while the runtime cannot be asked (then nothing is read)."""
        assert lease.handle is not None
        try:
            return await self._host.runtime(lease).status(lease.handle)
        except WorkloadGone:
            times = Times(lease.handle.started_ms)
            return Status(WorkloadState.EXITED, times, ExitReason.LOST)
        except RuntimeFault as fault:
            _log.warning("no status", lease=lease.id, code=fault.code, cause=fault.message)
            return None

    async def _poll(self, subjects: list[Subject]) -> dict[str, list[Reading]]:
        if not subjects:
            return {}
        return await anyio.to_thread.run_sync(self._meters.poll, subjects)

    def _subject(self, lease: Lease, status: Status) -> Subject | None:
        """What the meter is told of a workload, by what its runtime says now; None while nobody
        knows whether a relay answers: then it is not read, as where a device is asked in vain.
        """
        phase = phase_of(lease, status.state is WorkloadState.RUNNING)
        if lease.job.relay is None or phase is not Phase.RUNNING:
            return _subject(lease, status, phase)
        look = self._relays.take(lease.id)
        if look is None:
            return None
        tip = look.reading.tip
        return replace(
            _subject(lease, status, phase),
            fault=look.cause(served=any(meter.billed_ns for meter in lease.meters)),
            tip=None if tip is None else (tip.point.slot, tip.point.hash),
        )

    def _is_due(self, id_: str) -> bool:
        """Whether this reading makes a tick: by absolute deadlines, half a period early at most."""
        lease, now = self._host.lease(id_), self._host.now().boot_ms
        if lease is None:
            return False
        tick = lease.terms.tick_ms
        # The first comes after half a tick: so long is served before anybody showed that they pay.
        first = now + tick if lease.last is not None else lease.started_at_ms + tick // 2
        due = self._due.setdefault(id_, first)
        if now < due - PERIOD_MS // 4:
            return False
        self._due[id_] = due + tick if now - due < tick else now + tick
        return True

    async def exited(self, lease: Lease, status: Status) -> None:
        """The workload's end, with its meters' last readings."""
        if not lease.runs:
            return
        async with self._reading:
            subject = _last(lease, status)
            found = await self._poll([subject])
            self._meters.forget(subject)
            await self._host.handle(Exited(lease.id, status, tuple(found.get(lease.id, []))))


def _subject(lease: Lease, status: Status, phase: Phase) -> Subject:
    handle = lease.handle
    assert handle is not None
    return Subject(
        lease=lease.id,
        workload=handle.id,
        started_ms=status.times.started_ms,
        phase=phase,
        devices=lease.devices,
        cgroup=handle.cgroup,
        volume=lease.job.is_volume,
        written_kib=status.written_kib,
    )


def _last(lease: Lease, status: Status) -> Subject:
    """What the meter is told of a workload that has ended.

    One that fell with its runtime has no witness of its last moments: a daemon that comes back to a
    dead container dates the death to its own return. A relay that has ended answers nobody.
    """
    fell = status.reason in (ExitReason.PROVIDER_FAULT, ExitReason.LOST)
    off_tip = None if lease.job.relay is None else Cause.UNREACHABLE
    return replace(
        _subject(lease, status, Phase.EXITED),
        finished_ms=status.times.finished_ms,
        fault=Cause.UNPROVEN if fell else off_tip,
    )
