"""Where the ports of a job are reached."""

from __future__ import annotations

from dataclasses import dataclass

from marketplace.client.net.answers import JobAnswer
from marketplace.domain.work.job import JobSpec


@dataclass(frozen=True)
class Address:
    """A port of a job and its address; *own*: at an origin of its own, not under the market's."""

    port: int
    auth: str
    url: str
    own: bool


def addresses(market: str, view: JobAnswer) -> list[Address]:
    """Each port of a job, as *market* reaches it."""
    own = {one["port"]: one["url"] for one in view.get("ports", [])}
    return [
        Address(
            one.port,
            one.auth,
            own.get(one.port) or f"{market.rstrip('/')}/p/{view['id']}/{one.port}/",
            bool(own.get(one.port)),
        )
        for one in JobSpec.from_wire(view["spec"]).ports
    ]
