"""Where the ports are that a job's provider opened to the world, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marketplace.domain.errors import TallyError
from marketplace.domain.work.job import JobSpec

if TYPE_CHECKING:
    from marketplace.client.sdk.job import Job


async def direct_at(job: Job) -> list[str]:
    """``3001 at 203.0.113.7:30000`` each, of a job that was just looked at and runs; why nobody can
    rely on what is told, where that is so.
    """
    asks = job.view["state"] == "RUNNING" and JobSpec.from_wire(job.view["spec"]).direct_ports
    if not asks:
        return []
    try:
        found = await job.direct_ports()
    except TallyError as error:
        return [f"{error.message}: {error.remedy}"]
    return [] if found is None else [f"{port} at {at}" for port, at in found.places.items()]
