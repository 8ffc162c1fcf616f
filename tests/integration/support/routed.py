"""A market with a router, a provider that serves over it and a consumer with a hop to it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.route import SignedRoute, check_route, commit
from marketplace.domain.money.route.terms import RoutedTerms, SignedRoutedTerms
from marketplace.process.main import Running
from tests.fake_router import TX, FakeRouter
from tests.fakes import offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import fast, market, sign_in
from tests.routed_fakes import RoutedAdapter, RoutedPayer

PROVIDER, CONSUMER, HOP = seed("provider"), seed("consumer"), seed("hop")


@dataclass
class World:
    """All that a test of routed leases looks at."""

    url: str
    client: httpx.AsyncClient
    run: Running
    router: FakeRouter
    adapter: RoutedAdapter
    payer: RoutedPayer

    async def post(self, session: Signer | None = None, **more: Any) -> httpx.Response:
        session = session or self.key()
        asked = body(more.pop("job", spec()), session, CONSUMER, hop=HOP.verify_key.hex(), **more)
        return await self.client.post("/v1/jobs", json=asked)

    def key(self) -> Signer:
        """A fresh session key, which the payer speaks for once it is connected anew."""
        key = Signer(os.urandom(32))
        self.payer.sessions[key.verify_key] = key
        return key

    async def quote(self, **more: Any) -> dict[str, Any]:
        answer = await self.post(**more)
        assert answer.status_code == 201, answer.text
        return await quoted(self.client, answer.json()["id"])

    async def sign(self, view: dict[str, Any], pay: bool = True) -> str:
        """What a careful consumer checks of a routed quote; then its signature."""
        quote = view["quote"]
        terms = bytes.fromhex(quote["terms"])
        key = self.payer.sessions[bytes.fromhex(quote["session_vk"])]
        SignedRoutedTerms(terms, bytes.fromhex(quote["adapter_signature"])).verify_adapter()
        told = {name: bytes.fromhex(value) for name, value in quote["route"].items()}
        route = check_route(SignedRoute(told["body"], told["signature"]), RoutedTerms.decode(terms))
        assert told["hop"] == HOP.verify_key and route.in_commit == commit(
            told["hop"], told["salt"]
        )
        answer = await self.client.post(
            f"/v1/leases/{quote['lease']}/sign",
            json={"session_signature": key.sign(terms).hex()},
        )
        assert answer.status_code == 200, answer.text
        await self.payer.speak(key)
        if pay:
            await self.payer.admit(quote["lease"], terms, route.route_bps, self.router.began)
        return str(quote["lease"])

    async def start(self, lease: str) -> None:
        await until(lambda: self.adapter.leases[lease].signed)
        for stage in ("CHANNEL_SEEN", "STARTED"):
            await self.adapter.progress(lease, stage)

    async def paid_tick(self, lease: str) -> int:
        receipt = await self.adapter.tick(lease)
        await until(lambda: self.adapter.got(lease) == receipt.lease_owed)
        return receipt.lease_owed


@asynccontextmanager
async def routed(
    tmp_path: Path, router: FakeRouter | None = None, announce: bool = True, **more: Any
) -> AsyncGenerator[World]:
    """The provider is connected and has a hop of the router's, the consumer one to it."""
    router = router or FakeRouter()
    more = {"offer": {}, **more}
    offered = offer(PROVIDER, payout=seed("payee").key_hash, **more.pop("offer"))
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, fast(**more)) as (url, run):
        run.market.router = router
        router.heard_by(run.market.providers.tell, run.market.payers.tell)
        adapter = RoutedAdapter(url, PROVIDER, offered)
        payer = RoutedPayer(url, {}, hop=HOP)
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter, payer):
            await sign_in(client, CONSUMER)
            await until(lambda: run.market.directory.offers() and adapter.welcomes)
            router.open_to(adapter.offer.provider)
            await until(lambda: adapter.books)
            world = World(url, client, run, router, adapter, payer)
            if announce:
                said = await announced(client)
                assert said.status_code == 201, said.text
            yield world


async def announced(client: httpx.AsyncClient, hop: Signer = HOP) -> httpx.Response:
    asked = {"session_vk": hop.verify_key.hex(), "tx": TX, "index": 0}
    return await client.post("/v1/router/hops", json=asked)
