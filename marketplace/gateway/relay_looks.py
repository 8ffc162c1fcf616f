"""A second look at the relays that are rented: through the port that their adapters carry, by the
same words as the adapters' own.

Nothing is billed by it. What it finds is told to both sides: the consumer reads it in the job's
story beside what the provider says, and the provider in its status. Through the adapter it cannot
see where the answers come from: one that hands on another's relay answers as that one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from marketplace.chain.node.relay import Line, Reading, Relay
from marketplace.domain.errors import NotFound
from marketplace.domain.ouroboros.reading import Standing
from marketplace.domain.work.lease import LeaseState
from marketplace.gateway.tunnel import Tunnel
from marketplace.hub.adapters import AdapterHub
from marketplace.market.base.errors import Offline, Unreached
from marketplace.market.base.records import Job, Lease
from marketplace.market.jobs.looked import tell

EVERY_S: Final = 10.0
SAME_MS: Final = 60_000
"""A relay that goes back and forth is told of once in so long."""
AT_A_TIME: Final = 64


class _Through:
    """A tunnel as a line to a relay."""

    def __init__(self, tunnel: Tunnel) -> None:
        self._tunnel = tunnel

    async def send(self, item: bytes, /) -> None:
        """All of it."""
        try:
            await self._tunnel.send(item)
        except Offline as gone:
            raise anyio.BrokenResourceError from gone

    async def receive(self, max_bytes: int = 0, /) -> bytes:
        """What came next, as it came."""
        data = await self._tunnel.receive()
        if not data:
            raise anyio.EndOfStream
        return data

    async def aclose(self) -> None:
        """Hang up."""
        self._tunnel.hang_up()


@dataclass
class _Looked:
    """At one lease: *told* is what both sides know, since *at_ms*."""

    relay: Relay
    told: Standing | None = None
    at_ms: int = 0


class RelayLooks:
    """Of one market process: at the relays whose adapters are connected to it."""

    def __init__(self, hub: AdapterHub) -> None:
        self._hub = hub
        self._looked: dict[str, _Looked] = {}
        self._places = anyio.CapacityLimiter(AT_A_TIME)

    async def round(self) -> None:
        """Each once. A store that is away is a TallyError, and the next round looks again."""
        for lease in self._looked.keys() - self._hub.market.relays:
            await self._drop(lease)
        async with anyio.create_task_group() as tasks:
            for lease in tuple(self._hub.market.relays):
                tasks.start_soon(self._look, lease)

    async def _look(self, lease_id: str) -> None:
        market = self._hub.market
        async with self._places:
            try:
                lease, job = await market.lease(lease_id)
            except NotFound:
                await self._drop(lease_id)
                return
            living = lease.state in (LeaseState.ACTIVE, LeaseState.PAUSED)
            if not living or not self._hub.connected(lease.provider):
                await self._drop(lease_id)
            elif lease.state is LeaseState.ACTIVE:
                looked = self._looked.get(lease_id) or self._begin(lease, job)
                found = await looked.relay.look(market.now)
                await self._tell(lease, job, looked, found)

    def _begin(self, lease: Lease, job: Job) -> _Looked:
        need = job.parsed.relay
        assert need is not None, "only relays are followed"

        async def dial() -> Line:
            tunnel = Tunnel(self._hub, lease.provider, lease.id, need.port)
            try:
                tunnel.open()
            except Unreached as gone:
                raise ConnectionError(gone.message) from gone
            return _Through(tunnel)

        looked = self._looked[lease.id] = _Looked(Relay(dial, need.of, need.lag_ms))
        return looked

    async def _tell(self, lease: Lease, job: Job, looked: _Looked, found: Reading) -> None:
        """Both sides, where it stands otherwise than they know."""
        market = self._hub.market
        if found.standing is looked.told or market.now - looked.at_ms < SAME_MS:
            return
        await tell(market, lease, job, found.standing.name, found.why)
        looked.told, looked.at_ms = found.standing, market.now

    async def _drop(self, lease_id: str) -> None:
        self._hub.market.relays.discard(lease_id)
        looked = self._looked.pop(lease_id, None)
        if looked is not None:
            await looked.relay.hang_up()
