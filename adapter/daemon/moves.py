"""The beginning of an export or import, between what is decided and what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from adapter.core.state import Lease
from adapter.core.volumes import require_movable
from adapter.core.workload import Runtime, Terminal, WorkloadGone
from marketplace.domain.errors import Refusal


async def begin(
    runtime: Runtime, volume: Lease, leases: Callable[[], Iterable[Lease]], command: Sequence[str]
) -> Terminal:
    """What *command* asks of *volume*, which runs and is movable; Refusal, RuntimeFault."""
    if volume.handle is None:
        raise WorkloadGone("the volume does not run")
    require_movable(volume, leases(), command)
    made = await runtime.terminal(volume.handle, tuple(command), 0, 0)
    try:
        # Once more, now that the volume is marked: what mounts it was taken before, and is seen
        # here, or starts from now on, and sees the mark.
        require_movable(volume, leases(), command)
    except Refusal:
        await made.end()
        raise
    return made
