"""The market's stores as its process keeps them: told who lives, begun anew when they die, and ended
with it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx
import pytest
from wsgidav.dav_error import DAVError

from marketplace.cluster_store.folders import Room, Stores
from marketplace.cluster_store.places import MOST
from marketplace.cluster_store.process import Shelves, StoreServerRefused, shelving
from marketplace.cluster_store.serving import READ_S, THREADS, THROWN_S, sweep
from marketplace.domain.errors import Malformed
from marketplace.domain.work.cluster_store import StorePass, StorePlace, id_of
from marketplace.market.base.errors import StoreInUse
from marketplace.process.own_stores import HttpStores, StoresSilent

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
SECRET = bytes(range(32))
STORE = id_of("one", "run")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def put(given: StorePass, name: str, body: bytes) -> int:
    """The status; 0 for a server that is away."""
    async with httpx.AsyncClient(timeout=10) as line:
        try:
            said = {"Authorization": f"Bearer {given.token}"}
            return (await line.put(given.url + name, content=body, headers=said)).status_code
        except httpx.TransportError:
            return 0


async def until(given: StorePass, wanted: int) -> None:
    with anyio.fail_after(20):
        status = await put(given, "a", b"x")
        while status != wanted:
            await anyio.sleep(0.05)
            status = await put(given, "a", b"x")


def relative(path: Path) -> Path:
    return Path(os.path.relpath(path))


def servers(folder: Path) -> list[int]:
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if str(folder).encode() in line and b"cluster_store.serving" in line:
            found.append(int(place.parent.name))
    return found


async def test_it_is_told_who_lives_begins_anew_at_its_port_and_ends_with_the_market(
    tmp_path: Path,
) -> None:
    living = {"lease_1": STORE}
    folder = relative(tmp_path / "stores")  # as an operator may name it

    async def look() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 1), look) as place:
        one, other = place.give("one", "run", "lease_1"), place.give("one", "run", "lease_2")
        with anyio.fail_after(20):
            status = await put(one, "a", b"x")
            while status == 503:  # nobody was named yet
                await anyio.sleep(0.05)
                status = await put(one, "a", b"x")
        assert status == 201
        assert await put(other, "a", b"x") == 403
        assert await put(one, "full", b"x" * (2 << 20)) == 507
        (pid,) = servers(folder)
        os.kill(pid, signal.SIGKILL)
        await until(one, 204)
        assert servers(folder) != [pid]
        del living["lease_1"]
        await until(one, 403)
    assert servers(folder) == []
    assert (folder / STORE / "a").read_bytes() == b"x", "what was written outlives it"


async def test_the_market_asks_how_much_is_there_and_removes_what_nobody_uses(
    tmp_path: Path,
) -> None:
    """Its owner reads and writes meanwhile, and makes no store anew. What a removal left that was
    cut short is gone at the next start.
    """
    folder, living = tmp_path / "stores", {"lease_1": STORE}
    (folder / ".tally-going-x" / STORE).mkdir(parents=True)
    (folder / ".tally-going-x" / STORE / "a").write_text("x")

    async def look() -> dict[str, str]:
        return living

    async with (
        httpx.AsyncClient(timeout=10) as http,
        shelving(Shelves(SECRET, folder, 1), look) as place,
    ):
        assert not list(folder.glob(".tally-going-*"))
        market = HttpStores(place, http)
        owner = place.lend("one", "run", int(time.time()) + 60)
        assert await market.held(STORE) is None and await put(owner, "a", b"x") == 404
        await until(place.give("one", "run", "lease_1"), 201)
        assert await put(owner, "b", b"more") == 201
        held = await market.held(STORE)
        assert held is not None and (held.bytes, held.entries) == (5, 2)
        assert abs(held.used_ms - time.time() * 1000) < 60_000
        assert await put(owner, "full", b"x" * (2 << 20)) == 507, "its limit is the owner's, too"
        with pytest.raises(StoreInUse):
            await market.remove(STORE)
        del living["lease_1"]
        await until(place.give("one", "run", "lease_1"), 403)
        assert await market.remove(STORE)
        assert not await market.remove(STORE) and await market.held(STORE) is None
        assert await put(owner, "b", b"more") == 404
        with anyio.fail_after(10):
            while [one.name for one in folder.iterdir()] != [".tally-incoming"]:  # noqa: ASYNC110  a disk tells nobody
                await anyio.sleep(0.02)


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "nothing is here"), (404, "{}"), (200, "<html>"), (200, "{}"), (200, "[]"), (502, "{}"),
     (503, '{"code": "STORE_BLIND", "message": "the market says nothing just now"}')],
)  # fmt: skip
async def test_whatever_else_stands_at_the_stores_address_is_not_taken_for_their_server(
    status: int, said: str
) -> None:
    """A proxy that knows no such name says 404: nothing is taken for gone by that."""
    answers = httpx.MockTransport(lambda _: httpx.Response(status, text=said))
    async with httpx.AsyncClient(transport=answers) as http:
        market = HttpStores(StorePlace("https://stores.example", SECRET), http)
        for asked in (market.held, market.remove):
            with pytest.raises(StoresSilent) as silent:
                await asked(STORE)
    assert "STORE_BLIND" not in said or "STORE_BLIND" in silent.value.message


def peak_mib(pid: int, what: str = "VmHWM") -> int:
    """The most memory that it had, MiB; or what of it is its own now (``VmData``)."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith(what)) // 1024


async def refused(at: StorePlace, head: str, body: bytes, pieces: int) -> bytes:
    """All that comes for a request of that *head*, whose *body* is sent so often, to the end."""
    parts = urlsplit(at.url)
    line = await anyio.connect_tcp(str(parts.hostname), int(parts.port or 0))
    came = b""
    async with line, anyio.create_task_group() as tasks:

        async def send() -> None:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await line.send(head.encode())
                for _ in range(pieces):
                    await line.send(body)

        tasks.start_soon(send)
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                came += await line.receive()
        tasks.cancel_scope.cancel()
    return came


async def test_what_a_refused_request_still_sends_is_neither_kept_nor_taken_for_the_next(
    tmp_path: Path,
) -> None:
    """By who has no token, however much; the answer comes, where it is not all too much."""
    folder = tmp_path / "stores"
    async with shelving(Shelves(SECRET, folder, 1), look) as place:
        (pid,) = servers(folder)
        before = peak_mib(pid)
        put_, host = f"PUT /{STORE}/a HTTP/1.1\r\nHost: x\r\n", "Content-Length: "
        mib = b"x" * (1 << 20)
        come = await refused(place, f"{put_}{host}{16 << 20}\r\n\r\n", mib, 16)
        assert come.startswith(b"HTTP/1.1 401") and b"STORE_TOKEN" in come
        await refused(place, f"{put_}{host}{400 << 20}\r\n\r\n", mib, 400)
        assert peak_mib(pid) - before < 64
        inner = f"GET /{STORE}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        chunk = f"{len(inner):x}\r\n".encode() + inner + b"\r\n0\r\n\r\n"
        come = await refused(place, f"{put_}Transfer-Encoding: chunked\r\n\r\n", chunk, 1)
        assert come.count(b"HTTP/1.1 ") == 1 and come.startswith(b"HTTP/1.1 401")
        assert servers(folder) == [pid], "it is there still"


async def test_who_trickles_what_is_refused_holds_no_place_for_long(tmp_path: Path) -> None:
    """As many as the server has threads, a byte a second each: others are served after all."""
    folder, living = tmp_path / "stores", {"lease_1": STORE}

    async def lives() -> dict[str, str]:
        return living

    async def trickle(at: tuple[str, int], task_status: anyio.abc.TaskStatus[None]) -> None:
        async with await anyio.connect_tcp(*at) as line:
            await line.send(
                f"PUT /{STORE}/a HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n".encode()
            )
            task_status.started()
            with contextlib.suppress(anyio.BrokenResourceError):
                while True:
                    await line.send(b"x")
                    await anyio.sleep(1)

    async with shelving(Shelves(SECRET, folder, 1), lives) as place:
        given = place.give("one", "run", "lease_1")
        await until(given, 201)
        host = urlsplit(place.url)
        async with anyio.create_task_group() as group:
            for _ in range(THREADS):
                await group.start(trickle, (host.hostname or "", host.port or 0))
            with anyio.fail_after(THROWN_S + 5):
                assert await put(given, "b", b"x") == 201
            group.cancel_scope.cancel()


async def test_a_write_that_began_while_its_lease_lived_and_ends_later_changes_nothing(
    tmp_path: Path,
) -> None:
    """Its host was cut off meanwhile; its replacement has written what is newer."""
    folder, living = tmp_path / "stores", {"lease_1": STORE, "lease_2": STORE}

    async def lives() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 1), lives) as place:
        lost, new = place.give("one", "run", "lease_1"), place.give("one", "run", "lease_2")
        await until(lost, 201)
        host = urlsplit(place.url)
        line = await anyio.connect_tcp(host.hostname or "", host.port or 0)
        async with line:
            head = f"Host: x\r\nAuthorization: Bearer {lost.token}\r\nContent-Length: 9\r\n\r\n"
            await line.send(f"PUT /{STORE}/a HTTP/1.1\r\n{head}1234".encode())
            await anyio.sleep(0.5)
            del living["lease_1"]
            await until(lost, 403)
            assert await put(new, "a", b"newer") == 204
            await line.send(b"56789")
            assert (await line.receive()).startswith(b"HTTP/1.1 403")
        assert (folder / STORE / "a").read_bytes() == b"newer"
        assert not list((folder / ".tally-incoming").iterdir())


async def test_no_destination_leads_out_of_a_store(tmp_path: Path) -> None:
    """As it goes over the wire, by a member with a token that is good."""
    folder, theirs = tmp_path / "stores", id_of("two", "run")
    living = {"lease_1": STORE, "lease_2": theirs}

    async def lives() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 1), lives) as place, httpx.AsyncClient() as line:
        mine, victim = place.give("one", "run", "lease_1"), place.give("two", "run", "lease_2")
        await until(victim, 201)
        for climb in (
            "..",
            "%2e%2e",
            "%0A..",
            ".%0A.",
            "%09..",
            "..%3F",
            "..%3B",
            "..%23",
            "%0D..",
        ):
            for end in ("/a", ""):
                assert await put(mine, "b", b"MINE") in (201, 204)
                said = {"Authorization": f"Bearer {mine.token}", "Overwrite": "T"}
                said["Destination"] = f"{mine.url}{climb}/{theirs}{end}"
                answer = await line.request("MOVE", f"{mine.url}b", headers=said)
                assert answer.status_code == 403, climb
        assert (folder / theirs / "a").read_bytes() == b"x"
        assert (folder / STORE / "b").read_bytes() == b"MINE"


def test_a_path_that_climbs_is_no_place_whatever_let_it_in(tmp_path: Path) -> None:
    """The gate refuses them; so does what is behind it."""
    stores = Stores(tmp_path, Room(tmp_path, 1))
    for climbing in (f"/{STORE}/../other", f"/{STORE}x/a", "/"):
        with pytest.raises(DAVError):
            stores.path_of(climbing, {"tally.store": STORE, "wsgidav.provider": stores})


async def test_a_member_that_writes_slowly_holds_up_its_own_alone(tmp_path: Path) -> None:
    """More files at once than it may, and not a byte of any: as many wait, and more are refused."""
    folder, living = tmp_path / "stores", {"lease_1": STORE, "lease_2": STORE}

    async def lives() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 1), lives) as place:
        slow, other = place.give("one", "run", "lease_1"), place.give("one", "run", "lease_2")
        await until(slow, 201)
        host = urlsplit(place.url)
        head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {slow.token}\r\nContent-Length: 9\r\n\r\n"
        async with contextlib.AsyncExitStack() as lines:
            held: list[anyio.abc.SocketStream] = []
            for number in range(2 * MOST):
                line = await anyio.connect_tcp(host.hostname or "", host.port or 0)
                held.append(await lines.enter_async_context(line))
                await line.send(f"PUT /{STORE}/{number} {head}".encode())
            await until(slow, 503)
            assert await put(other, "b", b"x") == 201
            for line in held:
                await line.send(b"123456789")
            for line in held:
                assert (await line.receive()).startswith(b"HTTP/1.1 201")
            assert await put(slow, "c", b"x") == 201


async def test_who_reads_nothing_of_what_he_asked_for_is_let_go(tmp_path: Path) -> None:
    """After some seconds; and asks again for what is left, as rclone does of itself."""
    folder, living = tmp_path / "stores", {"lease_1": STORE}

    async def lives() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 64 << 20), lives) as place:
        given = place.give("one", "run", "lease_1")
        await until(given, 201)
        assert await put(given, "large", b"x" * (48 << 20)) == 201
        host = urlsplit(place.url)
        line = await anyio.connect_tcp(host.hostname or "", host.port or 0)
        async with line:
            head = f"Host: x\r\nAuthorization: Bearer {given.token}\r\n\r\n"
            await line.send(f"GET /{STORE}/large HTTP/1.1\r\n{head}".encode())
            async with httpx.AsyncClient(timeout=10) as idle:
                for wait_s in (READ_S + 1, 0):  # a connection that is kept is there after a while
                    said = {"Authorization": f"Bearer {given.token}"}
                    assert (await idle.get(f"{given.url}a", headers=said)).content == b"x"
                    await anyio.sleep(wait_s)
            came = 0
            with (
                anyio.fail_after(5),
                contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError),
            ):
                while True:
                    came += len(await line.receive())
            assert 0 < came < 48 << 20


async def test_a_chunk_of_gigabytes_takes_nobodys_memory(tmp_path: Path) -> None:
    """By a member, of whose chunks cheroot reads each as a whole. Others write on."""
    folder, living = tmp_path / "stores", {"lease_1": STORE}

    async def lives() -> dict[str, str]:
        return living

    async with shelving(Shelves(SECRET, folder, 1), lives) as place:
        given = place.give("one", "run", "lease_1")
        await until(given, 201)
        (pid,) = servers(folder)
        head = (
            f"PUT /{STORE}/b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {given.token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        limit = resource.prlimit(pid, resource.RLIMIT_DATA)[0]
        first = f"{limit + 1:x}\r\n".encode() + b"x" * 1000
        with anyio.fail_after(20):
            come = await refused(place, head, first, 1)
        assert not come.startswith(b"HTTP/1.1 2")
        assert peak_mib(pid) < 512 and servers(folder) == [pid]
        assert await put(given, "a", b"y") == 204
        assert not (folder / STORE / "b").exists()


@pytest.mark.parametrize("who", ["nobody", "a member"])
async def test_what_is_announced_takes_no_memory_before_it_comes(tmp_path: Path, who: str) -> None:
    """A chunk of a gigabyte and a byte of it; and a line before a chunk that has no end."""
    folder = tmp_path / "stores"

    async def lives() -> dict[str, str]:
        return {"lease_1": STORE}

    async with shelving(Shelves(SECRET, folder, 1), lives) as place:
        given = place.give("one", "run", "lease_1")
        await until(given, 201)
        (pid,) = servers(folder)
        host = urlsplit(place.url)
        said = f"Authorization: Bearer {given.token}\r\n" if who == "a member" else ""
        head = f"PUT /{STORE}/b HTTP/1.1\r\nHost: x\r\n{said}Transfer-Encoding: chunked\r\n\r\n"
        before = peak_mib(pid, "VmData")
        async with contextlib.AsyncExitStack() as lines:
            for _ in range(8):
                line = await anyio.connect_tcp(host.hostname or "", host.port or 0)
                await lines.enter_async_context(line)
                await line.send(head.encode() + b"30000000\r\nx")
            await anyio.sleep(1)
            assert peak_mib(pid, "VmData") - before < 256
        come = await refused(place, head, b"0" * (1 << 20), 64)
        assert not come.startswith(b"HTTP/1.1 2")
        assert peak_mib(pid, "VmData") - before < 256
        assert await put(given, "a", b"y") == 204 and servers(folder) == [pid]


async def test_a_market_that_cannot_say_who_lives_lets_nobody_in_and_goes_on(
    tmp_path: Path,
) -> None:
    async def look() -> dict[str, str]:
        raise OSError("the database is away")

    async with shelving(Shelves(SECRET, tmp_path / "stores", 1), look) as place:
        given = place.give("one", "run", "lease_1")
        await until(given, 503)


async def test_where_another_process_serves_them_only_leave_is_given() -> None:
    shelves = Shelves.read("", "127.0.0.1:0", "https://stores.example", 1, SECRET)
    assert shelves is not None

    async def look() -> dict[str, str]:
        raise AssertionError("nobody asks")

    async with shelving(shelves, look) as place:
        assert place == StorePlace("https://stores.example", SECRET)


async def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreServerRefused):
        async with shelving(Shelves(SECRET, tmp_path / "file", 1), lambda: look()):
            pass


async def look() -> dict[str, str]:
    return {}


def test_a_store_that_nobody_uses_goes_and_nothing_else_does(tmp_path: Path) -> None:
    for name in (STORE, id_of("two", "run"), "lost+found"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
    os.utime(tmp_path / STORE, (1_000, 1_000))
    os.utime(tmp_path / "lost+found", (1_000, 1_000))
    assert sweep(tmp_path, 500, 1_500) == []
    assert sweep(tmp_path, 500, 1_501) == [STORE]
    assert {one.name for one in tmp_path.iterdir()} == {id_of("two", "run"), "lost+found"}


@pytest.mark.parametrize(
    ("said", "at", "url", "read"),
    [
        ("", "127.0.0.1:0", "", None),
        ("/srv/x", "127.0.0.1:0", "", ("/srv/x", 10 * 1024, "127.0.0.1", 0)),
        ("/srv/x:2GB", "0.0.0.0:8300", "https://s.example", ("/srv/x", 2048, "0.0.0.0", 8300)),
    ],
)
async def test_what_its_operator_says_is_read(
    said: str, at: str, url: str, read: tuple[object, ...] | None
) -> None:
    found = Shelves.read(said, at, url, 60, SECRET)
    told = None if found is None else (str(found.folder), found.size_mib, found.host, found.port)
    assert told == read
    assert found is None or (found.keep_s == 60 and SECRET.hex() not in repr(found))


@pytest.mark.parametrize(
    ("said", "at", "url"),
    [
        ("/srv/x", "8300", ""), ("/srv/x", "host:x", ""), ("/srv/x:much", "127.0.0.1:0", ""),
        ("/srv/x", "127.0.0.1:0", "http://stores.example"), ("", "127.0.0.1:0", "stores.example"),
    ],
)  # fmt: skip
async def test_what_its_operator_cannot_mean_is_refused(said: str, at: str, url: str) -> None:
    """Also an address that tells tokens to whoever is on the way."""
    with pytest.raises(Malformed):
        Shelves.read(said, at, url, 60, SECRET)
