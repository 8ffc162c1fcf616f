"""What a market's process keeps beside itself, as processes of its own: the relay of meshes, and
the stores of clusters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from marketplace.cluster_store.process import Shelves, shelving
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.market.context import Market
from marketplace.market.leases.stores import InUse
from marketplace.mesh_relay.process import relaying
from marketplace.process.own_stores import DEADLINE_S, HttpStores


@asynccontextmanager
async def besides(
    market: Market, relay: RelayPlace | None, shelves: Shelves | None
) -> AsyncGenerator[None]:
    """They run while the block does; *market* tells adapters where."""
    market.mesh_relay = relay
    async with AsyncExitStack() as stack:
        if relay is not None:
            await stack.enter_async_context(relaying(relay))
        if shelves is not None:
            place = await stack.enter_async_context(shelving(shelves, InUse(market).look))
            # The operator's own server: through no proxy that is set for the world beyond.
            http = httpx.AsyncClient(timeout=DEADLINE_S, trust_env=False)
            await stack.enter_async_context(http)
            market.stores, market.own_stores = place, HttpStores(place, http)
        yield
