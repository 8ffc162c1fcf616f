"""A market that never answered is given up soon; one that was there before is given time to come
back.
"""

from __future__ import annotations

import anyio
import httpx
import pytest

from marketplace.client.net.http import Http, MarketFault


def tries_of(error: type[httpx.TransportError], *, answered: bool) -> int:
    """How often a read is sent to a market that fails with *error*, *answered* once before or
    not.
    """
    sent = 0

    async def story() -> None:
        def give(request: httpx.Request) -> httpx.Response:
            nonlocal sent
            if request.url.path == "/first":
                return httpx.Response(200, json={})
            sent += 1
            raise error("away", request=request)

        market = Http("http://market", transport=httpx.MockTransport(give))
        if answered:
            await market.get("/first")
        with pytest.raises(MarketFault) as refused:
            await market.get("/v1/offers")
        assert refused.value.code == "MARKET_UNREACHABLE"
        assert "http://market" in refused.value.message and "tally up" in refused.value.remedy
        await market.aclose()

    anyio.run(story)
    return sent


@pytest.mark.parametrize(
    ("error", "answered", "tries"),
    [
        (httpx.ConnectError, False, 2),
        (httpx.ConnectTimeout, False, 1),
        (httpx.ConnectTimeout, True, 4),
    ],
)
def test_tries(error: type[httpx.TransportError], answered: bool, tries: int) -> None:
    assert tries_of(error, answered=answered) == tries
