"""Volumes in a market: the cheapest disk that is rented, and jobs that go where their volumes are."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx

from marketplace.domain.money.terms import Terms
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Price, Range, Resources
from marketplace.domain.work.volume import Mount
from marketplace.market.base.records import Lease
from marketplace.market.upkeep import sweeps
from tests.fakes import FakeAdapter, seed, spec, until
from tests.integration.market.test_access import sign_in
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_spine import body, quoted, sign, state

HOUR_MS = 3_600_000
DISK = Resources(Range(0), Range(0), Range(20 * 1024))


def volume(**changes: Any) -> JobSpec:
    return replace(JobSpec("chain", "", (), (DISK,), kind="volume"), **changes)


def mounting(lease: str, **changes: Any) -> JobSpec:
    return replace(spec(), volumes=(Mount(lease, "/data"),), **changes)


async def rented(client: httpx.AsyncClient, one: FakeAdapter) -> tuple[str, str, str]:
    """A volume that runs: its job, its lease, and the key of its channel."""
    view, session = await post(client, volume())
    view = await quoted(client, view["id"])
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: one.leases[lease].signed)
    await one.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    return view["id"], lease, session.verify_key.hex()


def test_the_cheapest_disk_is_taken_and_named_in_the_terms(tmp_path: Path) -> None:
    async def run() -> None:
        none = adapter("none", rate=1)
        dear, fair = adapter("dear", disk_rate=30_000), adapter(
            "fair", disk_rate=20_000, volume_keep_ms=9 * HOUR_MS
        )  # fmt: skip
        async with at_market(tmp_path, none, dear, fair) as (client, _, _, _, _, one):
            view, _ = await post(client, volume())
            view = await quoted(client, view["id"])
            assert view["provider"] == one.signer.verify_key.hex()
            asked = next(m for m in one.asked if isinstance(m, wire.LeaseProposed))
            terms = Terms.decode(asked.terms)
            assert (terms.resource, terms.rate_micro) == ("disk", 20_000)
            assert (terms.units_milli, terms.pause_limit_ms) == (20_000, 9 * HOUR_MS)
            capped = volume(price=Price(max_disk_rate=10_000))
            told = await client.post("/v1/explain", json={"spec": capped.to_wire()})
            explain = told.json()["explain"]
            assert explain["reasons"] == {"labels": 1, "price": 2}, explain

    anyio.run(run)


def test_a_job_goes_where_its_volume_is_over_its_channel(tmp_path: Path) -> None:
    async def run() -> None:
        cheap, keeps = adapter("cheap", rate=1), adapter("keeps", disk_rate=20_000)
        async with at_market(tmp_path, cheap, keeps) as (client, inside, _, _, one):
            _, lease, channel = await rented(client, one)
            view, _ = await post(client, mounting(lease), channels=[channel])
            held = await inside.market.store.get(Lease, view["lease"])
            assert held is not None and held.provider == one.signer.verify_key.hex()
            assert held.session_vk.hex() == channel and held.reused
            told = await client.post("/v1/quotes", json={"spec": mounting(lease).to_wire()})
            assert told.json()["provider"] == held.provider

    anyio.run(run)


def test_who_does_not_pay_for_it_is_told_what_a_wrong_name_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        keeps, other = adapter("keeps", disk_rate=20_000), adapter("other", disk_rate=30_000)
        async with at_market(tmp_path, keeps, other) as (client, _, _, one, two):
            _, lease, channel = await rented(client, one)

            async def said(job: JobSpec, who: str = "consumer", *channels: str) -> str:
                asked = body(job, seed(os.urandom(4).hex()), seed(who), channels=list(channels))
                answer = await client.post("/v1/jobs", json=asked)
                assert (answer.status_code, answer.json()["code"]) == (422, "NO_MATCH"), answer.text
                return answer.text

            assert "the purse that pays for it" in await said(mounting(lease))
            assert "you have no volume" in await said(mounting("lease_1"), "consumer", channel)
            elsewhere = Placement(providers=(two.signer.verify_key.hex(),))
            told = await said(mounting(lease, placement=elsewhere), "consumer", channel)
            assert "not to run" in told
            gang = {"spec": mounting(lease).to_wire() | {"gang": {"members": 2, "spread": False, "same_region": False}}}  # fmt: skip
            told = (await client.post("/v1/quotes", json=gang)).text
            assert "mounted by one job at a time" in told, told
            await sign_in(client, seed("stranger"))
            assert "you have no volume" in await said(mounting(lease), "stranger", channel)

    anyio.run(run)


def test_a_provider_that_is_away_loses_its_jobs_before_its_volumes(tmp_path: Path) -> None:
    async def run() -> None:
        keeps = adapter("keeps", disk_rate=20_000, volume_keep_ms=9 * HOUR_MS)
        async with at_market(tmp_path, keeps) as (client, inside, _, one):
            job, _, _ = await rented(client, one)
            provider = one.signer.verify_key.hex()
            await sweeps.lose(inside.market, provider, 8 * HOUR_MS)
            assert (await client.get(f"/v1/jobs/{job}")).json()["state"] == "RUNNING"
            await sweeps.lose(inside.market, provider, 9 * HOUR_MS)
            assert (await client.get(f"/v1/jobs/{job}")).json()["reason"] == "PROVIDER_LOST"

    anyio.run(run)
