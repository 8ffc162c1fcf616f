"""The router of a market process (``--route``): it comes up with the chain, and gets to know the
providers that a hop may be opened to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from marketplace.domain.errors import Fault, Halt
from marketplace.domain.protocol import codec
from marketplace.domain.supply.offer import OfferState
from marketplace.hub.adapters import AdapterHub
from marketplace.hub.payers import PayerHub
from marketplace.market.base.records import Channel, OfferRecord
from marketplace.market.context import Market
from marketplace.router.running import RouterRun
from marketplace.router.supply import Candidate

FIRST_S: Final = 15.0  # that a market waits for a chain that does not answer
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
Route = Callable[[], Awaitable[RouterRun]]
"""Opens the router's keys and books at its chain; a Fault while that is away."""
log = structlog.get_logger("router")


async def start(
    tasks: TaskGroup, market: Market, hub: AdapterHub, payers: PayerHub, opened: Route
) -> None:
    """Let the router run among *tasks*; back once it is there, or cannot be yet.

    Nobody is let in before: who connects to a market that was restarted says its last payment
    again, once, and would hear `NO_ROUTER`.
    """
    tried = anyio.Event()
    tasks.start_soon(_route, market, hub, payers, opened, tried)
    with anyio.move_on_after(FIRST_S):
        await tried.wait()


async def _route(
    market: Market, hub: AdapterHub, payers: PayerHub, opened: Route, tried: anyio.Event
) -> None:
    """Until cancelled. A router whose disk fails ends, and the market places leases directly."""
    running = await _opened(opened, tried)
    try:
        running.desk.heard_by(hub.tell, payers.tell)
        market.router = running.desk
        tried.set()
        _greet(running, hub, payers)
        await running.run(lambda: candidates(market, hub))
    except* Halt as halts:
        log.error("router_stopped", error=str(halts.exceptions[0]))
    finally:
        market.router = None
        running.close()


def _greet(running: RouterRun, hub: AdapterHub, payers: PayerHub) -> None:
    """Those that connected before the router was there."""
    for key in list(hub.hub.live):
        if hub.able(key.hex(), codec.ROUTE):
            for message in running.desk.welcome(key.hex()):
                hub.tell(key.hex(), message)
    for session_vk in list(payers.by_channel):
        for message in running.desk.resume(session_vk):
            payers.tell(session_vk, message)


async def _opened(opened: Route, tried: anyio.Event) -> RouterRun:
    attempt = 0
    while True:
        try:
            return await opened()
        except Halt:
            raise
        except Fault as fault:
            log.warning("router_waits", error=fault.line(), attempt=attempt)
            tried.set()
        await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
        attempt += 1


async def candidates(market: Market, hub: AdapterHub) -> list[Candidate]:
    """Providers that are connected here, take jobs, and serve routed leases; with what each has of
    this market's channels on chain.
    """
    found: list[Candidate] = []
    for record in await market.store.find(OfferRecord, state=OfferState.LISTED):
        if hub.able(record.provider, codec.ROUTE):
            had = await market.store.total(Channel, "claimed", provider=record.provider)
            found.append(Candidate(record.offer, had))
    return found
