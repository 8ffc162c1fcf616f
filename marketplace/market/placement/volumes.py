"""Where the volumes of a job are: there it goes, paid over the channel that pays for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from marketplace.domain.metering.kinds import DISK
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.records import Lease
from marketplace.market.context import Market

_THERE = (LeaseState.ACTIVE, LeaseState.PAUSED)


@dataclass(frozen=True)
class Held:
    """Who has them, and the session key of their channel; *why* there is no such place, empty
    where there is.
    """

    provider: str = ""
    channel: bytes = b""
    why: str = ""

    def bound(self, spec: JobSpec) -> JobSpec:
        """*spec* as it is to be looked for: on that provider alone."""
        if not self.provider:
            return spec
        return replace(spec, placement=replace(spec.placement, providers=(self.provider,)))


async def held(market: Market, account: str, spec: JobSpec) -> Held:
    """The one place of all volumes of *spec*; an empty one without any."""
    found: set[tuple[str, bytes]] = set()
    for mount in spec.volumes:
        lease = await market.store.get(Lease, mount.volume)
        mine = lease is not None and lease.account == account
        if lease is None or not mine or lease.resource != DISK.name or lease.state not in _THERE:
            return Held(why=f"you have no volume {mount.volume}: `tally volume list` has them all")
        found.add((lease.provider, lease.session_vk))
    if len(found) > 1:
        return Held(why="the volumes are not all of one provider and one channel")
    for provider, channel in found:
        chosen = spec.placement.providers
        if (chosen and provider not in chosen) or provider in spec.placement.not_providers:
            return Held(why=f"the volumes are at {provider}, where the job is not to run")
        return Held(provider, channel)
    return Held()


def nowhere(why: str) -> dict[str, Any]:
    """*why* as what explains that nothing matches."""
    return {"text": why, "hosts": 0, "reasons": {}, "words": {}, "relaxations": []}
