"""A service's address: balanced over its replicas, let in like a port, and nothing lost that could
be asked again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from marketplace.domain.app_origin import Place
from marketplace.domain.work.parts import Placement, Port
from marketplace.market.base.records import Job
from marketplace.process.main import Running
from tests.fakes import FakeAdapter, seed, spec, until
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_ports import Bridge
from tests.integration.market.test_spine import quoted, sign, state
from tests.integration.support.market import fast, sign_in

SETTINGS: Final = fast(starts_in_turn=False)  # of a new account, which all of them are


@dataclass
class Server:
    """A replica's own: it says its name, once *gate* lets it, and keeps what it was asked."""

    name: str
    gate: anyio.Event = field(default_factory=anyio.Event)
    heads: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        """One connection, for as long as it is used."""
        async with stream:
            data = b""
            while True:
                while b"\r\n\r\n" not in data:
                    try:
                        data += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                head, _, data = data.partition(b"\r\n\r\n")
                lines = [line.lower() for line in head.decode().split("\r\n")]
                told = [line[15:] for line in lines if line.startswith("content-length:")]
                while told and len(data) < int(told[0]):
                    data += await stream.receive()
                length = int(told[0]) if told else 0
                self.heads.append(head.decode())
                self.bodies.append(data[:length])
                data = data[length:]
                await self.gate.wait()
                said = self.name.encode()
                await stream.send(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said
                )
                if "connection: close" in lines:
                    return


@dataclass
class World:
    """A market where each of *servers* is behind a provider of its own, and service `web`."""

    client: httpx.AsyncClient
    market: Running
    tasks: anyio.abc.TaskGroup
    providers: list[FakeAdapter]
    servers: list[Server]
    jobs: list[str] = field(default_factory=list[str])
    url: str = ""

    @property
    def host(self) -> str:
        """The service's ``Host``."""
        return urlsplit(self.url).netloc

    async def put(self, name: str = "web", **how: Any) -> dict[str, Any]:
        """The service as it is then."""
        answer = await self.client.put(f"/v1/services/{name}", json=how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def rotate(self, at: int, serving: bool = True) -> None:
        """The replica at *at* into rotation, or out of it."""
        path = f"/v1/services/web/replicas/{self.jobs[at]}"
        answer = await self.client.put(path, json={"port": 8888, "serving": serving})
        assert answer.status_code == 200, answer.text

    async def load(self) -> dict[str, int]:
        """What passes to it."""
        return (await self.client.get("/v1/services/web/load")).json()

    @asynccontextmanager
    async def visitor(self, **headers: str) -> AsyncGenerator[httpx.AsyncClient]:
        """Somebody who has nothing yet."""
        told = {"Host": self.host, **headers}
        base = self.client.base_url
        async with httpx.AsyncClient(base_url=base, timeout=60, headers=told) as made:
            yield made

    def lose(self, at: int) -> Callable[[], Awaitable[None]]:
        """Its provider is gone, as if it were killed."""
        one = self.providers[at]

        async def cut() -> None:
            one.socket.stopped = True
            assert one.socket.live is not None
            one.socket.live.transport.abort()

        return cut


@asynccontextmanager
async def world(folder: Path, count: int = 3, **how: Any) -> AsyncGenerator[World]:
    makers = [adapter(f"provider-{at}") for at in range(count)]
    servers = [Server(f"server-{at}") for at in range(count)]
    async with at_market(folder, *makers, settings=SETTINGS) as (client, market, tasks, *fakes):
        made = World(client, market, tasks, fakes, servers)
        made.url = (await made.put(**{"auth": "public", **how}))["url"]
        for one, server in zip(fakes, servers, strict=True):
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            tasks.start_soon(_served, listener, server)
            made.jobs.append(await replica(client, one, tasks, port))
            server.gate.set()
        yield made


async def _served(listener: Any, server: Server) -> None:
    async with listener:
        await listener.serve(server)


async def replica(client: httpx.AsyncClient, one: FakeAdapter, tasks: Any, port: int) -> str:
    """A running job at this provider whose ports are *port* of this machine."""
    where = Placement(providers=(one.offer.provider,))
    ports = (Port(8888), Port(9999))
    view, session = await post(client, spec(kind="service", ports=ports, placement=where))
    view = await quoted(client, view["id"])
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: one.leases[lease].signed)
    one.handler = Bridge(one, tasks, port)
    await one.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    return view["id"]


def test_the_one_with_the_fewest_under_way_is_asked(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.visitor() as visitor:
            for at in range(3):
                await w.rotate(at)
            said = [(await visitor.get("/")).text for _ in range(9)]
            assert Counter(said) == {f"server-{at}": 3 for at in range(3)}
            w.servers[0].gate = anyio.Event()  # one is slow
            slow: list[str] = []
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    slow.append((await visitor.get("/slow")).text)

                tasks.start_soon(ask)
                tasks.start_soon(ask)
                tasks.start_soon(ask)
                await until(lambda: len(slow) == 2)
                said = [(await visitor.get("/")).text for _ in range(6)]
                assert set(said) == {"server-1", "server-2"}
                await until(lambda: _told(w, busy=1))
                w.servers[0].gate.set()
            assert sorted(slow) == ["server-0", "server-1", "server-2"]
            await until(lambda: _told(w, busy=0, requests=18, failed=0))
            shown = (await w.client.get("/v1/services/web")).json()
            assert [one["serving"] for one in shown["replicas"]] == [True] * 3
            assert {one["job"] for one in shown["replicas"]} == set(w.jobs)

    anyio.run(run)


def test_no_two_that_come_at_once_are_given_to_one_while_another_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the store is slow to say whether the replica that was chosen runs."""

    async def run() -> None:
        async with world(tmp_path) as w, w.visitor() as visitor:
            for at in range(3):
                await w.rotate(at)
                w.servers[at].gate = anyio.Event()
            store, get = w.market.market.store, w.market.market.store.get
            read = [anyio.Event() for _ in range(3)]
            begun: list[anyio.Event] = []

            async def slowly(kind: Any, *key: object) -> Any:
                if kind is Job:
                    begun.append(read[len(begun)])
                    await begun[-1].wait()
                return await get(kind, *key)

            def seen() -> int:
                return sum(len(one.heads) for one in w.servers)

            monkeypatch.setattr(store, "get", slowly)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visitor.get, "/")
                await until(lambda: len(begun) == 1)
                tasks.start_soon(visitor.get, "/")
                await until(lambda: len(begun) == 2)
                read[0].set()
                await until(lambda: seen() == 1)
                tasks.start_soon(visitor.get, "/")
                await until(lambda: len(begun) == 3)
                read[1].set()
                read[2].set()
                await until(lambda: seen() == 3)
                assert [len(one.heads) for one in w.servers] == [1, 1, 1]
                for one in w.servers:
                    one.gate.set()

    anyio.run(run)


async def _told(w: World, **wanted: int) -> bool:
    load = await w.load()
    return {name: load[name] for name in wanted} == wanted


def test_who_is_out_of_rotation_ends_what_it_began(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 2) as w, w.visitor() as visitor:
            await w.rotate(0)
            w.servers[0].gate = anyio.Event()
            said: list[str] = []
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    said.append((await visitor.post("/", content=b"once")).text)

                tasks.start_soon(ask)
                await until(lambda: w.servers[0].heads)
                await w.rotate(1)
                await w.rotate(0, serving=False)
                assert {(await visitor.get("/")).text for _ in range(4)} == {"server-1"}
                assert said == []
                w.servers[0].gate.set()
            assert said == ["server-0"]
            assert w.servers[0].bodies == [b"once"]

    anyio.run(run)


def test_a_lost_provider_loses_no_request_that_may_be_asked_again(tmp_path: Path) -> None:
    """All three are at it when one is killed; what may have been done is told, not done twice."""

    async def run() -> None:
        async with world(tmp_path) as w, w.visitor() as visitor:
            for at in range(3):
                await w.rotate(at)
                w.servers[at].gate = anyio.Event()
            answers: list[httpx.Response] = []

            async def ask(method: str, **more: Any) -> None:
                answers.append(await visitor.request(method, "/", **more))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask, "GET")
                await until(lambda: all(len(one.heads) == 1 for one in w.servers))
                for _ in range(3):
                    tasks.start_soon(lambda: ask("PUT", content=b"whole"))
                await until(lambda: all(len(one.heads) == 2 for one in w.servers))
                once = {"Idempotency-Key": "k"}
                for _ in range(3):
                    tasks.start_soon(lambda: ask("POST", content=b"keyed", headers=once))
                await until(lambda: all(len(one.heads) == 3 for one in w.servers))
                for _ in range(3):
                    tasks.start_soon(lambda: ask("POST", content=b"once"))
                await until(lambda: all(len(one.heads) == 4 for one in w.servers))
                await w.lose(0)()
                await until(lambda: sum(len(one.heads) for one in w.servers) == 12 + 3)
                for one in w.servers:
                    one.gate.set()
            codes = Counter(answer.status_code for answer in answers)
            assert codes == {200: 11, 503: 1}
            refused = next(answer for answer in answers if answer.status_code == 503)
            assert refused.json()["code"] == "REPLICA_LOST" and refused.json()["remedy"]
            assert sum(one.bodies.count(b"once") for one in w.servers) == 3  # not one of them twice
            assert sum(one.bodies.count(b"keyed") for one in w.servers) == 4
            assert sum(one.bodies.count(b"whole") for one in w.servers) == 4
            # Nothing was sent to one that is known to be away: any request goes elsewhere.
            for _ in range(4):
                assert (await visitor.post("/", content=b"after")).status_code == 200
            assert w.servers[0].bodies.count(b"after") == 0
            await until(lambda: _told(w, failed=1))

    anyio.run(run)


def test_a_request_waits_for_the_first_replica_and_its_owner_hears_of_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 1, hold_ms=60_000) as w, w.visitor() as visitor:
            said: list[str] = []
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    said.append((await visitor.post("/", content=b"first")).text)

                async def hear() -> None:
                    heard = await w.client.get("/v1/services/web/load?wait_s=30", timeout=40)
                    assert heard.json()["held"] == 1
                    await w.rotate(0)

                with anyio.fail_after(20):  # not the thirty seconds
                    tasks.start_soon(hear)
                    await anyio.sleep(0.1)
                    tasks.start_soon(ask)
                    while not said:  # noqa: ASYNC110
                        await anyio.sleep(0.05)
            assert said == ["server-0"]
            await w.rotate(0, serving=False)
            await w.put(auth="public", hold_ms=300)
            page = await visitor.get("/", headers={"Accept": "text/html"})
            assert page.status_code == 503 and "It starts" in page.text
            assert page.headers["Retry-After"]
            refused = await visitor.get("/")
            assert (refused.status_code, refused.json()["code"]) == (503, "NO_REPLICA")

    anyio.run(run)


def test_a_browser_stays_with_its_replica_where_that_is_wanted(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, sticky=True) as w:
            for at in range(3):
                await w.rotate(at)
            async with w.visitor() as one, w.visitor() as other:
                first = (await one.get("/")).text
                assert {(await one.get("/")).text for _ in range(5)} == {first}
                others = {(await other.get("/")).text for _ in range(5)}
                assert len(others) == 1
                assert all("tally_" not in head for one in w.servers for head in one.heads)
                at = int(first[-1])
                await w.rotate(at, serving=False)
                moved = (await one.get("/")).text
                assert moved != first
                assert {(await one.get("/")).text for _ in range(5)} == {moved}

    anyio.run(run)


def test_who_is_let_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 1, auth="token") as w:
            await w.rotate(0)
            mine = w.client.headers["Authorization"]
            async with httpx.AsyncClient(base_url=w.client.base_url, timeout=30) as stranger:
                await sign_in(stranger, seed("stranger"))
                theirs = stranger.headers["Authorization"]
                path = f"/v1/services/web/replicas/{w.jobs[0]}"
                made = await stranger.put("/v1/services/web", json={})
                assert made.status_code == 200 and made.json()["url"] != w.url
                answer = await stranger.put(path, json={"port": 8888})
                assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
                assert (await stranger.get("/v1/services/web")).json()["replicas"] == []
                assert (await stranger.delete(path)).status_code == 404
            key = {"name": "x", "verbs": ["read"], "expires_at_ms": 4 * 10**12}
            reading = (await w.client.post("/v1/keys", json=key)).json()["secret"]
            async with w.visitor() as visitor:
                for headers, status in (
                    ({}, 401),
                    ({"Authorization": theirs}, 404),
                    ({"Authorization": f"Bearer {reading}"}, 403),
                    ({"Authorization": mine}, 200),
                    ({"Tally-Relayed": "1", "Tally-Replica": w.jobs[0]}, 401),
                ):
                    assert (await visitor.get("/", headers=headers)).status_code == status, headers
                assert all("uthorization" not in head for head in w.servers[0].heads)
                # The name is a part of the address.
                service = (await w.client.get("/v1/services/web")).json()["id"]
                apps = w.market.market.apps
                assert apps is not None
                bank = urlsplit(apps.origin(Place(service, 0, "bank"))).netloc
                answer = await visitor.get("/", headers={"Host": bank, "Authorization": mine})
                assert answer.status_code == 404
                # By a ticket, once; by a link, until it ends.
                made = await w.client.post("/v1/services/web/tickets")
                ticket = urlsplit(made.json()["url"])
                assert ticket.netloc == w.host
                entered = await visitor.get(f"{ticket.path}?{ticket.query}")
                assert entered.status_code == 303 and entered.cookies
                assert (await visitor.get("/")).status_code == 200
                assert "tally_" not in w.servers[0].heads[-1]
            async with w.visitor() as guest:
                assert (await guest.get(f"{ticket.path}?{ticket.query}")).status_code == 401
                made = await w.client.post("/v1/services/web/links", json={"lasts_ms": 3_600_000})
                link = urlsplit(made.json()["url"])
                assert (await guest.get(f"{link.path}?{link.query}")).status_code == 303
                assert (await guest.get("/")).status_code == 200
                port = f"/v1/jobs/{w.jobs[0]}/ports/8888/links"
                assert (await w.client.get(port)).json()["items"] == []
                name = made.json()["id"]
                listed = (await w.client.get("/v1/services/web/links")).json()["items"]
                assert [one["id"] for one in listed] == [name]
                ended = await w.client.delete(f"/v1/services/web/links/{name}")
                assert ended.status_code == 200
                assert (await guest.get("/")).status_code == 401

    anyio.run(run)


def test_what_is_no_service(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 1) as w:
            for name in ("Web", "8888", "a" * 37, "a-", "-a", "a_b"):
                answer = await w.client.put(f"/v1/services/{name}", json={})
                assert (answer.status_code, answer.json()["code"]) == (422, "MALFORMED"), name
            job = w.jobs[0]
            path = f"/v1/services/web/replicas/{job}"
            assert (await w.client.put(path, json={"port": 22})).status_code == 404
            await w.rotate(0)
            await w.put("other")
            answer = await w.client.put(f"/v1/services/other/replicas/{job}", json={"port": 8888})
            assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
            for _ in range(2):
                assert (await w.client.delete(path)).json() == {"job": job, "dropped": True}
            ended = await w.client.delete("/v1/services/web")
            assert ended.json() == {"name": "web", "ended": True}
            async with w.visitor() as visitor:
                assert (await visitor.get("/")).status_code == 404
            assert (await w.put(auth="public"))["url"] != w.url

    anyio.run(run)


def test_websockets_go_to_replicas_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 2) as w:

            async def echo(socket: ServerConnection) -> None:
                async for message in socket:
                    await socket.send(message)

            async with serve(echo, "127.0.0.1", 0) as sockets:
                port = sockets.sockets[0].getsockname()[1]
                for at, one in enumerate(w.providers):
                    assert isinstance(one.handler, Bridge)
                    one.handler.ports.port = port
                    await w.rotate(at)
                base = str(w.client.base_url).rstrip("/").replace("http", "ws", 1)
                at = f"ws://{w.host}/"
                address = urlsplit(base)
                places = {"host": address.hostname, "port": address.port}
                async with connect(at, **places) as one, connect(at, **places) as other:
                    for socket in (one, other):
                        await socket.send("here")
                        assert await socket.recv() == "here"
                    await until(lambda: _told(w, busy=2))
                    shown = (await w.client.get("/v1/services/web")).json()["replicas"]
                    assert [row["busy"] for row in shown] == [1, 1]
                async with AsyncExitStack() as many:
                    sockets = [
                        await many.enter_async_context(connect(at, **places)) for _ in range(200)
                    ]
                    for number, socket in enumerate(sockets):
                        await socket.send(str(number))
                    for number, socket in enumerate(sockets):
                        assert await socket.recv() == str(number)
                    await until(lambda: _told(w, busy=200))
                    shown = (await w.client.get("/v1/services/web")).json()["replicas"]
                    assert [row["busy"] for row in shown] == [100, 100]
                await w.lose(0)()
                async with connect(at, **places) as one:
                    await one.send("still")
                    assert await one.recv() == "still"

    anyio.run(run)
