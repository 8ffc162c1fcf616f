"""Webhooks as their owner sees them: kinds that exist, a test, a log, and one's own machine on a
devnet alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.market.accounts.webhooks import check_url, is_loopback, signature
from marketplace.market.base.errors import HookRefused
from marketplace.market.base.story import KINDS, STAGES
from tests.fakes import seed, spec, until
from tests.integration.market.test_access import open_market
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import fast, market, sign_in

ROOT = Path(__file__).parents[3]
Got = list[tuple[dict[str, str], bytes]]


@asynccontextmanager
async def server(got: Got, statuses: list[bytes]) -> AsyncIterator[str]:
    """The URL of somebody's server: it answers *statuses*, the last of them for ever."""

    async def serve(stream: Any) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, rest = data.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:])
            while len(rest) < int(headers["content-length"]):
                rest += await stream.receive()
            got.append((headers, rest))
            status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
            await stream.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}/hook"
        tasks.cancel_scope.cancel()


def test_a_kind_that_nothing_ever_is_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            for kind, hint in (
                ("FINISHD", "did you mean 'FINISHED'"),
                ("nonsense", "known: POSTED"),
            ):
                asked = {"url": "https://example.org/x", "kinds": ["QUOTED", kind]}
                made = await client.post("/v1/webhooks", json=asked)
                assert made.status_code == 422 and hint in made.json()["detail"], made.text
            assert (await client.get("/v1/webhooks")).json()["items"] == []

    anyio.run(run)


def test_every_kind_that_the_market_tells_is_listed() -> None:
    told = set[str]()
    for file in (ROOT / "marketplace" / "market").rglob("*.py"):
        told |= set(re.findall(r'(?:Story\(|event\(job, )"([A-Z_]+)"', file.read_text()))
    assert len(told) > 15 and not told - KINDS.keys()
    assert not KINDS.keys() - told - STAGES.keys() - {"ENDED"}


def test_a_test_is_delivered_signed_and_logged_and_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        got: Got = []
        async with (
            server(got, [b"500 No", b"204 Yes"]) as url,
            open_market(tmp_path, loopback_hooks=True) as (client, _, _),
        ):
            made = (await client.post("/v1/webhooks", json={"url": url, "kinds": ["ENDED"]})).json()
            path = f"/v1/webhooks/{made['id']}"
            asked = await client.post(f"{path}/test")
            assert asked.status_code == 202 and asked.json()["state"] == "WAITING"

            async def log(wanted: str) -> Any:
                [row] = (await client.get(f"{path}/deliveries")).json()["items"]
                return row if row["state"] == wanted else None

            await until(lambda: len(got) >= 1, 30)
            row = await until(lambda: log("DELIVERED"), 30)
            assert (row["status"], row["attempts"], row["next_at_ms"]) == (204, 2, 0)
            headers, raw = got[-1]
            assert json.loads(raw) == row["body"] and row["body"]["kind"] == "TEST"
            assert headers["tally-delivery"].upper() == row["id"].upper()
            stamp, _, mac = headers["tally-signature"].partition(",v1=")
            signed = stamp.removeprefix("t=").encode() + b"." + raw
            assert hmac.new(made["secret"].encode(), signed, hashlib.sha256).hexdigest() == mac
            # Nobody else sees it, or has a webhook of another tested.
            await sign_in(client, seed("other"))
            for answer in (
                await client.get(f"{path}/deliveries"), await client.post(f"{path}/test"),
            ):  # fmt: skip
                assert answer.status_code == 404

    anyio.run(run)


def test_the_page_has_every_kind_and_its_check_of_a_signature_works() -> None:
    page = (ROOT / "docs" / "webhooks.md").read_text()
    assert [kind for kind in KINDS if f"| `{kind}` | {KINDS[kind]} |" not in page] == []
    [snippet] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(snippet, names)
    now, secret, raw = 1_900_000_000_000, "whsec_" + "ab" * 32, b'{"kind":"TEST"}'
    good = signature(secret, now, raw)
    verified = names["verified"]
    assert verified(secret, good, raw, now + 1000) == {"kind": "TEST"}
    for wrong in (
        (secret, good, raw + b" ", now), ("whsec_" + "cd" * 32, good, raw, now),
        (secret, good, raw, now + 600_000), (secret, "", raw, now), (secret, "t=x,v1=", raw, now),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            verified(*wrong)


def test_what_nobody_answers_is_in_the_log_without_what_is_inside(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, loopback_hooks=True) as (client, _, _):
            made = await client.post("/v1/webhooks", json={"url": "http://127.0.0.1:9/x"})
            path = f"/v1/webhooks/{made.json()['id']}"
            await client.post(f"{path}/test")
            again = await client.post(f"{path}/test")
            assert again.status_code == 409  # one at a time

            async def tried() -> Any:
                [row] = (await client.get(f"{path}/deliveries")).json()["items"]
                return row if row["error"] else None

            row = await until(tried, 30)
            assert (row["state"], row["status"], row["error"]) == ("WAITING", 0, "ConnectError")

    anyio.run(run)


@pytest.mark.parametrize("settings", [{}, {"loopback_hooks": True, "magic": 1}])
def test_this_machine_is_called_on_a_devnet_alone(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def run() -> None:
        db = f"sqlite:///{tmp_path}/m.db"
        async with (
            market(db, tmp_path, fast(**settings)) as (origin, _),
            httpx.AsyncClient(base_url=origin, timeout=30) as client,
        ):
            await sign_in(client, seed("consumer"))
            for url in ("http://127.0.0.1:9/x", "http://localhost:9/x", "https://[::1]:9/x"):
                made = await client.post("/v1/webhooks", json={"url": url})
                assert made.json()["code"] == "WEBHOOK_REFUSED", url

    anyio.run(run)


def test_loopback_opens_nothing_else() -> None:
    for url in (
        "http://10.0.0.1/x", "http://169.254.169.254/x", "https://192.168.1.1/x", "http://[fd00::1]/x",
        "http://example.org/x", "http://127.0.0.1.example.org/x", "http://127.1/x",
        "http://a@127.0.0.1/x",
    ):  # fmt: skip
        with pytest.raises(HookRefused):
            check_url(url, private=False, loopback=True)
    assert not is_loopback("127.0.0.1.nip.io") and not is_loopback("::ffff:10.0.0.1")
    assert check_url("http://localhost:80/x", private=False, loopback=True) == ("localhost", 80)


def test_a_provider_does_not_speak_for_the_market(tmp_path: Path) -> None:
    """Its stages become events, which webhooks are told of: it cannot say that a job is settled."""

    async def run() -> None:
        async with open_market(tmp_path) as (client, _, adapter):
            session = Signer(os.urandom(32))
            posted = await client.post("/v1/jobs", json=body(spec(), session, seed("consumer")))
            view = await quoted(client, posted.json()["id"])
            lease = await sign(client, view, session, "ab" * 32)
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            await state(client, view["id"], "RUNNING")
            for forged in ("ENDED", "QUOTED", "PROVIDER_LOST", "NOTICE"):
                before = len(adapter.socket.rejected)
                await adapter.progress(lease, forged)
                await until(lambda n=before: len(adapter.socket.rejected) > n)
            await adapter.progress(lease, "PULLING", layer=3)
            path = f"/v1/jobs/{view['id']}/history"

            async def pulled() -> bool:
                kinds = [e["kind"] for e in (await client.get(path)).json()["items"]]
                assert not {"ENDED", "PROVIDER_LOST", "NOTICE"} & set(kinds)
                return "PULLING" in kinds

            await until(pulled)

    anyio.run(run)
