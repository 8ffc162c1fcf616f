"""Asks the price source that the operator named; what it says is only shown."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx
import structlog

from marketplace.domain.errors import Malformed
from marketplace.domain.site import is_loopback, origin_of
from marketplace.market.context import Market
from marketplace.market.state.exchange import MOST_BYTES, read

log = structlog.get_logger("exchange")
EVERY_S: Final = 300.0
_DEADLINE_S: Final = 10.0


def check(url: str) -> str:
    """*url*; Malformed unless it is https, or on this machine."""
    origin = origin_of(url)
    if not (origin.startswith("https://") or is_loopback(urlsplit(origin).hostname or "")):
        raise Malformed(f"{url[:100]!r}: a price source is asked over https")
    return url


async def look(market: Market, url: str) -> None:
    """One question. A source that fails or lies changes nothing: what was known grows old."""
    try:
        with anyio.fail_after(_DEADLINE_S):
            market.exchange = read(await _answer(url), market.now)
    except (Malformed, TimeoutError, httpx.HTTPError) as error:
        log.warning("price_source", url=url, error=str(error) or type(error).__name__)


async def _answer(url: str) -> bytes:
    """At most a byte more than it may be."""
    async with (
        httpx.AsyncClient(timeout=_DEADLINE_S, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
    ):
        if answer.status_code != 200:
            raise Malformed(f"the price source answers {answer.status_code}")
        raw = b""
        async for part in answer.aiter_bytes():
            raw += part
            if len(raw) > MOST_BYTES:
                break
        return raw[: MOST_BYTES + 1]
