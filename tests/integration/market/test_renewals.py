"""A running lease is asked to go on, over the market's own routes: who may, and what then stands."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.market.base.records import Event
from marketplace.market.context import Market
from tests.fakes import FakeAdapter, seed, spec, until
from tests.integration.market.test_access import sign_in
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import quoted, sign, state

DAY_MS = 86_400_000
WEEK = {"duration_ms": 7 * DAY_MS, "budget": 100_000_000}


async def running(client: httpx.AsyncClient, one: FakeAdapter) -> tuple[str, str, Signer]:
    """A job that runs: its id, its lease's, and the key of its channel."""
    view, session = await post(client, spec())
    view = await quoted(client, view["id"])
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: one.leases[lease].signed)
    await one.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    return view["id"], lease, session


async def ask(client: httpx.AsyncClient, lease: str, **changes: int) -> httpx.Response:
    return await client.post(f"/v1/leases/{lease}/renewal", json=WEEK | changes)


async def agree(
    client: httpx.AsyncClient, lease: str, told: dict[str, Any], session: Signer
) -> httpx.Response:
    body = bytes.fromhex(told["renewal"]["terms"])
    return await client.post(
        f"/v1/leases/{lease}/renewal/sign", json={"session_signature": session.sign(body).hex()}
    )


async def kinds(market: Market, job: str) -> list[str]:
    """The job's story, as far as it is of renewals."""
    found = await market.store.find(Event, job=job)
    return [one.kind for one in found if "RENEW" in one.kind]


def test_a_lease_goes_on_under_terms_that_both_signed(tmp_path: Path) -> None:
    async def run() -> None:
        one = adapter("one", rate=1000)
        async with at_market(tmp_path, one) as (client, inside, _, one):
            job, lease, session = await running(client, one)
            before = (await client.get(f"/v1/leases/{lease}")).json()
            old = Terms.decode(bytes.fromhex(before["terms"]))
            told = (await ask(client, lease)).json()
            offered = told["renewal"]
            assert told["terms"] == before["terms"]  # nothing changes yet
            assert offered["max_duration_ms"] == old.max_duration_ms + WEEK["duration_ms"]
            assert old.ceiling < offered["ceiling"] <= old.ceiling + WEEK["budget"]
            again = (await ask(client, lease, duration_ms=DAY_MS)).json()
            assert again["renewal"] == offered  # one question stands at a time
            signed = await agree(client, lease, told, session)
            now = signed.json()
            assert (now["terms"], now["ceiling"]) == (offered["terms"], offered["ceiling"])
            assert now["renewal"] is None
            both = SignedTerms(
                bytes.fromhex(now["terms"]),
                bytes.fromhex(now["adapter_signature"]),
                bytes.fromhex(now["session_signature"]),
            )
            both.verify()
            await until(lambda: one.leases[lease].signed == both)
            assert (await agree(client, lease, told, session)).json() == now
            await one.progress(lease, "RENEWED", max_duration_ms=now["max_duration_ms"])

            async def whole() -> bool:
                return await kinds(inside.market, job) == ["RENEWAL_QUOTED", "RENEWED"]

            await until(whole)

    anyio.run(run)


def test_a_provider_that_will_not_says_so_and_the_lease_stays_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        one = adapter("one", rate=1000)
        async with at_market(tmp_path, one) as (client, inside, _, one):
            job, lease, session = await running(client, one)
            before = (await client.get(f"/v1/leases/{lease}")).json()
            one.renews = "PRICE_BELOW"
            told = (await ask(client, lease)).json()
            assert told["renewal"] is None
            assert told["renewal_refused"].startswith("PRICE_BELOW")
            assert (told["terms"], told["state"]) == (before["terms"], "ACTIVE")
            assert await kinds(inside.market, job) == ["RENEWAL_DECLINED"]
            nothing = {"session_signature": session.sign(b"").hex()}
            answer = await client.post(f"/v1/leases/{lease}/renewal/sign", json=nothing)
            assert answer.json()["code"] == "QUOTE_GONE"
            one.renews = ""
            assert (await ask(client, lease)).json()["renewal"] is not None

    anyio.run(run)


def test_nobody_else_renews_it_and_nobody_renews_what_does_not_run(tmp_path: Path) -> None:
    async def run() -> None:
        one = adapter("one", rate=1000)
        async with at_market(tmp_path, one) as (client, _, _, one):
            job, lease, session = await running(client, one)
            for wrong in ({"duration_ms": 0}, {"budget": 0}, {"duration_ms": 2**60}):
                assert (await ask(client, lease, **wrong)).status_code == 422
            told = (await ask(client, lease)).json()
            other = await agree(client, lease, told, Signer(os.urandom(32)))
            assert other.json()["code"] == "TERMS_REFUSED"
            until_ms = int(time.time() * 1000) + DAY_MS
            keys = {
                "name": "k", "verbs": ["read", "jobs"], "budget": 10**9, "expires_at_ms": until_ms,
            }  # fmt: skip
            made = await client.post("/v1/keys", json=keys)
            assert made.status_code == 201, made.text
            key = {"authorization": f"Bearer {made.json()['secret']}"}
            refused = await client.post(f"/v1/leases/{lease}/renewal", json=WEEK, headers=key)
            # What a key spends was committed with its job, and a renewal is more.
            assert refused.json()["code"] == "FORBIDDEN", refused.text
            await sign_in(client, seed("stranger"))
            assert (await ask(client, lease)).status_code == 404
            assert (await agree(client, lease, told, session)).status_code == 404
            await sign_in(client, seed("consumer"))
            await client.post(f"/v1/jobs/{job}/stop")
            assert (await ask(client, lease)).json()["code"] == "NOT_RENEWABLE"
            assert (await agree(client, lease, told, session)).json()["code"] == "QUOTE_GONE"

    anyio.run(run)
