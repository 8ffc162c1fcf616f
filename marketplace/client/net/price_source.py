"""A source that says what an ADA is worth elsewhere, asked by a market for its pages and by a
command for its screen. What it answers is read in ``market/state/exchange.py``, and only shown.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import httpx

from marketplace.domain.errors import Malformed
from marketplace.domain.site import is_loopback, origin_of

DEADLINE_S: Final = 10.0


def check(url: str) -> str:
    """*url*; Malformed unless it is https, or on this machine."""
    origin = origin_of(url)
    if not (origin.startswith("https://") or is_loopback(urlsplit(origin).hostname or "")):
        raise Malformed(f"{url[:100]!r}: a price source is asked over https")
    return url


async def answer_of(url: str, most: int) -> bytes:
    """The answer, cut a byte beyond *most*. Malformed, or httpx's errors."""
    async with (
        httpx.AsyncClient(timeout=DEADLINE_S, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
    ):
        if answer.status_code != 200:
            raise Malformed(f"the price source answers {answer.status_code}")
        raw = b""
        async for part in answer.aiter_bytes():
            raw += part
            if len(raw) > most:
                break
        return raw[: most + 1]
