"""A gang that waits, over real sockets: it holds nothing until all its members fit, and then all are
asked for at once.
"""

from __future__ import annotations

from typing import Any

import anyio
import httpx

from marketplace.domain.protocol import wire
from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.lease import LeaseState
from marketplace.domain.work.parts import GpuNeed, Policy, Range, Resources
from marketplace.market.base.records import ApiKey, Gang, Job, Lease
from marketplace.market.placement import reconciler
from tests.fakes import FakeAdapter, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_gangs import (
    CARDS,
    fresh,
    gang_body,
    of,
    posted,
    run_all,
    team,
    three,
    whole,
)
from tests.integration.market.test_spine import quoted, state
from tests.integration.support.market import fast

WAITS = Policy(60_000, queue=True)
ONE_DEVICE = Resources(Range(1000), Range(256), Range(0), GpuNeed())


def patient(members: int = 3, **more: Any) -> JobSpec:
    return team(members, policy=WAITS, **more)


def idle(run: Any, *fakes: FakeAdapter) -> bool:
    """Nothing of theirs is held, and they were asked nothing."""
    free = [run.market.directory.free(fake.offer.id) for fake in fakes]
    unheld = all(share == 1000 for offer in free for share in offer.values())
    return unheld and not any(isinstance(m, wire.LeaseProposed) for f in fakes for m in f.asked)


async def waiting(client: httpx.AsyncClient, job: JobSpec) -> tuple[dict[str, Any], list[Any]]:
    view, keys = await posted(client, job)
    assert {member["state"] for member in view["members"]} == {"QUEUED"}
    return view, keys


def test_it_waits_with_nothing_held_and_is_placed_whole_when_the_last_host_comes(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()[:2]) as (client, run, tasks, *fakes):
            view, keys = await waiting(client, patient())
            for member in view["members"]:
                assert member["explain"]["members"] == 2
                assert member["message"].startswith("2 of 3 members fit")
                assert not member["leases"] and member["quote"] is None
            for _ in range(3):  # however often the market looks
                await reconciler.jobs(run.market)
                await reconciler.gangs(run.market)
            assert idle(run, *fakes) and await run.market.store.count(Lease) == 0
            [kept] = await run.market.store.find(Gang)
            assert kept.state is GangState.WAITING
            # Others' jobs use the devices meanwhile.
            small, _ = await post(client, spec(resources=(ONE_DEVICE,)))
            await quoted(client, small["id"])
            assert (await client.post(f"/v1/jobs/{small['id']}/stop")).status_code == 200

            last = adapter("host2", gpus=CARDS)(str(client.base_url).rstrip("/"))
            tasks.start_soon(last.socket.run)
            view = await whole(client, view["id"], "QUOTED")
            assert len({member["provider"] for member in view["members"]}) == 3
            leases = await run.market.store.find(Lease, state=LeaseState.OFFERED)
            mine = [lease for lease in leases if lease.job in {m["id"] for m in view["members"]}]
            assert len(mine) == 3 and len({lease.created_ms for lease in mine}) == 1
            await run_all(client, view, keys, *fakes, last)
            last.socket.stopped = True

    anyio.run(go)


def test_a_lease_that_ends_makes_the_place_that_lacked(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, run, *_):
            every = Resources(Range(1000), Range(256), Range(0), GpuNeed(count=Range(2)))
            first, _ = await post(client, spec(resources=(every,)))
            await quoted(client, first["id"])
            view, _ = await waiting(client, patient())
            assert (await client.get(f"/v1/gangs/{view['id']}")).json()["ceiling"] == 0
            await client.post(f"/v1/jobs/{first['id']}/stop")
            await whole(client, view["id"], "QUOTED")
            assert await run.market.store.count(Job, state=JobState.QUEUED) == 0

    anyio.run(go)


def test_it_is_stopped_while_it_waits_and_nothing_is_owed(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()[:2]) as (client, run, tasks, *fakes):
            key = await client.post(
                "/v1/keys",
                json={"name": "ci", "verbs": ["read", "jobs"], "budget": 60_000_000,
                      "expires_at_ms": 2**52},
            )  # fmt: skip
            bearer = {"Authorization": f"Bearer {key.json()['secret']}"}
            asked = gang_body(patient(), fresh(3))
            view = (await client.post("/v1/gangs", json=asked, headers=bearer)).json()
            assert {m["state"] for m in view["members"]} == {"QUEUED"}
            assert (await run.market.store.find(ApiKey))[0].committed == 60_000_000
            for _ in range(2):
                stopped = await client.post(f"/v1/gangs/{view['id']}/stop", headers=bearer)
                told = stopped.json()
                assert {m["state"] for m in told["members"]} == {"ENDED"}
                assert {m["reason"] for m in told["members"]} == {"CANCELLED"}
                assert (told["spent"], told["ceiling"]) == (0, 0)
            assert (await run.market.store.find(ApiKey))[0].committed == 0

            # One member's stop is the end of all, as it is of a gang that runs.
            view, _ = await waiting(client, patient())
            await client.post(f"/v1/jobs/{view['members'][1]['id']}/stop")
            ended = await whole(client, view["id"], "ENDED")
            reasons = [member["reason"] for member in ended["members"]]
            assert reasons == ["MEMBER_ENDED", "CANCELLED", "MEMBER_ENDED"]
            # Neither comes to life when a place is there.
            last = adapter("host2", gpus=CARDS)(str(client.base_url).rstrip("/"))
            tasks.start_soon(last.socket.run)

            async def listed() -> bool:
                return len((await client.get("/v1/offers")).json()["items"]) == 3

            await until(listed)
            await reconciler.gangs(run.market)
            await reconciler.jobs(run.market)
            assert idle(run, *fakes, last) and await run.market.store.count(Lease) == 0
            last.socket.stopped = True

    anyio.run(go)


def test_it_waits_on_over_a_restart_of_the_market(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()[:2]) as (client, *_):
            view, keys = await waiting(client, patient())
        async with at_market(tmp_path, *three()) as (client, _, _, *fakes):
            view = await whole(client, view["id"], "QUOTED")
            assert len({member["provider"] for member in view["members"]}) == 3
            await run_all(client, view, keys, *fakes)

    anyio.run(go)


def test_whose_device_is_still_being_cleared_is_asked_again(tmp_path) -> None:
    """A waiting gang gets its place as another job leaves it, so as for a job alone."""

    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, _, _, *fakes):
            tries: list[str] = []

            def answer(asked: Any) -> str:
                tries.append(asked.terms.lease)
                return "DEVICE_BUSY" if len(tries) < 3 else ""

            fakes[1].answer = answer
            view, keys = await posted(client, patient())
            view = await whole(client, view["id"], "QUOTED")
            assert len(tries) == 3
            assert len({member["provider"] for member in view["members"]}) == 3
            await run_all(client, view, keys, *fakes)

    anyio.run(go)


def test_any_other_no_ends_all_as_of_a_gang_that_does_not_wait(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three("", "", "BUSY")) as (client, _, _, *fakes):
            view, _ = await posted(client, patient())
            ended = await whole(client, view["id"], "ENDED")
            reasons = sorted(member["reason"] for member in ended["members"])
            assert reasons == ["DECLINED", "MEMBER_ENDED", "MEMBER_ENDED"]
            await until(lambda: sum(len(f.cancelled) for f in fakes) == 2)

    anyio.run(go)


def test_its_members_count_among_the_accounts_waiting_jobs(tmp_path) -> None:
    async def go() -> None:
        settings = fast(queued_jobs=5)
        async with at_market(tmp_path, *three()[:2], settings=settings) as (client, run, *_):
            first, _ = await waiting(client, patient())
            more = await client.post("/v1/gangs", json=gang_body(patient(), fresh(3)))
            assert (more.status_code, more.json()["code"]) == (422, "TOO_MANY_QUEUED")
            assert await run.market.store.count(Job) == 3
            await client.post(f"/v1/gangs/{first['id']}/stop")
            await waiting(client, patient())

    anyio.run(go)


def test_where_it_fits_at_once_it_does_not_wait(tmp_path) -> None:
    async def go() -> None:
        async with at_market(tmp_path, *three()) as (client, _, _, *fakes):
            view, keys = await posted(client, patient())
            view = await whole(client, view["id"], "QUOTED")
            leases = await run_all(client, view, keys, *fakes)
            await of(tuple(fakes), leases[0]).finish(leases[0])
            await state(client, view["members"][0]["id"], "ENDING", "ENDED")

    anyio.run(go)
