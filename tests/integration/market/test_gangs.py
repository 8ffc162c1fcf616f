"""Gangs over real sockets: all members are placed and run, or none is and nobody pays on alone."""

from __future__ import annotations

import os
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.parts import Gang, GpuNeed, Policy, Price, Range, Resources
from marketplace.market.base.records import ApiKey, Job, Lease
from marketplace.market.placement import reconciler
from tests.fakes import FakeAdapter, gpu, seed, spec, until
from tests.integration.market.test_faults import adapter, at_market
from tests.integration.market.test_spine import body, sign, state
from tests.integration.support.market import fast, sign_in

CARDS = tuple(gpu(at) for at in range(2))


def team(members: int = 3, budget: int = 60_000_000, **more: Any) -> JobSpec:
    needs = Resources(Range(1000), Range(256), Range(0), GpuNeed())
    gang = Gang(
        members, spread=more.pop("spread", True), same_region=more.pop("same_region", False)
    )
    price = Price(budget=budget)
    return spec(resources=(needs,), gang=gang, price=price, env={"EPOCHS": "3"}, **more)


def three(*answers: str):
    return [
        adapter(f"host{at}", answer, gpus=CARDS)
        for at, answer in enumerate(answers or ("", "", ""))
    ]


def gang_body(job: JobSpec, keys: list[Signer]) -> dict[str, Any]:
    return {
        "spec": job.to_wire(),
        "session_vks": [key.verify_key.hex() for key in keys],
        "consumer_vkh": seed("consumer").key_hash.hex(),
    }


def fresh(count: int) -> list[Signer]:
    return [Signer(os.urandom(32)) for _ in range(count)]


async def posted(client: httpx.AsyncClient, job: JobSpec) -> tuple[dict[str, Any], list[Signer]]:
    keys = fresh(job.gang.members if job.gang else 1)
    answer = await client.post("/v1/gangs", json=gang_body(job, keys))
    assert answer.status_code == 201, answer.text
    return answer.json(), keys


async def whole(client: httpx.AsyncClient, gang: str, *states: str) -> dict[str, Any]:
    async def look():
        view = (await client.get(f"/v1/gangs/{gang}")).json()
        return view if all(member["state"] in states for member in view["members"]) else None

    return await until(look)


def of(fakes: tuple[FakeAdapter, ...], lease: str) -> FakeAdapter:
    return next(fake for fake in fakes if lease in fake.leases)


async def run_all(client: Any, view: dict[str, Any], keys: list[Signer], *fakes: FakeAdapter):
    leases: list[str] = []
    for member, key in zip(view["members"], keys, strict=True):
        lease = await sign(client, member, key, os.urandom(32).hex())
        host = of(fakes, lease)
        await until(lambda host=host, lease=lease: host.leases[lease].signed)
        await host.progress(lease, "STARTED")
        leases.append(lease)
    await whole(client, view["id"], "RUNNING")
    return leases


def test_a_gang_is_placed_apart_runs_and_completes_member_by_member(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, _, *fakes):
            job = team()
            quote = await client.post("/v1/quotes", json={"spec": job.to_wire()})
            assert quote.status_code == 200, quote.text
            assert (len(quote.json()["members"]), quote.json()["offers"]) == (3, 3)
            assert quote.json()["ceiling"] == 3 * (60 * 100 + 1)
            assert await run.market.store.count(Job) == 0

            view, keys = await posted(client, job)
            view = await whole(client, view["id"], "QUOTED")
            assert len({member["provider"] for member in view["members"]}) == 3
            assert [m["spec"]["env"]["TALLY_MEMBER"] for m in view["members"]] == ["0", "1", "2"]
            assert {m["spec"]["price"]["budget"] for m in view["members"]} == {20_000_000}
            assert view["ceiling"] == quote.json()["ceiling"]
            leases = await run_all(client, view, keys, *fakes)
            # One that completes leaves the others running.
            await of(tuple(fakes), leases[0]).finish(leases[0])
            await state(client, view["members"][0]["id"], "ENDING", "ENDED")
            for _ in range(2):
                await reconciler.gangs(run.market)
            for lease in leases[1:]:
                host = of(tuple(fakes), lease)
                assert not host.stops
                receipt = await host.tick(lease)
                assert receipt.lease_owed == 100
                await host.finish(lease)
            for lease in leases:
                await of(tuple(fakes), lease).progress(lease, "SETTLED")
            ended = await whole(client, view["id"], "ENDED")
            assert {member["reason"] for member in ended["members"]} == {"COMPLETED"}
            assert ended["spent"] == 200

    anyio.run(go)


def test_nothing_is_asked_for_where_one_member_has_no_place(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, _, *fakes):
            answer = await client.post("/v1/gangs", json=gang_body(team(4), fresh(4)))
            assert answer.status_code == 422, answer.text
            problem = answer.json()
            assert problem["code"] == "NO_MATCH"
            assert problem["fields"]["explain"]["members"] == 3
            assert "3 of 4 members fit" in problem["detail"]
            told = (await client.post("/v1/explain", json={"spec": team(4).to_wire()})).json()
            assert (told["matches"], told["explain"]["members"]) == (False, 3)
            assert await run.market.store.count(Job) == await run.market.store.count(Lease) == 0
            assert all(not isinstance(m, wire.LeaseProposed) for f in fakes for m in f.asked)
            free = [run.market.directory.free(f.offer.id) for f in fakes]
            assert all(share == 1000 for offer in free for share in offer.values())
            # Packed they fit, on as few hosts as will do.
            view, _ = await posted(client, team(4, spread=False))
            view = await whole(client, view["id"], "QUOTED")
            assert len({member["provider"] for member in view["members"]}) == 2

    anyio.run(go)


def test_one_that_declines_ends_all_before_anybody_pays(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three("", "", "BUSY")) as (client, run, _, *fakes):
            view, _ = await posted(client, team())
            ended = await whole(client, view["id"], "ENDED")
            reasons = sorted(member["reason"] for member in ended["members"])
            assert reasons == ["DECLINED", "MEMBER_ENDED", "MEMBER_ENDED"]
            await until(lambda: sum(len(f.cancelled) for f in fakes) == 2)
            free = [run.market.directory.free(f.offer.id) for f in fakes]
            assert all(share == 1000 for offer in free for share in offer.values())

    anyio.run(go)


def test_one_that_fails_ends_the_others(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, _, _, *fakes):
            view, keys = await posted(client, team())
            view = await whole(client, view["id"], "QUOTED")
            leases = await run_all(client, view, keys, *fakes)
            await of(tuple(fakes), leases[1]).finish(leases[1], "FAILED", 1)
            for lease in (leases[0], leases[2]):
                host = of(tuple(fakes), lease)
                await until(lambda host=host, lease=lease: lease in host.stops)
                await host.finish(lease, "STOPPED", 143)
            for lease in leases:
                await of(tuple(fakes), lease).progress(lease, "SETTLED")
            ended = await whole(client, view["id"], "ENDED")
            assert [m["reason"] for m in ended["members"]] == [
                "MEMBER_ENDED",
                "FAILED",
                "MEMBER_ENDED",
            ]

    anyio.run(go)


@pytest.mark.prove
def test_one_quote_that_lapses_ends_those_that_were_signed(tmp_path) -> None:
    async def go() -> None:
        settings = fast(quote_ttl_ms=6_000)
        async with at_market(tmp_path, *three(), settings=settings) as (client, _, _, *fakes):
            view, keys = await posted(client, team())
            view = await whole(client, view["id"], "QUOTED")
            lease = await sign(client, view["members"][0], keys[0], os.urandom(32).hex())
            host = of(tuple(fakes), lease)
            await until(lambda: lease in host.stops)
            ends = await whole(client, view["id"], "ENDED", "ENDING")
            assert ends["members"][0]["reason"] == "MEMBER_ENDED"
            assert "QUOTE_EXPIRED" in {member["reason"] for member in ends["members"][1:]}

    anyio.run(go)


def test_a_stop_ends_all_members_and_strangers_see_nothing(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, _, _, *_fakes):
            view, _ = await posted(client, team())
            await whole(client, view["id"], "QUOTED")
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                await sign_in(other, seed("stranger"))
                assert (await other.get(f"/v1/gangs/{view['id']}")).status_code == 404
                assert (await other.post(f"/v1/gangs/{view['id']}/stop")).status_code == 404
            for _ in range(2):
                stopped = await client.post(f"/v1/gangs/{view['id']}/stop")
                assert {m["state"] for m in stopped.json()["members"]} == {"ENDED"}
                assert {m["reason"] for m in stopped.json()["members"]} == {"CANCELLED"}

    anyio.run(go)


def test_what_no_gang_can_be_is_refused(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, *_):
            alone = body(team(), Signer(os.urandom(32)), seed("consumer"))
            refused = (await client.post("/v1/jobs", json=alone)).json()
            assert (refused["code"], refused["fields"]["field"]) == ("NOT_OFFERED", "gang")
            again = Policy(60_000, retry_on=("provider_lost",), retry_max=1)
            asked = gang_body(team(policy=again), fresh(3))
            refused = (await client.post("/v1/gangs", json=asked)).json()
            assert (refused["code"], refused["fields"]["field"]) == ("NOT_OFFERED", "retry")
            keys = fresh(3)
            for wrong in (keys[:2], [keys[0], keys[0], keys[1]], [*keys, *fresh(1)]):
                answer = await client.post("/v1/gangs", json=gang_body(team(), wrong))
                assert answer.json()["code"] == "MALFORMED", answer.text
            small = gang_body(team(budget=2), keys)
            assert (await client.post("/v1/gangs", json=small)).json()["code"] == "OVER_BUDGET"
            single = {**gang_body(team(), keys), "spec": spec().to_wire()}
            assert (await client.post("/v1/gangs", json=single)).json()["code"] == "MALFORMED"
            assert await run.market.store.count(Job) == 0

    anyio.run(go)


def test_a_key_is_bound_by_what_all_members_may_cost_and_freed_again(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, *_):
            made = await client.post(
                "/v1/keys",
                json={"name": "ci", "verbs": ["read", "jobs"], "budget": 60_000_000,
                      "expires_at_ms": 2**52},
            )  # fmt: skip
            assert made.status_code == 201, made.text
            bearer = {"Authorization": f"Bearer {made.json()['secret']}"}
            once = {**bearer, "Idempotency-Key": "one"}
            asked = gang_body(team(), fresh(3))
            first = await client.post("/v1/gangs", json=asked, headers=once)
            assert first.status_code == 201, first.text
            again = await client.post("/v1/gangs", json=asked, headers=once)
            assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
            assert (await run.market.store.find(ApiKey))[0].committed == 60_000_000
            more = await client.post("/v1/gangs", json=gang_body(team(), fresh(3)), headers=bearer)
            assert more.json()["code"] == "OVER_BUDGET"
            await client.post(f"/v1/gangs/{first.json()['id']}/stop", headers=bearer)
            assert (await run.market.store.find(ApiKey))[0].committed == 0

    anyio.run(go)


def test_a_gang_left_to_another_process_is_placed_or_refused_by_it(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, *_):
            market, epoch = run.market, run.market.epoch
            assert epoch
            # As this process would do it while another holds the lock; then it takes the lock back.
            market.epoch = 0
            answers: list[httpx.Response] = []
            async with anyio.create_task_group() as tasks:

                async def ask(job: JobSpec) -> None:
                    keys = fresh(job.gang.members if job.gang else 0)
                    answers.append(await client.post("/v1/gangs", json=gang_body(job, keys)))

                tasks.start_soon(ask, team(4))
                tasks.start_soon(ask, team(3))
                await until(_all_posted(market, 7))
                market.epoch = epoch
            good = next(a for a in answers if a.status_code == 201)
            bad = next(a for a in answers if a.status_code == 422)
            assert bad.json()["code"] == "NO_MATCH"
            view = await whole(client, good.json()["id"], "QUOTED")
            assert len({member["provider"] for member in view["members"]}) == 3
            ended = await market.store.find(Job, state=JobState.ENDED)
            assert [job.reason for job in ended] == ["NO_MATCH"] * 4

    anyio.run(go)


def _all_posted(market: Any, count: int):
    async def look():
        return await market.store.count(Job, state=JobState.POSTED) == count

    return look
