"""Asks the price source that the operator named; what it says is only shown."""

from __future__ import annotations

from typing import Final

import anyio
import httpx
import structlog

from marketplace.client.net.price_source import DEADLINE_S, answer_of
from marketplace.domain.errors import Malformed
from marketplace.market.context import Market
from marketplace.market.state.exchange import MOST_BYTES, read

log = structlog.get_logger("exchange")
EVERY_S: Final = 300.0


async def look(market: Market, url: str) -> None:
    """One question. A source that fails or lies changes nothing: what was known grows old."""
    try:
        with anyio.fail_after(DEADLINE_S):
            market.exchange = read(await answer_of(url, MOST_BYTES), market.now)
    except (Malformed, TimeoutError, httpx.HTTPError) as error:
        log.warning("price_source", url=url, error=str(error) or type(error).__name__)
