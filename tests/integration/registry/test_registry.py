"""The registry as it is run, `tally market registry`: real Distribution behind the door, a real
market's tokens, and clients that push, pull and try more than they may.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import pytest

from marketplace.client.images.model import PackedModel, pack
from marketplace.client.images.packing import layers_of
from marketplace.client.images.registry import Account, MarketRegistry, NoImage, NotPushed
from marketplace.client.net.http import Http
from marketplace.registry.storage import ENTRY
from tests.fakes import seed, until
from tests.integration.support.market import fast, market, sign_in
from tests.ports import free_port
from tests.requires import need_registry

MIB = 1 << 20
KIND = "application/vnd.oci.image.manifest.v1+json"


def named(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Person:
    """An account, and the registry as it meets it."""

    registry: MarketRegistry
    account: Account
    client: httpx.AsyncClient  # at the registry

    async def head(self, name: str, *more: str) -> dict[str, str]:
        """With a token for all of *name*, and for what *more* says."""
        mine = f"repository:{self.account.namespace}/{name}:pull,push,delete"
        return {"Authorization": f"Bearer {await self.registry.token(mine, *more)}"}

    def path(self, name: str, rest: str) -> str:
        return f"/v2/{self.account.namespace}/{name}/{rest}"

    async def begin(self, name: str) -> str:
        """Where a blob is to be sent."""
        answer = await self.client.post(
            self.path(name, "blobs/uploads/"), headers=await self.head(name)
        )
        assert answer.status_code == 202, answer.text
        return str(answer.headers["location"])

    async def blob(self, name: str, data: bytes, digest: str = "") -> httpx.Response:
        """Sent in one piece."""
        where = httpx.URL(await self.begin(name)).copy_add_param("digest", digest or named(data))
        return await self.client.put(where, content=data, headers=await self.head(name))

    async def image(self, name: str, *layers: bytes, tag: str = "v1") -> str:
        """Its digest."""
        unpacked = {"type": "layers", "diff_ids": [named(one) for one in layers]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": unpacked}).encode()
        rows = [{"mediaType": "x/y", "digest": named(d), "size": len(d)} for d in (config, *layers)]
        for data in (config, *layers):
            answer = await self.blob(name, data)
            assert answer.status_code == 201, answer.text
        document = {
            "schemaVersion": 2, "mediaType": KIND, "config": rows[0], "layers": rows[1:],
        }  # fmt: skip
        raw = json.dumps(document).encode()
        answer = await self.client.put(
            self.path(name, f"manifests/{tag}"), content=raw,
            headers={**await self.head(name), "Content-Type": KIND},
        )  # fmt: skip
        assert answer.status_code == 201, answer.text
        return named(raw)

    async def packed(self, folder: Path, to: str, base: str, *command: str) -> PackedModel:
        """As `tally model pack` does it."""

        def token(*scopes: str) -> str:
            return anyio.from_thread.run(self.registry.token, *scopes)

        there, below = self.account.name(to), self.account.anybodys(base)
        layers = await anyio.to_thread.run_sync(layers_of, folder)
        return await anyio.to_thread.run_sync(pack, there, below, layers, command, token)

    async def used(self) -> int:
        return (await self.registry.holdings(self.account)).used


@dataclass
class World:
    """A market, its registry, and whoever comes."""

    url: str
    name: str
    root: Path
    people: dict[str, Person]


@asynccontextmanager
async def running(tmp_path: Path, url: str, port: int) -> AsyncGenerator[None]:
    command = [
        sys.executable, "-m", "marketplace.cli.main", "market", "registry", "--market", url,
        "--root", str(tmp_path / "registry"), "--port", str(port),
        "--collect-every", "1s", "--idle", "2s",
    ]  # fmt: skip
    process = await anyio.open_process(command, stderr=None)
    try:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.receive())
        assert ready["name"] == f"127.0.0.1:{port}"
        yield
        assert process.returncode is None, "it runs until it is told"
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            await process.wait()
            await process.aclose()


def story(tmp_path: Path, tell: Callable[[World], Awaitable[None]], quota: int = 8 * MIB) -> None:
    need_registry()

    async def main() -> None:
        port = free_port()
        settings = fast(registry=f"127.0.0.1:{port}", image_quota=quota, image_quota_new=quota)
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, settings) as (url, run):
            run.parts.public_url = url
            async with running(tmp_path, url, port):
                world = World(url, f"127.0.0.1:{port}", tmp_path / "registry", {})
                async with (
                    person(world, "consumer") as world.people["me"],
                    person(world, "stranger") as world.people["other"],
                ):
                    with anyio.fail_after(120):
                        await tell(world)

    anyio.run(main)


@asynccontextmanager
async def person(world: World, who: str) -> AsyncGenerator[Person]:
    async with (
        httpx.AsyncClient(base_url=world.url, timeout=30) as signing,
        httpx.AsyncClient(base_url=f"http://{world.name}", timeout=60) as client,
    ):
        session = await sign_in(signing, seed(who))
        http = Http(world.url, session["token"])
        registry = MarketRegistry(http)
        try:
            yield Person(registry, await registry.account(), client)
        finally:
            await http.aclose()


def test_an_image_is_pushed_listed_and_pulled_by_its_owner_alone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        me, other = world.people["me"], world.people["other"]
        digest = await me.image("train", b"layer" * 1000)
        (stored,) = (await me.registry.holdings(me.account)).images
        assert (stored.digest, stored.tags, stored.layers) == (digest, ["v1"], 2)
        assert (await other.registry.holdings(other.account)).images == []
        where = me.path("train", f"manifests/{digest}")
        got = await me.client.get(where, headers={**await me.head("train"), "Accept": KIND})
        assert got.status_code == 200 and named(got.content) == digest
        scope = f"repository:{me.account.namespace}/train:pull"
        theirs = {"Authorization": f"Bearer {await other.registry.token(scope)}"}
        for head in (theirs, {}, {"Authorization": "Bearer x.y.z"}):
            for method, path in (
                ("GET", where), ("GET", me.path("train", "tags/list")), ("DELETE", where),
                ("POST", me.path("train", "blobs/uploads/")), ("GET", "/v2/_catalog"),
                ("GET", f"/images/{me.account.namespace}"),
            ):  # fmt: skip
                answer = await other.client.request(method, path, headers={**head, "Accept": KIND})
                assert answer.status_code == 401, (method, path, answer.text)
        await me.registry.set_public("train", True)
        open_to = {"Authorization": f"Bearer {await other.registry.token(scope)}"}
        got = await other.client.get(where, headers={**open_to, "Accept": KIND})
        assert got.status_code == 200
        assert (await other.client.delete(where, headers=open_to)).status_code == 401

    story(tmp_path, tell)


def test_the_market_lists_and_deletes_for_whoever_has_only_a_browser(tmp_path: Path) -> None:
    quota = 2 * MIB

    async def tell(world: World) -> None:
        me, other = world.people["me"], world.people["other"]
        digest = await me.image("train", b"x" * MIB)
        theirs = await other.image("train", b"y" * 1000)
        asked = httpx.AsyncClient(base_url=world.url, timeout=60)
        async with asked as at_market:

            async def ask(who: Person, method: str, path: str) -> httpx.Response:
                head = {"Authorization": f"Bearer {who.registry.http.token}"}
                return await at_market.request(method, f"/v1/registry/{path}", headers=head)

            told = (await ask(me, "GET", "holdings")).json()
            held = await me.registry.holdings(me.account)
            assert (told["used"], told["quota"]) == (held.used, quota)
            (row,) = told["items"]
            assert (row["repository"], row["digest"], row["tags"], row["public"]) == (
                f"{me.account.namespace}/train", digest, ["v1"], False,
            )  # fmt: skip
            # Of nobody else's namespace, whatever the name says; and of what is there.
            for who, name, of, status in (
                (other, "train", digest, 404),
                (me, "train", theirs, 404),
                (me, f"..%2F{other.account.namespace}%2Ftrain", theirs, 404),
                (me, "..", digest, 404),
                (me, "train", "v1", 422),
            ):
                answer = await ask(who, "DELETE", f"images/{name}/{of}")
                assert answer.status_code in (status, 422), (name, answer.text)
            assert (await me.registry.holdings(me.account)).images == held.images
            # Whoever has no room left at all can still make some.
            answer = await ask(me, "DELETE", f"images/train/{digest}")
            assert answer.status_code == 200 and answer.json()["deleted"], answer.text
            assert (await ask(me, "GET", "holdings")).json()["items"] == []
            assert (await ask(me, "DELETE", f"images/train/{digest}")).status_code == 404
            assert len((await ask(other, "GET", "holdings")).json()["items"]) == 1

    story(tmp_path, tell, quota)


def test_what_is_not_its_digest_is_refused(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        me = world.people["me"]
        answer = await me.blob("train", b"one thing", named(b"another"))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "DIGEST_INVALID")
        await me.image("train", b"a layer")
        raw = json.dumps({"schemaVersion": 2, "mediaType": KIND}).encode()
        answer = await me.client.put(
            me.path("train", f"manifests/{named(b'another')}"), content=raw,
            headers={**await me.head("train"), "Content-Type": KIND},
        )  # fmt: skip
        assert answer.status_code == 400

    story(tmp_path, tell)


def test_nobody_gets_beyond_his_quota(tmp_path: Path) -> None:
    quota = 2 * MIB

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield bytes(64 * 1024)

    async def tell(world: World) -> None:
        me, other = world.people["me"], world.people["other"]
        await me.image("train", b"x" * MIB)
        answer = await me.blob("train", b"y" * (quota - MIB // 2))
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (413, "DENIED")
        assert "1 of 2 MiB" in answer.text
        where = await me.begin("train")
        answer = await me.client.patch(where, content=endless(), headers=await me.head("train"))
        assert answer.status_code == 413, "a body without a length ends at the quota"
        assert await me.used() <= quota + ENTRY
        # Somebody else's tokens and none at all: nothing of the body is kept, nor counted for him.
        before = await me.used()
        for head in ({}, await other.head("train")):
            where = await other.begin("mine")
            aimed = where.replace(other.account.namespace, me.account.namespace)
            answer = await other.client.patch(aimed, content=b"z" * 1000, headers=head)
            assert answer.status_code in (401, 404), answer.text
        assert await me.used() == before
        # A layer that is mounted from another's repository counts as one that is sent.
        await me.registry.set_public("train", True)
        source = f"{me.account.namespace}/train"
        await other.image("own", b"o" * (MIB + MIB // 2))
        answer = await other.client.post(
            other.path("copy", "blobs/uploads/"),
            params={"mount": named(b"x" * MIB), "from": source},
            headers=await other.head("copy", f"repository:{source}:pull"),
        )
        assert answer.status_code == 413, answer.text
        assert await other.used() <= quota + ENTRY

    story(tmp_path, tell, quota)


def test_a_path_that_leads_elsewhere_goes_round_no_quota(tmp_path: Path) -> None:
    """The door would see a name that nobody has; what it passes on, another."""

    def asked(at: str, method: str, path: str, headers: dict[str, str]) -> int:
        line = HTTPConnection(at, timeout=30)  # it sends a path as it is written
        with closing(line):
            line.request(method, path, b"", headers)
            return line.getresponse().status

    async def tell(world: World) -> None:
        me = world.people["me"]
        before = await me.used()
        head = await me.head("train")
        good = me.path("train", "blobs/uploads/")
        for climb in (
            "/../../..",
            "/%2e%2e/%2e%2e/%2e%2e",
            "/..//..//..//..//..//..",
            "/./../../..",
        ):
            for path in (
                f"/v2/zzz/zzz/blobs{climb}{good.removeprefix('/v2')}",
                good.replace("/train", "//train"),
            ):
                for method in ("POST", "GET"):
                    status = await anyio.to_thread.run_sync(asked, world.name, method, path, head)
                    assert status == 404, path
        assert await me.used() == before
        assert await anyio.to_thread.run_sync(asked, world.name, "POST", good, head) == 202

    story(tmp_path, tell)


def test_the_room_of_what_was_deleted_comes_back(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        me = world.people["me"]
        shared, own = b"s" * MIB, b"o" * MIB
        await me.image("train", shared, own, tag="v1")
        keep = await me.image("train", shared, tag="v2")
        assert await me.used() > 2 * MIB
        for one in (await me.registry.holdings(me.account)).images:
            if one.digest != keep:
                await me.registry.delete(me.account, one)

        async def collected() -> bool:
            return MIB <= await me.used() < 1.5 * MIB

        await until(collected, 60)
        (left,) = (await me.registry.holdings(me.account)).images
        assert left.digest == keep
        head = await me.head("train")
        for data, status in ((shared, 200), (own, 404)):
            got = await me.client.head(me.path("train", f"blobs/{named(data)}"), headers=head)
            assert got.status_code == status
        await me.image("train", shared, own, tag="v3")  # and what was collected is pushed again

    story(tmp_path, tell)


def test_nothing_is_collected_of_what_is_being_pushed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        me, other = world.people["me"], world.people["other"]
        await other.image("train", b"o" * MIB)
        (theirs,) = (await other.registry.holdings(other.account)).images
        layer = b"first of many layers"
        assert (await me.blob("train", layer)).status_code == 201
        await other.registry.delete(other.account, theirs)
        for _ in range(8):  # four times the time after which a push counts as given up
            await anyio.sleep(0.5)
            got = await me.client.head(
                me.path("train", f"blobs/{named(layer)}"), headers=await me.head("train")
            )
            assert got.status_code == 200
        await me.image("train", layer)

        async def collected() -> bool:
            return await other.used() < 8 * ENTRY

        await until(collected, 60)
        (mine,) = (await me.registry.holdings(me.account)).images
        assert mine.layers == 2

    story(tmp_path, tell)


def shards(folder: Path, count: int, size: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:02}.bin").write_bytes(random.Random(number).randbytes(size))
    (folder / "config.json").write_text("{}")
    return folder


async def second_version(world: World, folder: Path) -> None:
    """Two versions of the model in *folder*, of which one file differs."""
    me = world.people["me"]
    await me.image("base", b"a base")
    first = await me.packed(folder, "model:v1", "base:v1", "serve", "it")
    assert first.sent >= sum(layer.size for layer in layers_of(folder))
    again = await me.packed(folder, "model:v1", "base:v1", "serve", "it")
    assert (again.sent, again.digest) == (0, first.digest)
    changed = folder / "03.bin"
    changed.write_bytes(bytes(reversed(changed.read_bytes())))
    second = await me.packed(folder, "model:v2", "base:v1", "serve", "it")
    assert 0 < second.sent < 0.05 * second.bytes
    print(f"{second.sent:,} of {second.bytes:,} bytes were sent")
    found = {
        tag: one for one in (await me.registry.holdings(me.account)).images for tag in one.tags
    }
    assert found["v2"].digest == second.digest and found["v2"].bytes == second.bytes


def test_a_second_version_of_a_model_sends_what_changed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await second_version(world, shards(tmp_path / "model", 24, MIB))

    story(tmp_path, tell, 100 * MIB)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_second_version_of_a_model_of_a_gigabyte_sends_what_changed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await second_version(world, shards(tmp_path / "model", 25, 41 * MIB))

    story(tmp_path, tell, 4 << 30)


def test_a_model_is_built_on_ones_own_or_a_public_image_and_within_the_quota(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        me, other = world.people["me"], world.people["other"]
        await other.image("base", b"theirs")
        theirs = f"{world.name}/{other.account.namespace}/base:v1"
        folder = shards(tmp_path / "model", 2, MIB)
        with pytest.raises(NoImage):
            await me.packed(folder, "model", theirs)
        with pytest.raises(NoImage):
            await me.packed(folder, "model", "nothing:v1")
        await other.registry.set_public("base", True)
        made = await me.packed(folder, "model", theirs)
        head = {**await me.head("model"), "Accept": KIND}
        got = await me.client.get(me.path("model", f"manifests/{made.digest}"), headers=head)
        assert len(got.json()["layers"]) == 4, "the base's, the small files', and two"
        big = shards(tmp_path / "big", 4, 2 * MIB)
        with pytest.raises(NotPushed, match="no room"):
            await me.packed(big, "model:v2", theirs)

    story(tmp_path, tell, 8 * MIB)


def test_small_things_without_end_come_to_an_end(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        me = world.people["me"]
        statuses: list[int] = []
        for number in range(40):  # an upload that is begun, a name, a file of the disk
            answer = await me.client.post(
                me.path(f"n{number}", "blobs/uploads/"), headers=await me.head(f"n{number}")
            )
            statuses.append(answer.status_code)
        assert statuses[0] == 202 and statuses[-1] == 413

    story(tmp_path, tell, MIB // 2)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_distribution_ends_with_the_registry(tmp_path: Path, how: signal.Signals) -> None:
    need_registry()

    async def main() -> None:
        port = free_port()
        settings = fast(registry=f"127.0.0.1:{port}")
        async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, settings) as (url, _):
            command = [
                sys.executable, "-m", "marketplace.cli.main", "market", "registry", "--market", url,
                "--root", str(tmp_path / "registry"), "--port", str(port),
            ]  # fmt: skip
            async with await anyio.open_process(command, stderr=None) as process:
                assert process.stdout is not None
                await process.stdout.receive()
                (distribution,) = children(process.pid)
                process.send_signal(how)
                code = await process.wait()
            await until(lambda: not Path(f"/proc/{distribution}").exists(), 30)
            assert code == (0 if how is not signal.SIGKILL else -9)

    anyio.run(main)
