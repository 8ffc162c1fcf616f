"""What runs on the host: the runtimes by name, and workloads of an earlier run that were found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from adapter.core.state import Lease
from adapter.core.workload import VOLUMES, Handle, Runtime, RuntimeFault, runtime_for
from marketplace.domain.errors import Fault
from marketplace.domain.isolation import Isolation


class Workloads:
    """*lease* tells a lease as it stands, *alarm* is raised for a runtime that fails."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        lease: Callable[[str], Lease | None],
        alarm: Callable[[str, str], None],
    ) -> None:
        self._runtimes = runtimes
        self._lease = lease
        self._alarm = alarm
        self._found: dict[str, Handle] = {}
        self._unasked = set(runtimes)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def unasked(self) -> bool:
        """Whether a runtime has not said yet what it runs."""
        return bool(self._unasked)

    def found(self, id_: str) -> Handle | None:
        """A workload of that lease that was found on the host."""
        return self._found.get(id_)

    def forget(self, id_: str) -> None:
        """Its lease is over."""
        self._found.pop(id_, None)

    def runtime(self, lease: Lease, offered: Sequence[Isolation]) -> Runtime:
        """The one that its workload runs under; before it runs, the one that gives its isolation
        among those *offered*. :class:`RuntimeFault` if there is none.
        """
        asked = lease.job.placement.isolation
        if lease.job.is_volume:
            name = VOLUMES
        else:
            name = lease.handle.runtime if lease.handle else runtime_for(asked, offered)
        found = self._runtimes.get(name or "")
        if found is None:
            raise RuntimeFault(f"this host has no runtime for {name or f'isolation {asked}'}")
        return found

    async def look(self) -> list[Handle]:
        """Find every workload that still runs; what belongs to no lease is ended.  A runtime that
        does not answer is asked again the next time."""
        known: list[Handle] = []
        for name in sorted(self._unasked):
            runtime = self._runtimes[name]
            try:
                handles = await runtime.adopt()
            except Fault as fault:
                self._alarm(fault.code, f"{name}: {fault.message}")
                continue
            self._unasked.discard(name)
            for handle in handles:
                if self._lease(handle.lease) is None:
                    await self._end_orphan(runtime, handle)
                    continue
                self._found[handle.lease] = handle
                known.append(handle)
        return known

    async def _end_orphan(self, runtime: Runtime, handle: Handle) -> None:
        """A workload that no lease pays for."""
        try:
            await runtime.stop(handle, 0)
            await runtime.remove(handle)
        except Fault as fault:
            self._alarm(fault.code, f"workload {handle.lease}: {fault.message}")
