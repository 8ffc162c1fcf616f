"""Two market processes over one PostgreSQL: everything crosses, nothing is leased twice, and a killed
matcher is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from marketplace.domain.job import GpuNeed, Range, Resources
from marketplace.domain.keys import Signer
from marketplace.service.decide import HOLDING
from marketplace.service.records import Lease, Lock
from marketplace.store.database import Database
from tests.fakes import (
    FakeAdapter,
    FakeClock,
    FakeIds,
    FakePayer,
    gpu,
    offer,
    seed,
    spec,
    until,
    working,
)
from tests.integration.support_market import postgres, sign_in
from tests.integration.test_market_spine import body, quoted, sign, state

pytestmark = [pytest.mark.postgres, pytest.mark.prove]


@contextmanager
def process(db: str, folder):
    """(url, popen) of one market process."""
    command = [sys.executable, "-m", "tests.integration.support_serve", db, str(folder)]
    with open(os.devnull, "w") as null:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=null, text=True)
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line, f"the market ended with {running.poll()}"
        yield json.loads(line)["url"], running
    finally:
        running.kill()
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


def test_two_processes_share_one_market(tmp_path) -> None:
    with postgres() as db, process(db, tmp_path / "a") as a, process(db, tmp_path / "b") as b:
        anyio.run(_cross, db, a, b)


async def _cross(db: str, a: Any, b: Any) -> None:
    (url_a, popen_a), (url_b, popen_b) = a, b
    provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
    # The consumer and its payer are at A, the adapter at B; A was first and matches.
    adapter = FakeAdapter(url_b, provider, offer(provider, tuple(gpu(i) for i in range(8))))
    payer = FakePayer(url_a, {session.verify_key: session})
    async with (
        httpx.AsyncClient(base_url=url_a, timeout=30) as at_a,
        httpx.AsyncClient(base_url=url_b, timeout=30) as at_b,
        working(adapter, payer),
    ):
        await sign_in(at_a, consumer)
        at_b.headers["Authorization"] = at_a.headers["Authorization"]
        for client in (at_a, at_b):
            await until(lambda client=client: _free_devices(client))
        lease = await _one_job(at_a, adapter, payer, session, consumer)
        assert adapter.leases[lease].finished
        await _load(db, at_a, at_b, consumer)
        await _takeover(db, at_a, at_b, popen_a, popen_b, consumer, adapter)


async def _free_devices(client: httpx.AsyncClient) -> bool:
    items = (await client.get("/v1/devices")).json()["items"]
    return bool(items) and items[0]["free"] == 8


async def _one_job(client, adapter, payer, session, consumer) -> str:
    posted = await client.post("/v1/jobs", json=body(spec(), session, consumer))
    assert posted.status_code == 201, posted.text
    view = await quoted(client, posted.json()["id"])
    lease = await sign(client, view, session, "ab" * 32)
    await until(lambda: adapter.leases[lease].signed)
    await adapter.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    for _ in range(3):
        receipt = await adapter.tick(lease)
        await until(lambda due=receipt.channel_owed: adapter.paid(session.verify_key) == due)
    await adapter.finish(lease)
    await until(lambda: any(r.final for r in payer.receipts))
    ended = await state(client, view["id"], "ENDED")
    assert ended["spent"] == 15
    return lease


def _gpu_job(consumer: Signer) -> dict[str, Any]:
    wants = (Resources(Range(100), Range(128), Range(0), GpuNeed()),)
    return body(spec(resources=wants), Signer(os.urandom(32)), consumer)


async def _load(db: str, at_a, at_b, consumer: Signer) -> None:
    """More jobs than devices, through both at once: each device is held once at most."""
    answers: list[httpx.Response] = []

    async def one(client: httpx.AsyncClient) -> None:
        answers.append(await client.post("/v1/jobs", json=_gpu_job(consumer)))

    async with anyio.create_task_group() as tasks:
        for i in range(24):
            tasks.start_soon(one, (at_a, at_b)[i % 2])
    codes = Counter(answer.status_code for answer in answers)
    assert set(codes) <= {201, 422}, [a.text for a in answers if a.status_code not in (201, 422)]
    assert codes[201] == 8, codes
    assert await _most_holders(db) == 1


async def _most_holders(db: str) -> int:
    store = Database(db, "judge", FakeClock(), FakeIds())
    try:
        held = await store.find(Lease, state=HOLDING)
        devices = Counter(uuid for lease in held for uuid in lease.gpus)
        return max(devices.values())
    finally:
        store.close()


async def _takeover(db, at_a, at_b, popen_a, popen_b, consumer, adapter) -> None:
    """Kill the matcher: the other takes over within five seconds, and no device is held twice."""
    jobs = (await at_b.get("/v1/jobs", params={"state": "QUOTED"})).json()["items"]
    assert len(jobs) == 8
    for job in jobs[:2]:
        stopped = await at_b.post(f"/v1/jobs/{job['id']}/stop")
        assert stopped.status_code == 200, stopped.text
    store = Database(db, "judge", FakeClock(), FakeIds())
    lock = await store.get(Lock, "matcher")
    matching_a = "tally_matching 1.0" in (await at_a.get("/metrics")).text
    victim, left = (popen_a, at_b) if matching_a else (popen_b, at_a)
    victim.kill()
    await anyio.to_thread.run_sync(victim.wait)
    killed = time.monotonic()
    adapter.market = str(left.base_url)
    adapter.socket.url = str(left.base_url).rstrip("/").replace("http", "ws", 1) + "/v1/provider"

    async def taken() -> bool:
        now = await store.get(Lock, "matcher")
        return now is not None and lock is not None and now.epoch > lock.epoch

    await until(taken)
    took = time.monotonic() - killed
    print(f"takeover after {took:.1f} s")
    answers: list[httpx.Response] = []

    async def placed() -> bool:
        answers.append(await left.post("/v1/jobs", json=_gpu_job(consumer)))
        return answers[-1].status_code == 201

    await until(placed)
    assert await _most_holders(db) == 1
    store.close()
