"""Two market processes over one PostgreSQL: everything crosses, nothing is leased twice, and a
killed matcher is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import httpx
import pytest
import websockets
import websockets.asyncio.client
import websockets.asyncio.server
from websockets.typing import Subprotocol

from marketplace.domain.keys import Signer
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import GpuNeed, Port, Range, Resources
from marketplace.market.base.records import Lease, Lock
from marketplace.market.core.ending import HOLDING
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
from tests.integration.market.test_ports import Bridge, page
from tests.integration.market.test_shell import Host, address
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import postgres, sign_in

pytestmark = [pytest.mark.postgres, pytest.mark.prove]


@contextmanager
def process(db: str, folder):
    """(url, popen) of one market process."""
    command = [sys.executable, "-m", "tests.integration.support.serve", db, str(folder)]
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
    posted = [answer.json()["id"] for answer in answers if answer.status_code == 201]

    async def told() -> list[dict[str, Any]]:
        """Who is at the other process hears within some seconds that it found no place, or later."""
        views = [(await at_a.get(f"/v1/jobs/{job}")).json() for job in posted]
        return views if {view["state"] for view in views} <= {"QUOTED", "ENDED"} else []

    views = await until(told)
    assert Counter(view["state"] for view in views)["QUOTED"] == 8, views
    assert {view["reason"] for view in views if view["state"] == "ENDED"} <= {"NO_MATCH"}
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

    async def all_quoted() -> list[dict[str, Any]]:
        found = (await at_b.get("/v1/jobs", params={"state": "QUOTED"})).json()["items"]
        return found if len(found) == 8 else []

    jobs = await until(all_quoted)
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


def test_what_needs_the_adapters_connection_is_answered_by_the_process_that_holds_it(
    tmp_path,
) -> None:
    with postgres() as db, process(db, tmp_path / "a") as a, process(db, tmp_path / "b") as b:
        anyio.run(_passed_on, a, b)


OUTPUT = os.urandom(600_000)


class Workload:
    """The fake adapter's side: a shell that echoes, one output, and its ports through *bridge*."""

    def __init__(self, fake: FakeAdapter, bridge: Bridge) -> None:
        self.fake, self.bridge = fake, bridge

    async def __call__(self, message: wire.Message) -> None:
        match message:
            case wire.ExecAsked(lease, call, command):
                said = " ".join(command).encode()
                await self.fake.send(wire.ExecDone(lease, call, 7, said))
            case wire.BlobWanted(lease, sha256, offset, length):
                data = OUTPUT[offset : offset + length]
                await self.fake.send(wire.BlobPart(lease, sha256, offset, len(OUTPUT), data))
            case _:
                await self.bridge(message)


async def _seat_elsewhere(
    client: httpx.AsyncClient, job: str, adapter: FakeAdapter, tasks: Any
) -> None:
    """A terminal of a page's, whose token came after the handshake: it goes with what is passed on."""
    adapter.handler = Host(adapter, tasks)
    token = client.headers["Authorization"].removeprefix("Bearer ")
    at, shown = address(client, job, "command=echo&command=hello"), b""
    async with websockets.connect(at, subprotocols=[Subprotocol("tally.terminal")]) as seat:
        await seat.send(json.dumps({"token": token}))
        with pytest.raises(websockets.ConnectionClosedOK):
            while True:
                shown += await seat.recv(decode=False)
    assert b"hello" in shown


async def _passed_on(a: Any, b: Any) -> None:
    """The adapter is at B; its consumer asks A for everything that only B's socket can answer."""
    (url_a, _), (url_b, popen_b) = a, b
    provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
    adapter = FakeAdapter(url_b, provider, offer(provider))
    seen: list[bytes] = []

    async def echo(socket) -> None:
        async for message in socket:
            await socket.send(message)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with (
        httpx.AsyncClient(base_url=url_a, timeout=30) as client,
        websockets.asyncio.server.serve(echo, "127.0.0.1", 0) as sockets,
        listener,
        working(adapter) as tasks,
    ):
        pages = Bridge(adapter, tasks, listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.start_soon(listener.serve, lambda stream: page(stream, seen))
        await sign_in(client, consumer)
        wanted = spec(kind="service", ports=(Port(8888),), secrets=("TOKEN",))
        await until(lambda: _listed(client))
        posted = await client.post("/v1/jobs", json=body(wanted, session, consumer))
        assert posted.status_code == 201, posted.text
        job = posted.json()["id"]
        view = await quoted(client, job)
        lease = await _sign_with_secret(client, view, session)
        await until(lambda: adapter.leases[lease].signed)
        told = [m for m in adapter.asked if isinstance(m, wire.LeaseSigned)]
        assert told[0].secrets == {"TOKEN": b"sealed"}
        adapter.handler = Workload(adapter, pages)
        await adapter.progress(lease, "STARTED")
        await state(client, job, "RUNNING")

        done = await client.post(f"/v1/jobs/{job}/exec", json={"command": ["say", "hello"]})
        assert (done.status_code, done.json()["output"]) == (200, "say hello"), done.text
        await _seat_elsewhere(client, job, adapter, tasks)
        adapter.handler = Workload(adapter, pages)
        assert done.json()["exit_code"] == 7
        path = f"/p/{job}/8888"
        answer = await client.get(f"{path}/a b?x=1")
        assert (answer.status_code, answer.text) == (200, "hello"), answer.text
        assert "sandbox" in answer.headers["Content-Security-Policy"]
        asked = seen[0].decode().lower()
        assert asked.startswith("get /a%20b?x=1 http/1.1") and "authorization" not in asked
        async with httpx.AsyncClient(base_url=url_a) as nobody:
            assert (await nobody.get(f"{path}/")).status_code == 401
        # At its own origin, which is told by the host that was dialled and not by the process's own.
        (own,) = (await client.get(f"/v1/jobs/{job}")).json()["ports"]
        host = urlsplit(own["url"]).netloc
        answer = await client.get("/a%2Fb?x=1", headers={"Host": host})
        assert (answer.status_code, answer.text) == (200, "hello"), answer.text
        assert "Content-Security-Policy" not in answer.headers
        asked = seen[1].decode().lower()
        assert asked.startswith("get /a%2fb?x=1 http/1.1") and f"host: {host}" in asked
        assert "authorization" not in asked and "tally" not in asked
        made = await client.put("/v1/services/web", json={"hold_ms": 0})
        service = urlsplit(made.json()["url"]).netloc
        put = await client.put(f"/v1/services/web/replicas/{job}", json={"port": 8888})
        assert put.status_code == 200, put.text
        answer = await client.post("/a%2Fb", headers={"Host": service}, content=b"x")
        assert (answer.status_code, answer.text) == (200, "hello"), answer.text
        asked = seen[2].decode().lower()
        assert f"host: {service}" in asked and "tally" not in asked
        pages.ports.port = next(iter(sockets.sockets)).getsockname()[1]
        token = client.headers["Authorization"].removeprefix("Bearer ")
        at = url_a.replace("http", "ws", 1)
        async with websockets.asyncio.client.connect(f"{at}{path}/ws?token={token}") as socket:
            for message in ("text", b"bytes", "x" * 200_000):
                await socket.send(message)
                assert await socket.recv() == message
        dialled = {"host": client.base_url.host, "port": client.base_url.port, "proxy": None}
        for name in (host, service):
            headers = {"Authorization": f"Bearer {token}", "Origin": f"http://{name}"}
            async with websockets.asyncio.client.connect(
                f"ws://{name}/ws", additional_headers=headers, **dialled
            ) as socket:
                await socket.send("through two")
                assert await socket.recv() == "through two"

        sha256 = hashlib.sha256(OUTPUT).hexdigest()
        await adapter.send(wire.OutputReady(lease, "/app/out", sha256, len(OUTPUT)))
        await adapter.send(wire.Telemetry(lease, 5, {"gpu": 50}))
        await until(lambda: _some(client, f"/v1/jobs/{job}/outputs"))
        fetched = await client.get(f"/v1/jobs/{job}/outputs/{sha256}")
        assert fetched.status_code == 200 and fetched.content == OUTPUT
        await until(lambda: _some(client, f"/v1/jobs/{job}/telemetry"))

        popen_b.kill()  # before anybody noticed: there is nobody to pass it on to
        await anyio.to_thread.run_sync(popen_b.wait)
        gone = await client.post(f"/v1/jobs/{job}/exec", json={"command": ["x"]})
        assert gone.status_code == 503
        assert gone.json()["code"] in ("ELSEWHERE", "PROVIDER_OFFLINE"), gone.text
        gone = await client.get("/", headers={"Host": service})
        assert gone.json()["code"] in ("NO_REPLICA", "REPLICA_LOST"), gone.text


async def _listed(client: httpx.AsyncClient) -> bool:
    return await _some(client, "/v1/offers")


async def _some(client: httpx.AsyncClient, path: str) -> bool:
    return bool((await client.get(path)).json()["items"])


async def _sign_with_secret(
    client: httpx.AsyncClient, view: dict[str, Any], session: Signer
) -> str:
    quote = view["quote"]
    signature = session.sign(bytes.fromhex(quote["terms"])).hex()
    answer = await client.post(
        f"/v1/leases/{quote['lease']}/sign",
        json={
            "session_signature": signature,
            "channel_tx": "ab" * 32,
            "secrets": {"TOKEN": b"sealed".hex()},
        },
    )
    assert answer.status_code == 200, answer.text
    return str(quote["lease"])
