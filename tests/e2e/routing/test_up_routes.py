"""``tally up`` passes payments on: its market's router opens a hop to the provider, and says what it
offers, holds and risks; killed and started again, it goes on with the same hop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.money.route.offer import SignedRouterOffer
from marketplace.router.limits import ADA
from tests.e2e.support.embedded import PATIENCE_S, tally, until_true
from tests.e2e.test_up import swept, up
from tests.requires import need_devnet

pytestmark = pytest.mark.timeout(PATIENCE_S + 240)


async def offered(url: str) -> dict[str, Any]:
    """What the market says of its router; empty while there is none."""
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{url}/v1/router")
        return dict(answer.json()) if answer.status_code == 200 else {}


async def with_hops(said: dict[str, str]) -> dict[str, Any]:
    """Once the hop to the provider is open."""

    async def there() -> dict[str, Any]:
        found = await offered(said["TALLY_MARKET"])
        return found if found.get("hops_out") == 1 else {}

    return dict(await until_true(there, "the hop to the provider"))


async def asked(home: Path) -> dict[str, Any]:
    """One life of ``tally up``: what its router's owner is told."""
    async with up(home) as (_, said):
        found = await with_hops(said)
        offer = SignedRouterOffer(
            bytes.fromhex(found["offer"]), bytes.fromhex(found["signature"])
        ).verify()
        assert (offer.route_bps, offer.hop_fee) == (50, 25_000)
        assert found["free"] >= 90 * ADA
        folder = str(home / "up" / "market" / "route")
        chain = ("--chain-url", said["TALLY_CHAIN_URL"])
        told = await tally("market", "router", "--route", folder, *chain, "--json", env=said)
        return dict(told.last)


def test_a_devnets_market_routes_and_a_restart_keeps_its_hop(tmp_path: Path) -> None:
    need_devnet()

    async def story() -> None:
        async with swept(tmp_path):
            held = [await asked(tmp_path) for _ in range(2)]
        assert [one["hops_out"] for one in held] == [1, 1]
        assert held[0]["address"] == held[1]["address"]
        assert held[0]["balance"] - held[1]["balance"] < ADA  # the second start opened nothing
        assert held[1]["unclaimed"] == 0

    anyio.run(story)
