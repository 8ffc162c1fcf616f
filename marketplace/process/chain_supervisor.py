"""A market's chain, which may be away when the market starts: it comes up, says so, and catches up.

Jobs, logs, receipts and vouchers need no chain. What does (claims, unsigned transactions) waits,
and ``/readyz`` says why. Before the very first look at a chain not even the network is known, and
nobody can sign in or agree to anything: until then :class:`Gate` answers for everything but health.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import anyio
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from marketplace.api.http.auth import Parts
from marketplace.api.http.problems import problem
from marketplace.domain.errors import Fault
from marketplace.market.base.ports import Ledger
from marketplace.market.context import Market
from marketplace.market.money import settle
from marketplace.market.upkeep import chain_network

log = structlog.get_logger("market")
MAINNET: Final = 764824073
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
FIRST_LOOK_S: Final = 5.0
Connect = Callable[[], Awaitable[tuple[int, Ledger]]]
"""The network's magic and its ledger; a Fault when it is away, a Refusal when it is the wrong one.
"""


async def first_look(parts: Parts, connect: Connect) -> bool:
    """Whether the chain is there now. If not, the database's own memory says which network it
    is.
    """
    try:
        with anyio.fail_after(FIRST_LOOK_S):
            await _arrive(parts, connect)
        return True
    except (Fault, TimeoutError) as fault:
        parts.chain_fault = _line(fault)
    known = await chain_network.remembered(parts.market)
    if known is None:
        parts.network_known = False
    else:
        _on(parts, known)
    log.error("chain_away", error=parts.chain_fault, network=known, what="serving without it")
    return False


async def await_chain(parts: Parts, connect: Connect) -> None:
    """Until it is there, with growing pauses. A chain of another network ends the market."""
    attempt = 0
    while True:
        await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
        attempt += 1
        try:
            await _arrive(parts, connect)
        except Fault as fault:
            parts.chain_fault = _line(fault)
            log.warning("chain_away", error=parts.chain_fault, attempt=attempt)
            continue
        log.warning("chain_back", network=parts.market.settings.magic)
        return


async def claims(parts: Parts) -> None:
    """One round of claims, by the process that holds the matcher's lock: the chain is asked once
    for the whole market. What keeps it from answering is shown by ``/readyz``.
    """
    market = parts.market
    if market.ledger is None or not market.epoch:
        return
    try:
        await settle.claim_round(market)
    except Fault as fault:
        parts.chain_fault = _line(fault)
        raise
    parts.chain_fault = ""


async def ends(parts: Parts) -> None:
    """One round of ends that providers offered, by the same process."""
    if parts.market.epoch:
        await parts.hub.ends.round()


async def follow(market: Market) -> None:
    """One look after unfinished transactions, by the same process."""
    if market.epoch:
        await settle.follow(market)


async def _arrive(parts: Parts, connect: Connect) -> None:
    magic, ledger = await connect()
    await chain_network.bind(parts.market, magic)
    _on(parts, magic)
    parts.market.ledger, parts.chain_fault, parts.network_known = ledger, "", True


def _on(parts: Parts, magic: int) -> None:
    parts.market.settings = replace(parts.market.settings, magic=magic)
    parts.mainnet = magic == MAINNET


def _line(fault: Exception) -> str:
    return fault.line() if isinstance(fault, Fault) else "the chain did not answer in time"


class Gate:
    """Until the network is known: a problem that says so, for everything but health and metrics."""

    _OPEN: Final = ("/healthz", "/readyz", "/metrics")

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self.app, self.parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass, answer 503, or (a websocket) turn it away: adapters and payers try again."""
        kind = scope["type"]
        if self.parts.network_known or kind == "lifespan" or scope["path"] in self._OPEN:
            await self.app(scope, receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013})
        else:
            await unknown_network(self.parts)(scope, receive, send)


def unknown_network(parts: Parts) -> ASGIApp:
    """The 503 of a market that has never seen its chain."""
    why = f"this market has not seen its chain yet: {parts.chain_fault}"
    return problem(503, "CHAIN_AWAY", why, "try again soon; the operator: see --chain-url")
