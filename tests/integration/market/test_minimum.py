"""An offer's minimum, in a market: a job that cannot cost so much is refused with the numbers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.market.base.records import Channel
from tests.fakes import seed, spec, until
from tests.integration.market.test_access import open_market
from tests.integration.market.test_spine import body
from tests.integration.security.test_accounts import post, sign


def test_a_job_below_the_minimum_is_refused_and_the_offer_says_why(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, adapter):
            session = Signer(os.urandom(32))
            asked = body(spec(), session, seed("consumer"))
            wish = {"spec": asked["spec"]}
            quote = (await client.post("/v1/explain", json=wish)).json()["quote"]
            ceiling = quote["ceiling"]
            assert quote["minimum"] == 0

            async def listed(minimum: int) -> None:
                await adapter.send(wire.OfferPosted(replace(adapter.offer, minimum=minimum), False))

                async def seen() -> bool:
                    items = (await client.get("/v1/offers")).json()["items"]
                    return bool(items) and items[0]["minimum"] == minimum

                await until(seen)

            await listed(ceiling)
            quote = (await client.post("/v1/explain", json=wish)).json()["quote"]
            assert (quote["ceiling"], quote["minimum"]) == (ceiling, ceiling)
            await listed(ceiling + 1_000_000)
            answer = await client.post("/v1/jobs", json=asked)
            assert (answer.status_code, answer.json()["code"]) == (422, "NO_MATCH"), answer.text
            told = (await client.post("/v1/explain", json=wish)).json()["explain"]
            assert told["reasons"] == {"minimum": 1}
            assert "keep a channel" in told["text"]

    anyio.run(run)


def test_a_channel_that_is_only_said_to_be_open_frees_nobody(tmp_path: Path) -> None:
    """Of a channel that brought nothing yet, nothing counts."""

    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            session = Signer(os.urandom(32))
            await sign(client, await post(client, session), session, {})
            assert await inside.market.store.get(Channel, session.verify_key) is not None
            huge = replace(adapter.offer, minimum=10**12)
            await adapter.send(wire.OfferPosted(huge, False))
            await until(lambda: inside.market.directory.offers()[0][1].minimum == 10**12)
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            asked["channels"] = [session.verify_key.hex(), "ab" * 32]
            answer = await client.post("/v1/jobs", json=asked)
            assert (answer.status_code, answer.json()["code"]) == (422, "NO_MATCH"), answer.text

    anyio.run(run)
