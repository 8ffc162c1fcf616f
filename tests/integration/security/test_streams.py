"""What flows is its owner's: log streams by a made-up lease, and webhooks that nobody can
deliver.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.work.parts import Policy
from marketplace.market.accounts import webhooks
from marketplace.market.accounts.upload_room import AT_ONCE
from marketplace.market.base.errors import HookRefused
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Delivery, Hook, LogRecord
from marketplace.process.webhooks import Deliverer
from tests.fakes import seed, spec, until
from tests.integration.market.test_access import open_market
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.disk import small
from tests.integration.support.market import sign_in


@pytest.mark.parametrize("follow", ["true", "false"])
def test_a_lease_of_another_job_gives_no_log(tmp_path: Path, follow: str) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            job = (await client.post("/v1/jobs", json=asked)).json()
            lease = (await quoted(client, job["id"]))["quote"]["lease"]
            said = LogRecord(lease, job["id"], 0, "stdout", b"the password is swordfish\n")
            await inside.market.store.apply(Change(puts=[said]))

            async def heard(reader: httpx.AsyncClient, name: str, seconds: float) -> str:
                text = ""
                query = {"follow": follow, "lease": lease}
                with anyio.move_on_after(seconds):
                    async with reader.stream("GET", f"/v1/jobs/{name}/logs", params=query) as got:
                        async for piece in got.aiter_text():
                            text += piece
                            if "swordfish" in text:
                                break
                return text

            assert "swordfish" in await heard(client, job["id"], 30)
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as stranger:
                await sign_in(stranger, seed("stranger"))
                waits = spec(policy=Policy(max_duration_ms=60_000, queue=True))
                asked = body(waits, Signer(os.urandom(32)), seed("stranger"))
                mine = (await stranger.post("/v1/jobs", json=asked)).json()
                assert "swordfish" not in await heard(stranger, mine["id"], 3)

    anyio.run(run)


ODD = [
    "https://\u2488.example/x",
    "https://ex\u0378ample.com/",
    "https://h\x7fost/",
    "https://a.b/\x00",
]


@pytest.mark.parametrize("url", [*ODD, "https://[fec0::1]/", "https://[::127.0.0.1]/"])
def test_a_webhook_that_no_client_can_call_is_refused(url: str) -> None:
    with pytest.raises(HookRefused):
        webhooks.check_url(url, private=False)


@pytest.mark.parametrize("url", [*ODD, "https://[v1.x]/"])
def test_a_webhook_that_cannot_be_delivered_stops_no_other(tmp_path: Path, url: str) -> None:
    """One that is stored already, from before its URL was refused, say."""

    async def run() -> None:
        async with open_market(tmp_path) as (_, inside, _adapter):
            now = inside.market.now
            hook = Hook("hook_1", "a", url, [], now)
            await inside.market.store.apply(Change(puts=[hook, Delivery("d", "hook_1", {}, now)]))
            await Deliverer(inside.market).round()

            async def failed() -> bool:
                found = await inside.market.store.get(Hook, "hook_1")
                return found is not None and found.failures > 0

            await until(failed)

    anyio.run(run)


def test_files_never_take_the_last_of_the_disk(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            name = hashlib.sha256(b"x").hexdigest()
            inside.parts.blobs.room.keep_free = 1 << 60
            answer = await client.put(f"/v1/blobs/{name}", content=b"x")
            assert (answer.status_code, answer.json()["code"]) == (503, "DISK_FULL")
            inside.parts.blobs.room.keep_free = 0
            assert (await client.put(f"/v1/blobs/{name}", content=b"x")).status_code == 200

    anyio.run(run)


def _parts(folder: Path) -> list[Path]:
    return list(folder.glob("??/*.*"))


@asynccontextmanager
async def begun(
    client: httpx.AsyncClient, folder: Path, count: int, size: int
) -> AsyncGenerator[None]:
    """*count* uploads of *size* bytes that have sent one; they send the rest when the block
    ends.
    """
    go = anyio.Event()

    async def upload(number: int) -> None:
        async def chunks() -> AsyncGenerator[bytes]:
            yield b"x"
            await go.wait()
            yield b"x" * (size - 1)

        name = hashlib.sha256(bytes([number])).hexdigest()
        told = {"content-length": str(size)}
        answer = await client.put(f"/v1/blobs/{name}", content=chunks(), headers=told)
        assert answer.json()["code"] == "BLOB_MISMATCH"

    async def all_begun() -> bool:
        return len(_parts(folder)) == count

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(upload, number)
        await until(all_begun)
        yield
        go.set()
    assert not _parts(folder), "nothing of them is left"


async def one_more(client: httpx.AsyncClient, size: int) -> str:
    """The code that another upload of *size* bytes gets."""
    name = hashlib.sha256(b"more").hexdigest()
    return str((await client.put(f"/v1/blobs/{name}", content=b"x" * size)).json()["code"])


def test_files_begun_together_get_no_more_room_than_there_is(tmp_path: Path) -> None:
    """Each is begun with a byte while there is room for one of them: room is kept, not looked
    at.
    """

    async def run() -> None:
        async with open_market(folder) as (client, inside, _):
            room, size = inside.parts.blobs.room, 10 << 20
            free = shutil.disk_usage(room.folder).free
            room.keep_free = free - 5 * size // 2  # for two, and half a third
            async with begun(client, room.folder, 2, size):
                assert await one_more(client, size) == "DISK_FULL"

    with small(tmp_path / "small", 64 << 10) as folder:  # what is free changes by our files alone
        anyio.run(run)


def test_uploads_of_an_account_are_few_at_a_time_and_within_its_quota(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            folder, size = inside.parts.blobs.room.folder, 10 << 20
            less = replace(inside.market.settings, blob_quota=5 * size // 2, blob_limit=size)
            inside.market.settings = less
            async with begun(client, folder, 2, size):
                assert await one_more(client, size) == "BLOB_QUOTA"
            async with begun(client, folder, AT_ONCE, 2000):
                assert await one_more(client, 2000) == "RATE_LIMITED"
            assert await one_more(client, 2000) == "BLOB_MISMATCH"

    anyio.run(run)


def test_what_a_process_that_died_had_begun_is_swept(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            blobs = inside.parts.blobs
            name = hashlib.sha256(b"x").hexdigest()
            assert (await client.put(f"/v1/blobs/{name}", content=b"x")).status_code == 200
            kept = blobs.path(name)
            old, young = (kept.with_suffix(f".{digit * 16}") for digit in "ab")
            for part in (old, young):
                part.write_bytes(b"begun")
            os.utime(old, (0, 0))
            blobs.sweep()
            assert kept.exists() and young.exists() and not old.exists()

    anyio.run(run)
