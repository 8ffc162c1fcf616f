"""What flows is its owner's: log streams by a made-up lease, and webhooks that nobody can deliver."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import anyio
import httpx
import pytest

from marketplace.api.deliver import Deliverer
from marketplace.domain.job import Policy
from marketplace.domain.keys import Signer
from marketplace.service import hooks
from marketplace.service.errors import HookRefused
from marketplace.service.ports import Change
from marketplace.service.records import Delivery, Hook, LogRecord
from tests.fakes import seed, spec, until
from tests.integration.support_market import sign_in
from tests.integration.test_market_access import open_market
from tests.integration.test_market_spine import body, quoted


@pytest.mark.parametrize("follow", ["true", "false"])
def test_a_lease_of_another_job_gives_no_log(tmp_path: Path, follow: str) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            job = (await client.post("/v1/jobs", json=asked)).json()
            lease = (await quoted(client, job["id"]))["quote"]["lease"]
            said = LogRecord(lease, job["id"], 0, "stdout", b"the password is swordfish\n")
            await inside.market.store.apply(Change(puts=[said]))

            async def heard(reader: httpx.AsyncClient, name: str) -> str:
                text = ""
                query = {"follow": follow, "lease": lease}
                with anyio.move_on_after(3):
                    async with reader.stream("GET", f"/v1/jobs/{name}/logs", params=query) as got:
                        async for piece in got.aiter_text():
                            text += piece
                            if "swordfish" in text:
                                break
                return text

            assert "swordfish" in await heard(client, job["id"])
            async with httpx.AsyncClient(base_url=client.base_url) as stranger:
                await sign_in(stranger, seed("stranger"))
                waits = spec(policy=Policy(max_duration_ms=60_000, queue=True))
                asked = body(waits, Signer(os.urandom(32)), seed("stranger"))
                mine = (await stranger.post("/v1/jobs", json=asked)).json()
                assert "swordfish" not in await heard(stranger, mine["id"])

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
        hooks.check_url(url, private=False)


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
            inside.parts.blobs.keep_free = 1 << 60
            answer = await client.put(f"/v1/blobs/{name}", content=b"x")
            assert (answer.status_code, answer.json()["code"]) == (503, "DISK_FULL")
            inside.parts.blobs.keep_free = 0
            assert (await client.put(f"/v1/blobs/{name}", content=b"x")).status_code == 200

    anyio.run(run)
