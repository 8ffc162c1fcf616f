"""Where the ports of a job are reached."""

from __future__ import annotations

from marketplace.client.net.answers import JobAnswer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Port


def services(market: str, view: JobAnswer) -> list[tuple[Port, str]]:
    """Each port of a job, and its address at *market*."""
    ports = JobSpec.from_wire(view["spec"]).ports
    return [(one, f"{market.rstrip('/')}/p/{view['id']}/{one.port}/") for one in ports]
