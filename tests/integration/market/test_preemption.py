"""A job of higher priority gets its place after a notice, over real sockets; and who may ask for
one.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.errors import NotFound
from marketplace.domain.keys import Signer
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import GpuNeed, Policy, Price, Range, Resources
from marketplace.domain.work.preemption import PreemptionState
from marketplace.market.base.records import Audit, Preemption
from marketplace.market.base.settings import Settings
from marketplace.market.jobs import preempt
from marketplace.market.upkeep import operator
from tests.fakes import FakeAdapter, FakePayer, gpu, offer, seed, spec, until, working
from tests.integration.market.test_faults import adapter
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import fast, market, sign_in

# Both of an account that never paid may run at once: what is asked here is who makes room.
# A market that starts again, and the provider's way back to it, take what time they take.
LONG = fast(notice_ms=120_000, starts_in_turn=False, resume_window_ms=120_000)
SHORT = fast(notice_ms=300)


def wants(devices: int = 1, **policy: Any) -> JobSpec:
    """A job for whole devices that waits when it finds none."""
    needs = Resources(Range(1000), Range(256), Range(0), GpuNeed(count=Range(devices, devices)))
    rules = Policy(**{"max_duration_ms": 60_000, "queue": True} | policy)
    return spec(resources=(needs,), policy=rules, price=Price(budget=50_000_000))


@asynccontextmanager
async def two_accounts(tmp_path: Any, devices: int, settings: Settings, granted: int = 5):
    """A market with one host; "low" and "high" are signed in, and "high" may ask for priority."""
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, settings) as (url, run):
        make = adapter("host", gpus=tuple(gpu(at) for at in range(devices)))
        host = make(url)
        async with (
            httpx.AsyncClient(base_url=url, timeout=30) as low,
            httpx.AsyncClient(base_url=url, timeout=30) as high,
            working(host) as tasks,
        ):
            await sign_in(low, seed("low"))
            await sign_in(high, seed("high"))

            async def listed():
                return (await low.get("/v1/offers")).json()["items"]

            await until(listed)
            if granted:
                await operator.grant_priority(run.market, seed("high").key_hash.hex(), granted)
            yield low, high, host, run, tasks


async def post(client: httpx.AsyncClient, who: str, job: JobSpec, **more: Any):
    session = Signer(os.urandom(32))
    answer = await client.post("/v1/jobs", json=body(job, session, seed(who), **more))
    assert answer.status_code == 201, answer.text
    return answer.json(), session


async def started(client: httpx.AsyncClient, host: FakeAdapter, job: str, session: Signer) -> str:
    view = await quoted(client, job)
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: host.leases[lease].signed)
    await host.progress(lease, "STARTED")
    await state(client, job, "RUNNING")
    return lease


async def kinds(client: httpx.AsyncClient, job: str) -> list[str]:
    found = await client.get(f"/v1/jobs/{job}/history", params={"limit": 200})
    return [event["kind"] for event in found.json()["items"]]


async def came_of(run: Any, job: str, *wanted: PreemptionState) -> Preemption:
    async def look():
        plan = await run.market.store.get(Preemption, job)
        return plan if plan is not None and plan.state in wanted else None

    return await until(look)


def test_a_higher_priority_is_placed_after_a_notice_and_the_victim_comes_back(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 1, SHORT) as (low, high, host, run, tasks):
            spares = [Signer(os.urandom(32)), Signer(os.urandom(32))]
            again = wants(retry_on=("preempted",), retry_max=2)
            view, session = await post(
                low, "low", again, spares=[key.verify_key.hex() for key in spares]
            )
            victim = view["id"]
            first = await started(low, host, victim, session)
            payer = FakePayer(str(low.base_url), {session.verify_key: session})
            tasks.start_soon(payer.socket.run)
            await until(lambda: payer.subscribed)
            receipt = await host.tick(first)
            await until(lambda: host.paid(session.verify_key) == receipt.channel_owed)

            view, key = await post(high, "high", wants(priority=5))
            assert view["state"] == "QUEUED"
            await until(lambda: first in host.stops)
            assert (await kinds(low, victim))[-2:] == ["NOTICE", "STOPPING"]
            assert await came_of(run, view["id"], PreemptionState.STOPPING)
            # Until the victim has really gone, nobody has its place: not the job, and not a
            # newcomer.
            newcomer, _ = await post(low, "low", wants())
            assert newcomer["state"] == "QUEUED"
            assert (await state(high, view["id"], "QUEUED"))["quote"] is None
            await host.finish(first, "PREEMPTED", 143)
            urgent = await started(high, host, view["id"], key)
            await came_of(run, view["id"], PreemptionState.USED)

            waiting = await state(low, victim, "QUEUED")
            assert (waiting["reason"], waiting["spent"]) == ("PREEMPTED", receipt.lease_owed)
            await low.post(f"/v1/jobs/{newcomer['id']}/stop")
            # Its place comes back when the other's is done: in its turn, on what is left of the
            # budget.
            await host.finish(urgent)
            back = await state(low, victim, "QUOTED")
            assert back["quote"]["lease"] != first
            ceiling = 60 * 100 + 1
            assert back["quote"]["ceiling"] == min(ceiling, 50_000_000 - receipt.lease_owed)
            await started(low, host, victim, spares[0])
            notes = await run.market.store.find(Audit, action="preempt")
            assert [note.subject for note in notes] == [view["id"]]
            payer.socket.stopped = True

    anyio.run(go)


@pytest.mark.prove
def test_without_retry_the_victim_ends_and_says_why(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 1, SHORT) as (low, high, host, _, _):
            view, session = await post(low, "low", wants())
            lease = await started(low, host, view["id"], session)
            urgent, key = await post(high, "high", wants(priority=1))
            await until(lambda: lease in host.stops)
            await host.finish(lease, "PREEMPTED", 143)
            await host.progress(lease, "SETTLED")
            ended = await state(low, view["id"], "ENDED")
            assert (ended["reason"], ended["spent"]) == ("PREEMPTED", 0)
            await started(high, host, urgent["id"], key)

    anyio.run(go)


@pytest.mark.prove
def test_a_consumer_that_cancels_while_it_is_preempted_does_not_begin_again(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 1, SHORT) as (low, high, host, _, _):
            again = wants(retry_on=("preempted",), retry_max=2)
            view, session = await post(low, "low", again)
            lease = await started(low, host, view["id"], session)
            await post(high, "high", wants(priority=1))
            await until(lambda: lease in host.stops)
            await low.post(f"/v1/jobs/{view['id']}/stop")
            await host.finish(lease, "PREEMPTED", 143)
            await host.progress(lease, "SETTLED")
            ended = await state(low, view["id"], "ENDED")
            assert ended["reason"] == "CANCELLED"

    anyio.run(go)


def test_a_priority_that_nobody_granted_is_refused(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 1, LONG, granted=0) as (low, high, host, run, _):
            view, session = await post(low, "low", wants())
            await started(low, host, view["id"], session)
            asked = body(wants(priority=1), Signer(os.urandom(32)), seed("high"))
            for path, question in (("/v1/jobs", asked), ("/v1/quotes", {"spec": asked["spec"]})):
                answer = await high.post(path, json=question)
                assert answer.status_code == 403, answer.text
                assert answer.json()["code"] == "PRIORITY_NOT_GRANTED"
                assert answer.json()["fields"]["granted"] == 0
            account = seed("high").key_hash.hex()
            await operator.grant_priority(run.market, account, 3)
            answer = await high.post("/v1/jobs", json=body(wants(priority=4), Signer(os.urandom(32)),
                                                           seed("high")))  # fmt: skip
            assert answer.json()["fields"]["granted"] == 3
            # A grant is for the one account, and it ends as it began.
            assert (await low.post("/v1/jobs", json=asked)).json()["code"] == "PRIORITY_NOT_GRANTED"
            await operator.grant_priority(run.market, account, 0)
            answer = await high.post("/v1/jobs", json=asked)
            assert answer.json()["code"] == "PRIORITY_NOT_GRANTED"
            try:
                await operator.grant_priority(run.market, "ab" * 28, 3)
            except NotFound:
                pass
            else:
                raise AssertionError("granted to nobody")

    anyio.run(go)


@pytest.mark.prove
def test_a_grant_taken_back_makes_nobody_go_any_more(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 1, LONG) as (low, high, host, run, _):
            account = seed("high").key_hash.hex()
            view, session = await post(low, "low", wants())
            waiting, _ = await post(low, "low", wants())
            assert waiting["state"] == "QUEUED"
            urgent, _ = await post(high, "high", wants(priority=5))
            await operator.grant_priority(run.market, account, 4)
            # The quoted lease does not run yet, so nobody could be given notice before this.
            await started(low, host, view["id"], session)
            for _ in range(3):
                await preempt.turn(run.market)
            assert await run.market.store.get(Preemption, urgent["id"]) is None
            assert "NOTICE" not in await kinds(low, view["id"])

    anyio.run(go)


@pytest.mark.prove
def test_equals_wait_and_a_small_consumer_keeps_its_place(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 4, LONG) as (low, high, host, run, _):
            rich = seed("rich")
            async with httpx.AsyncClient(base_url=low.base_url, timeout=30) as other:
                await sign_in(other, rich)
                small, session = await post(low, "low", wants(1))
                kept = await started(low, host, small["id"], session)
                large, key = await post(other, "rich", wants(3))
                gone = await started(other, host, large["id"], key)
                urgent, _ = await post(high, "high", wants(1, priority=5))
                plan = await came_of(run, urgent["id"], PreemptionState.NOTICE)
                # A third of the market is fair for three: the one with a quarter of it is left
                # alone.
                assert plan.victims == [gone] and kept not in plan.victims
                view = (await other.get(f"/v1/jobs/{large['id']}")).json()
                assert "higher priority" in view["message"]

    anyio.run(go)


@pytest.mark.prove
def test_a_notice_is_taken_back_when_room_is_found_without_it(tmp_path) -> None:
    async def go() -> None:
        async with two_accounts(tmp_path, 2, LONG) as (low, high, host, run, _):
            leases: list[tuple[str, str]] = []
            for _ in range(2):
                view, session = await post(low, "low", wants())
                leases.append((view["id"], await started(low, host, view["id"], session)))
            urgent, key = await post(high, "high", wants(priority=5))
            plan = await came_of(run, urgent["id"], PreemptionState.NOTICE)
            told = next(job for job, lease in leases if lease in plan.victims)
            spared = next(lease for _, lease in leases if lease not in plan.victims)
            await host.finish(spared)  # by itself: the job that was told may stay
            await started(high, host, urgent["id"], key)
            await came_of(run, urgent["id"], PreemptionState.USED, PreemptionState.WITHDRAWN)

            async def taken_back():
                return "NOTICE_WITHDRAWN" in await kinds(low, told)

            await until(taken_back)
            assert (await low.get(f"/v1/jobs/{told}")).json()["message"] == ""
            assert not host.stops

    anyio.run(go)


@pytest.mark.prove
def test_room_that_nobody_uses_is_given_back_and_held_against_the_account(tmp_path) -> None:
    async def go() -> None:
        settings = fast(notice_ms=300, quote_ttl_ms=6_000)
        async with two_accounts(tmp_path, 1, settings) as (low, high, host, run, _):
            view, session = await post(low, "low", wants())
            lease = await started(low, host, view["id"], session)
            urgent, _ = await post(high, "high", wants(priority=5))
            await until(lambda: lease in host.stops)
            await host.finish(lease, "PREEMPTED", 143)
            assert (await state(high, urgent["id"], "ENDED"))["reason"] == "QUOTE_EXPIRED"
            await came_of(run, urgent["id"], PreemptionState.WASTED)
            # The next one of that account waits like anybody else.
            view, session = await post(low, "low", wants())
            lease = await started(low, host, view["id"], session)
            second, _ = await post(high, "high", wants(priority=5))
            assert second["state"] == "QUEUED"
            for _ in range(3):
                await preempt.turn(run.market)
            assert await run.market.store.get(Preemption, second["id"]) is None

    anyio.run(go)


def test_a_market_that_starts_again_carries_the_notice_on(tmp_path) -> None:
    async def go() -> None:
        key, session = Signer(os.urandom(32)), Signer(os.urandom(32))
        provider = seed("host")
        made = offer(provider, (gpu(0),))
        async with two_accounts(tmp_path, 1, LONG) as (low, high, host, run, _):
            view, session = await post(low, "low", wants())
            lease = await started(low, host, view["id"], session)
            urgent, key = await post(high, "high", wants(priority=5))
            plan = await came_of(run, urgent["id"], PreemptionState.NOTICE)
            assert plan.victims == [lease]
            kept = host.leases
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, LONG) as (url, run):
            host = FakeAdapter(url, provider, made)
            host.leases = kept
            async with (
                httpx.AsyncClient(base_url=url, timeout=30) as high,
                httpx.AsyncClient(base_url=url, timeout=30) as low,
                working(host),
            ):
                await sign_in(high, seed("high"))
                await sign_in(low, seed("low"))
                await until(lambda: plan.job in run.market.directory.reservations)
                await host.finish(lease)
                # What it gives back is the job's, though others wait longer by now.
                await started(high, host, plan.job, key)
                await came_of(run, plan.job, PreemptionState.USED)

    anyio.run(go)
