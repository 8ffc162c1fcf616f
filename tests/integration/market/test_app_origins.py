"""A port at an origin of its own: who gets in, what passes, and what the neighbours cannot do."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import httpx
import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from marketplace.domain.app_origin import Place
from marketplace.domain.work.parts import Port
from marketplace.gateway import app_origins
from marketplace.process.main import Running
from tests.fakes import FakeAdapter, seed, spec
from tests.integration.market.test_faults import adapter, at_market, post
from tests.integration.market.test_ports import bearer, serving
from tests.integration.market.test_spine import quoted, state
from tests.integration.support.market import sign_in

HTML: Final = {"Accept": "text/html,*/*"}
HOSTILE: Final = (
    b"Set-Cookie: theirs=1; Domain=localhost; Path=/a; HttpOnly\r\n"
    b"Set-Cookie: tally_app=x; Path=/\r\nSet-Cookie: __Host-tally_app=x; Secure; Path=/\r\n"
    b"Set-Cookie: __HOST-Tally_app=x; Secure; Path=/\r\nSet-Cookie: =tally_app=x; Path=/\r\n"
    b'Clear-Site-Data: "*"\r\nStrict-Transport-Security: max-age=9; includeSubDomains\r\n'
    b"Content-Security-Policy: default-src 'self'\r\nService-Worker-Allowed: /\r\n"
    b'WWW-Authenticate: Basic realm="the workload\'s own"\r\n'
)


@dataclass
class Site:
    """A workload's server: it keeps what it was asked, and answers with hostile headers."""

    heads: list[str] = field(default_factory=list[str])
    bodies: list[int] = field(default_factory=list[int])

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        """One connection."""
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, body = data.partition(b"\r\n\r\n")
            self.heads.append(head.decode())
            length = next(
                (int(x[15:]) for x in head.decode().split("\r\n") if x.lower().startswith("content-l")),
                0,
            )  # fmt: skip
            got = len(body)
            while got < length:
                got += len(await stream.receive())
            self.bodies.append(got)
            await stream.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n"
                + HOSTILE
                + b"\r\nok"
            )


@dataclass
class World:
    """A market of which a job serves *site* at its port 8888, 9999 being another and 7777 public."""

    client: httpx.AsyncClient
    market: Running
    one: FakeAdapter
    job: str
    site: Any

    def host(self, port: int = 8888, job: str = "") -> str:
        """The ``Host`` of a port."""
        assert self.market.market.apps is not None
        return urlsplit(self.market.market.apps.origin(Place(job or self.job, port))).netloc

    @asynccontextmanager
    async def browser(
        self, port: int = 8888, host: str = "", **headers: str
    ) -> AsyncGenerator[httpx.AsyncClient]:
        """Of somebody who has nothing yet."""
        told = {"Host": host or self.host(port), **headers}
        base = self.client.base_url
        async with httpx.AsyncClient(base_url=base, timeout=30, headers=told) as made:
            yield made

    async def ticket(self, port: int = 8888, key: str = "") -> str:
        """Path and query of an entrance."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        path = f"/v1/jobs/{self.job}/ports/{port}/tickets"
        answer = await self.client.post(path, headers=headers)
        assert answer.status_code == 200, answer.text
        parts = urlsplit(answer.json()["url"])
        assert parts.netloc == self.host(port)
        return f"{parts.path}?{parts.query}"

    async def share(self, lasts_ms: int = 3_600_000, key: str = "") -> tuple[str, str]:
        """(id, path and query) of a link."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        path, body = f"/v1/jobs/{self.job}/ports/8888/links", {"lasts_ms": lasts_ms}
        answer = await self.client.post(path, json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        parts = urlsplit(answer.json()["url"])
        return answer.json()["id"], f"{parts.path}?{parts.query}"


@asynccontextmanager
async def world(tmp_path: Path, site: Any = None) -> AsyncGenerator[World]:
    shown = site or Site()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, at_market(tmp_path, adapter("one")) as (client, market, tasks, one):
        tasks.start_soon(listener.serve, shown)
        named = (Port(8888), Port(9999), Port(7777, "public"))
        job = await serving(client, one, tasks, port, named)
        yield World(client, market, one, job, shown)


def test_a_ticket_opens_its_own_port_in_one_browser_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as browser, w.browser() as thief:
            assert (await browser.get("/")).status_code == 401
            entrance = await w.ticket()
            async with w.browser(9999) as other:
                assert (await other.get(entrance)).status_code == 401  # and it is not spent by that
            for to in ("//evil.example/", "/\\evil.example", "https://evil.example"):
                assert (await browser.get(f"{entrance}&to={to}")).status_code == 422
            answer = await browser.get(f"{entrance}&to=/lab?x=1")
            assert (answer.status_code, answer.headers["location"]) == (303, "/lab?x=1")
            assert answer.headers["referrer-policy"] == "no-referrer"
            (cookie,) = answer.headers.get_list("set-cookie")
            said = {part.strip().lower().partition("=")[0] for part in cookie.split(";")}
            assert said == {"tally_app", "max-age", "path", "httponly", "samesite"}  # no domain
            assert (await browser.get("/lab?x=1")).status_code == 200
            assert (await thief.get(entrance)).status_code == 401
            assert not w.site.heads[0].count("tally_")
            kept = browser.cookies["tally_app"]
            async with w.browser(9999) as other:
                other.headers["Cookie"] = f"tally_app={kept}"
                assert (await other.get("/")).status_code == 401
            for headers in ({"Authorization": f"Bearer {kept}"}, {"Cookie": f"tally_app={kept}"}):
                async with httpx.AsyncClient(base_url=w.client.base_url) as api:
                    assert (await api.get("/v1/me", headers=headers)).status_code == 401
            await w.client.post("/v1/auth/logout")
            assert (await browser.get("/")).status_code == 401

    anyio.run(run)


def test_two_uses_of_a_ticket_at_once_let_one_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as browser:
            entrance, seen = await w.ticket(), list[int]()

            async def use() -> None:
                seen.append((await browser.get(entrance)).status_code)

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(use)
            assert sorted(seen) == [303] + 7 * [401]

    anyio.run(run)


def test_only_its_owner_gets_a_ticket_or_shares(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w:
            link, _ = await w.share()
            path = f"/v1/jobs/{w.job}/ports/8888"
            made = {"name": "k", "verbs": ["read"], "expires_at_ms": 4_000_000_000_000}
            reads = (await w.client.post("/v1/keys", json=made)).json()["secret"]
            async with httpx.AsyncClient(base_url=w.client.base_url, timeout=30) as stranger:
                for status in (401, 404):
                    assert (await stranger.post(f"{path}/tickets")).status_code == status
                    assert (await stranger.post(f"{path}/links", json={})).status_code == status
                    assert (await stranger.get(f"{path}/links")).status_code == status
                    assert (await stranger.delete(f"{path}/links/{link}")).status_code == status
                    await sign_in(stranger, seed("stranger"))
                stranger.headers["Authorization"] = f"Bearer {reads}"
                assert (await stranger.post(f"{path}/tickets")).status_code == 403
                assert (await stranger.post(f"{path}/links", json={})).status_code == 403
            for none in (22, 65_535):
                answer = await w.client.post(f"/v1/jobs/{w.job}/ports/{none}/tickets")
                assert answer.status_code == 404
            (shown,) = (await w.client.get(f"{path}/links")).json()["items"]
            assert shown["id"] == link and "url" not in shown

    anyio.run(run)


def test_a_share_opens_the_port_to_whoever_has_it_until_it_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as guest, w.browser() as second:
            link, entrance = await w.share()
            for one in (guest, second):
                assert (await one.get(entrance)).status_code == 303
                assert (await one.get("/")).status_code == 200
            async with w.browser(9999) as other:
                assert (await other.get(entrance)).status_code == 401
            await w.client.delete(f"/v1/jobs/{w.job}/ports/8888/links/{link}")
            for one in (guest, second):
                assert (await one.get("/")).status_code == 401
                assert (await one.get(entrance)).status_code == 401
            # One that a key made lasts no longer than the key.
            asked = {"name": "k", "verbs": ["jobs"], "expires_at_ms": 4_000_000_000_000}
            key = (await w.client.post("/v1/keys", json=asked)).json()
            _, entrance = await w.share(key=key["secret"])
            assert (await guest.get(entrance)).status_code == 303
            assert (await guest.get("/")).status_code == 200
            await w.client.delete(f"/v1/keys/{key['id']}")
            assert (await guest.get("/")).status_code == 401
            # By time, of the market's clock.
            _, entrance = await w.share(lasts_ms=60_000)
            assert (await guest.get(entrance)).status_code == 303
            clock = w.market.market.clock
            before, now = clock.now_ms, clock.now_ms()
            try:
                clock.now_ms = lambda: now + 60_001
                assert (await guest.get("/")).status_code == 401
            finally:
                clock.now_ms = before

    anyio.run(run)


def test_what_passes_is_the_workloads_and_what_speaks_for_others_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as browser:
            await browser.get(await w.ticket())
            browser.headers["Referer"] = f"http://{w.host()}/.tally/enter?key=secret"
            browser.headers["Authorization"] = "Basic dTpw"
            browser.cookies.set("theirs", "2")
            answer = await browser.get("/v1/jobs/a%2Fb%20c?token=theirs&x=1")
            head = w.site.heads[-1].lower()
            assert head.startswith("get /v1/jobs/a%2fb%20c?token=theirs&x=1 http/1.1")
            assert f"host: {w.host()}" in head and "authorization: basic dtpw" in head
            assert "cookie: theirs=2" in head and "tally" not in head and "referer" not in head
            assert f"x-forwarded-host: {w.host()}" in head and "x-forwarded-proto: http" in head
            assert answer.headers.get_list("set-cookie") == ["theirs=1; Path=/a; HttpOnly"]
            assert not {"clear-site-data", "strict-transport-security"} & set(answer.headers)
            for own in ("content-security-policy", "service-worker-allowed", "www-authenticate"):
                assert own in answer.headers
            assert "sandbox" not in answer.headers["content-security-policy"]
            # The market's credential opens it to a program, and stays with the market.
            async with w.browser(Authorization=f"Bearer {bearer(w.client)}") as program:
                assert (await program.put("/up", content=b"x" * 8_000_000)).status_code == 200
            assert (
                w.site.bodies[-1] == 8_000_000 and "authorization" not in w.site.heads[-1].lower()
            )

    anyio.run(run)


def test_no_name_under_the_domain_is_the_markets(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w:
            label = w.host().partition(".")[0]
            rest = w.host().partition(".")[2]
            for host, status in (
                (f"nothing.{rest}", 404),
                (f"08888-{label.partition('-')[2]}.{rest}", 404),
                (f"99999-{label.partition('-')[2]}.{rest}", 404),
                (f"22-{label.partition('-')[2]}.{rest}", 404),
                (f"a.{label}.{rest}", 404),
                (f"{label}.LOCALHOST.", 401),
                (f"{label.upper()}.{rest}", 401),
            ):
                for path in ("/", "/v1/me", "/openapi.json", "/assets/app.js", "/healthz"):
                    async with w.browser(host=host) as browser:
                        answer = await browser.get(path)
                        assert answer.status_code == status, (host, path, answer.text)
            assert (await w.client.get("/v1/me")).status_code == 200
            assert not w.site.heads

    anyio.run(run)


def test_a_neighbours_page_gets_nowhere_with_the_visitors_cookie(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as browser:
            await browser.get(await w.ticket())
            site = {"same": "same-origin", "near": "same-site", "far": "cross-site"}
            frame = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
            page = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
            own, other = f"http://{w.host()}", f"http://{w.host(9999)}"
            for method, headers, status in (
                ("POST", {"Sec-Fetch-Site": site["same"], "Origin": own}, 200),
                ("POST", {"Sec-Fetch-Site": site["near"], "Origin": other}, 403),
                ("POST", {"Sec-Fetch-Site": site["near"], "Origin": other, **page}, 403),
                ("POST", {"Origin": other}, 403),
                ("POST", {"Origin": "null"}, 403),
                ("GET", {"Sec-Fetch-Site": site["near"], "Sec-Fetch-Mode": "no-cors"}, 403),
                ("GET", {"Sec-Fetch-Site": site["near"], **frame}, 403),
                ("GET", {"Sec-Fetch-Site": site["far"], **page}, 200),
                ("GET", {"Sec-Fetch-Site": "none", **page}, 200),
            ):
                answer = await browser.request(method, "/", headers=headers)
                assert answer.status_code == status, (method, headers)
            async with w.browser(7777) as anybody:  # nobody's cookie counts at a public one
                assert (await anybody.post("/", headers={"Origin": other})).status_code == 200

    anyio.run(run)


def test_what_is_not_there_is_said_to_a_person_and_to_a_program(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, w.browser() as browser:
            answer = await browser.get("/", headers=HTML)
            assert answer.status_code == 401 and "not public" in answer.text
            assert f"{w.market.parts.public_url}/jobs/{w.job}" in answer.text
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert (await browser.get("/")).json()["code"] == "UNAUTHENTICATED"
            view, _ = await post(w.client, spec(kind="service", ports=(Port(80, "public"),)))
            await quoted(w.client, view["id"])
            async with w.browser(host=w.host(80, view["id"])) as waits:
                answer = await waits.get("/", headers=HTML)
                assert answer.status_code == 503 and answer.headers["retry-after"] == "3"
                assert "not running now" in answer.text and 'http-equiv="refresh"' in answer.text
                assert (await waits.get("/")).json()["code"] == "APP_NOT_RUNNING"
            async with w.browser(7777) as reader:
                await w.client.post(f"/v1/jobs/{w.job}/stop", json={})
                lease = (await w.client.get(f"/v1/jobs/{w.job}")).json()["lease"]
                await w.one.finish(lease)
                await state(w.client, w.job, "ENDED")
                answer = await reader.get("/", headers=HTML)
                assert answer.status_code == 410 and "has ended" in answer.text
                assert 'http-equiv="refresh"' not in answer.text
                assert (await reader.get("/")).json()["code"] == "APP_OVER"

    anyio.run(run)


def test_a_person_at_the_old_address_is_sent_on_and_a_program_is_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as w, httpx.AsyncClient(base_url=w.client.base_url) as old:
            token = bearer(w.client)
            page = f"/p/{w.job}/8888/a%20b/c?x=1"
            answer = await old.get(f"{page}&token={token}", headers=HTML)
            parts = urlsplit(answer.headers["location"])
            assert (answer.status_code, parts.netloc) == (303, w.host())
            assert parse_qs(parts.query)["to"] == ["/a%20b/c?x=1"]
            assert token not in parts.query and "set-cookie" not in answer.headers
            async with w.browser() as browser:
                entered = await browser.get(f"{parts.path}?{parts.query}")
                assert entered.headers["location"] == "/a%20b/c?x=1"
                assert (await browser.get(entered.headers["location"])).status_code == 200
            public = await old.get(f"/p/{w.job}/7777/x", headers=HTML)
            assert public.headers["location"] == f"http://{w.host(7777)}/x"
            headers = {"Authorization": f"Bearer {token}"}
            assert (await old.get(page, headers=headers)).text == "ok"

    anyio.run(run)


def test_a_websocket_is_its_own_pages_alone_and_ends_with_what_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_origins, "AGAIN_S", 0.2)

    async def echo(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen = {n.lower(): v for n, v in socket.request.headers.raw_items()}
        await socket.send(json.dumps({**seen, "path": socket.request.path}))
        with suppress(websockets.ConnectionClosed):
            async for message in socket:
                await socket.send(message)

    async def run() -> None:
        async with (
            serve(echo, "127.0.0.1", 0) as server,
            at_market(tmp_path, adapter("one")) as (client, market, tasks, one),
        ):
            port = next(iter(server.sockets)).getsockname()[1]
            job = await serving(client, one, tasks, port)
            w = World(client, market, one, job, Site())
            link, entrance = await w.share()
            async with w.browser() as browser:
                await browser.get(entrance)
                cookie = f"tally_app={browser.cookies['tally_app']}; theirs=1"
            at, base = f"ws://{w.host()}/kernel?token=theirs", client.base_url
            dialled: dict[str, Any] = {"host": base.host, "port": base.port, "proxy": None}
            own = f"http://{w.host()}"

            def socket(origin: str, **more: str) -> connect:
                headers = {"Origin": origin, "Cookie": cookie, **more}
                return connect(at, additional_headers=headers, **dialled)

            for headers in (
                {"origin": f"http://{w.host(9999)}"},
                {"origin": "null"},
                {"origin": own, "Sec-Fetch-Site": "same-site"},
            ):
                with pytest.raises(websockets.InvalidStatus) as no:
                    async with socket(**headers):
                        pass
                assert no.value.response.status_code == 403
            async with socket(own) as open_one:
                seen = json.loads(await open_one.recv())
                assert seen["path"] == "/kernel?token=theirs" and seen["host"] == w.host()
                assert seen["origin"] == own and seen["cookie"] == "theirs=1"
                for message in ("text", b"bytes", "x" * 200_000):
                    await open_one.send(message)
                    assert await open_one.recv() == message
                await client.delete(f"/v1/jobs/{job}/ports/8888/links/{link}")
                with pytest.raises(websockets.ConnectionClosedError) as over:
                    await open_one.recv()
                assert over.value.rcvd is not None and over.value.rcvd.code == 1008

    anyio.run(run)
