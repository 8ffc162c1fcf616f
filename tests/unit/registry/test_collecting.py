"""When what nobody needs is collected: not while anything is pushed, and not never."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.registry.distribution import RegistryFailed, Served
from marketplace.registry.door import Door
from marketplace.registry.tokens import Scope, TokenKey

KEY = TokenKey(bytes(32))
NAME = "images.test"


class Place:
    """A door before a Distribution that answers 404, and a collector that counts."""

    def __init__(self, folder: Path, idle_s: float, most_held_s: float = 1000) -> None:
        served = Served(folder, NAME, "", KEY.certificate, folder / "none.sock")
        (served.storage / "repositories").mkdir(parents=True)
        self.door, self.times, self.fails = Door(served, idle_s, most_held_s), 0, False
        transport = httpx.ASGITransport(self.door.app)
        self.client = httpx.AsyncClient(transport=transport, base_url=f"http://{NAME}")

    async def work(self, _served: Served) -> None:
        self.times += 1
        if self.fails:
            raise RegistryFailed("no")

    async def collected(self) -> bool:
        return await self.door.collect(self.work)

    async def ask(self, method: str, rest: str, name: str = "abc/x") -> int:
        scope = Scope("repository", name, frozenset({"pull", "push", "delete"}))
        token = KEY.token(NAME, "abc", [scope], int(time.time()), 1 << 30)
        head = {"Authorization": f"Bearer {token}"}
        answer = await self.client.request(method, f"/v2/{name}/{rest}", headers=head)
        return answer.status_code


def test_nothing_is_collected_where_nothing_changed(tmp_path: Path) -> None:
    async def run() -> None:
        place = Place(tmp_path, idle_s=0)
        assert not await place.collected()
        assert await place.ask("GET", "manifests/v1") == 502, "there is no Distribution here"
        assert not await place.collected()
        await place.ask("DELETE", "manifests/sha256:00")
        assert await place.collected() and not await place.collected()
        assert place.times == 1

    anyio.run(run)


@pytest.mark.parametrize(
    ("method", "rest"),
    [("POST", "blobs/uploads/"), ("PATCH", "blobs/uploads/u"), ("HEAD", "blobs/sha256:00")],
)
def test_a_push_holds_it_back_and_not_for_ever(tmp_path: Path, method: str, rest: str) -> None:
    async def run() -> None:
        place = Place(tmp_path, idle_s=0.3)
        await place.ask("DELETE", "manifests/sha256:00")
        await place.ask(method, rest)
        assert not await place.collected()
        await anyio.sleep(0.35)
        assert await place.collected()

    anyio.run(run)


def test_whoever_pushes_all_the_time_holds_it_back_for_so_long(tmp_path: Path) -> None:
    async def run() -> None:
        place = Place(tmp_path, idle_s=100, most_held_s=0.3)
        await place.ask("DELETE", "manifests/sha256:00")
        await place.ask("POST", "blobs/uploads/", "abc/one")
        assert not await place.collected()
        await anyio.sleep(0.35)
        await place.ask("POST", "blobs/uploads/", "abc/two")
        assert await place.collected()

    anyio.run(run)


def test_one_that_failed_is_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        place = Place(tmp_path, idle_s=0)
        await place.ask("DELETE", "manifests/sha256:00")
        place.fails = True
        with pytest.raises(RegistryFailed):
            await place.collected()
        place.fails = False
        assert await place.collected() and place.times == 2

    anyio.run(run)


@pytest.mark.parametrize("path", ["/v2/abc/x/y/blobs/uploads/", "/v2/abc/blobs/uploads/", "/v2/x"])
def test_a_write_elsewhere_is_passed_to_nobody(tmp_path: Path, path: str) -> None:
    async def run() -> None:
        place = Place(tmp_path, idle_s=0)
        answer = await place.client.post(path)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "NAME_UNKNOWN")

    anyio.run(run)
