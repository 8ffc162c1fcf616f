"""Which ports of the host lead to a workload, and what its consumer is told of them.  Pure.

They are its own from where its terms are signed to where its lease is over, whatever restarts in
between: a relay stands in its peers' files by such an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adapter.core.draft import Draft
from adapter.core.state import Lease, Own, State
from marketplace.domain.work.direct_port import STAGE, DirectPorts
from marketplace.domain.work.job import JobSpec

Rule = tuple[bool, str, str]


def rules(state: State, own: Own, job: JobSpec) -> Iterator[Rule]:
    """What a job that asks for some has to meet here."""
    if not job.direct_ports:
        return
    yield (
        own.limits.direct is not None,
        "DIRECT_PORTS_REFUSED",
        "no ports are opened here: take a provider whose offer says direct_ports",
    )
    yield (
        job.seat is None or job.placement.isolation.takes_image,
        "DIRECT_PORTS_REFUSED",
        "a plain process in a mesh is reached in it alone: leave out direct, or use an image",
    )
    free = len(_free(state, own))
    yield (
        len(job.direct_ports) <= free,
        "DIRECT_PORTS_TAKEN",
        f"{len(job.direct_ports)} direct ports asked, {free} free",
    )


def allotted(state: State, own: Own, job: JobSpec) -> tuple[tuple[int, int], ...]:
    """The host's lowest free ports for those that *job* asks for; :func:`rules` hold."""
    return tuple(zip(job.direct_ports, _free(state, own), strict=False))


def _free(state: State, own: Own) -> list[int]:
    where = own.limits.direct
    if where is None:
        return []
    held = {outer for one in state.leases.values() if one.occupies for _, outer in one.direct}
    every = range(where.first, where.first + where.count)
    return [port for port in every if port not in held]


def opened(draft: Draft, lease: Lease) -> None:
    """Its consumer is told where, once for each address that the owner ever gave."""
    where = draft.own.limits.direct
    if where is None or not lease.runs or lease.direct_at == where.address:
        return
    signer, at_ms = draft.own.signer, draft.now.wall_ms
    said = DirectPorts.sign(signer, lease.id, where.address, lease.direct, at_ms)
    draft.put(replace(lease, direct_at=where.address))
    draft.progress(lease.id, STAGE, **said.detail())
