"""Who may do what: sign-in by CIP-8 and its traps, keys, other people's things, and hostile
input.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.client.net.signin import sign_message
from marketplace.domain.keys import Signer
from marketplace.domain.work.parts import FileIn, Price, Range
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Account, Record, Standing
from marketplace.market.upkeep import operator
from marketplace.store.backup import backup, restore
from tests.fakes import FakeAdapter, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import address_of, fast, market, sign_in

FAR = 4_000_000_000_000


@asynccontextmanager
async def open_market(tmp_path, **more: Any):
    """A market with one adapter; a client that is signed in, and the process's inside."""
    provider = seed("provider")
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, fast(**more)) as (url, run):
        adapter = FakeAdapter(url, provider, offer(provider))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter):
            await sign_in(client, seed("consumer"))

            async def listed():
                return (await client.get("/v1/offers")).json()["items"]

            await until(listed)
            yield client, run, adapter


async def challenge(client: httpx.AsyncClient, address: str) -> bytes:
    answer = await client.post("/v1/auth/challenge", json={"address": address})
    assert answer.status_code == 200, answer.text
    return bytes.fromhex(answer.json()["message"])


async def verify(client: httpx.AsyncClient, address: str, signed) -> httpx.Response:
    sent = {"address": address, "signature": signed.signature, "key": signed.key}
    return await client.post("/v1/auth/verify", json=sent)


def test_sign_in_traps_are_closed(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            mine, other = seed("mine"), seed("other")
            raw, address = address_of(mine)
            message = await challenge(client, address)
            # Signed by another key, over another message, and with a foreign address inside.
            for signer, inside, said in (
                (other, raw, message),
                (mine, raw, message + b"!"),
                (mine, address_of(other)[0], message),
            ):
                answer = await verify(client, address, sign_message(signer, inside, said))
                assert answer.status_code == 401, answer.text
            # A script address with the same 28 bytes, and the other network.
            script, mainnet = b"\x70" + mine.key_hash, b"\x61" + mine.key_hash
            for wrong in (script, mainnet):
                answer = await client.post("/v1/auth/challenge", json={"address": wrong.hex()})
                assert answer.status_code == 401, answer.text
            # A foreign stake part changes nothing: the account is the payment key's.
            stake = b"\x00" + mine.key_hash + other.key_hash
            again = await challenge(client, stake.hex())
            answer = await verify(client, stake.hex(), sign_message(mine, stake, again))
            assert answer.json()["account"] == mine.key_hash.hex()
            # A nonce serves once.
            signed = sign_message(mine, raw, await challenge(client, address))
            assert (await verify(client, address, signed)).status_code == 200
            assert (await verify(client, address, signed)).status_code == 401
            for junk in ("", "00", "84" * 40, "ff" * 100):
                broken = {"address": address, "signature": junk, "key": "a0"}
                answer = await client.post("/v1/auth/verify", json=broken)
                assert answer.status_code == 401, answer.text

    anyio.run(run)


def test_a_new_wallet_may_sign_in_ten_times_at_once(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten commands of one purse that has never been here: each gets a session of its own, and a
    challenge is still good for one.
    """

    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            store, all_read, unknown = inside.market.store, anyio.Event(), list[str]()
            real = store.get

            async def get(kind: type[Record], *key: object) -> Record | None:
                found = await real(kind, *key)
                if kind is Account and found is None and not all_read.is_set():
                    unknown.append(str(key[0]))  # nobody goes on before all have read
                    if len(unknown) == len(asked) + 1:
                        all_read.set()
                    await all_read.wait()
                return found

            new = seed("new")
            raw, address = address_of(new)
            asked = [await challenge(client, address) for _ in range(10)]
            monkeypatch.setattr(store, "get", get)
            answers: list[httpx.Response] = []

            async def enter(message: bytes) -> None:
                answers.append(await verify(client, address, sign_message(new, raw, message)))

            async with anyio.create_task_group() as tasks:
                for message in (*asked, asked[0]):  # the first of them twice
                    tasks.start_soon(enter, message)
            assert sorted(one.status_code for one in answers) == [200] * 10 + [409]
            tokens = {one.json()["token"] for one in answers if one.status_code == 200}
            assert len(tokens) == 10 and set(unknown) == {new.key_hash.hex()}

    anyio.run(run)


def test_keys_have_verbs_a_hard_budget_and_an_end(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):

            async def key(**more: Any) -> httpx.AsyncClient:
                asked = {"name": "k", "verbs": ["read"], "expires_at_ms": FAR, **more}
                answer = await client.post("/v1/keys", json=asked)
                assert answer.status_code == 201, answer.text
                secret = answer.json()["secret"]
                return httpx.AsyncClient(
                    base_url=client.base_url, headers={"Authorization": f"Bearer {secret}"}
                )

            reader = await key()
            assert (await reader.get("/v1/jobs")).status_code == 200
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            assert (await reader.post("/v1/jobs", json=asked)).status_code == 403
            worker = await key(verbs=["jobs", "read"], budget=12_000_000)
            ids = []
            for status in (201, 201, 422):
                job = spec(price=Price(budget=5_000_000))
                asked = body(job, Signer(os.urandom(32)), seed("consumer"))
                answer = await worker.post("/v1/jobs", json=asked)
                assert answer.status_code == status, answer.text
                ids.append(answer.json().get("id"))
            assert answer.json()["code"] == "OVER_BUDGET"
            # What a job did not spend comes back when it ends.
            await quoted(client, ids[0])
            await worker.post(f"/v1/jobs/{ids[0]}/stop")
            asked = body(
                spec(price=Price(budget=5_000_000)), Signer(os.urandom(32)), seed("consumer")
            )
            assert (await worker.post("/v1/jobs", json=asked)).status_code == 201
            listed = (await client.get("/v1/keys")).json()["items"]
            assert all("secret" not in row and "hash" not in row for row in listed)
            await client.delete(f"/v1/keys/{listed[0]['id']}")
            assert (await reader.get("/v1/jobs")).status_code == 401
            short = await key(expires_at_ms=inside.market.now + 3_000)
            await until(lambda: _expired(short))
            for one in (reader, worker, short):
                await one.aclose()

    anyio.run(run)


async def _expired(client: httpx.AsyncClient) -> bool:
    return (await client.get("/v1/jobs")).status_code == 401


def test_nobody_sees_what_is_not_theirs(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            session = Signer(os.urandom(32))
            asked = body(spec(), session, seed("consumer"))
            job = (await client.post("/v1/jobs", json=asked)).json()
            view = await quoted(client, job["id"])
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as stranger:
                assert (await stranger.get(f"/v1/jobs/{job['id']}")).status_code == 401
                await sign_in(stranger, seed("stranger"))
                for path in ("", "/logs", "/events", "/receipts", "/invoice", "/outputs",
                             "/history", "/telemetry"):  # fmt: skip
                    answer = await stranger.get(f"/v1/jobs/{job['id']}{path}")
                    assert answer.status_code == 404, (path, answer.text)
                lease = view["quote"]["lease"]
                assert (await stranger.get(f"/v1/leases/{lease}")).status_code == 404
                signed = {"session_signature": "00" * 64, "channel_tx": "ab" * 32}
                answer = await stranger.post(f"/v1/leases/{lease}/sign", json=signed)
                assert answer.status_code == 404
                assert (await stranger.post(f"/v1/jobs/{job['id']}/stop")).status_code == 404
                answer = await stranger.get(f"/v1/channels/{session.verify_key.hex()}")
                assert answer.status_code == 404
                assert (await stranger.get("/v1/jobs")).json()["items"] == []
            signed = {"session_signature": "00" * 64, "channel_tx": "ab" * 32}
            answer = await client.post(f"/v1/leases/{lease}/sign", json=signed)
            assert (answer.status_code, answer.json()["code"]) == (422, "TERMS_REFUSED")

    anyio.run(run)


def test_an_idempotency_key_is_answered_once(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            answers: list[httpx.Response] = []

            async def post() -> None:
                headers = {"Idempotency-Key": "one"}
                answers.append(await client.post("/v1/jobs", json=asked, headers=headers))

            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(post)
            await post()
            assert {a.status_code for a in answers} == {201}, [a.text for a in answers]
            assert len({a.json()["id"] for a in answers}) == 1
            other = body(spec(name="other"), Signer(os.urandom(32)), seed("consumer"))
            answer = await client.post("/v1/jobs", json=other, headers={"Idempotency-Key": "one"})
            assert answer.status_code == 409
            assert len((await client.get("/v1/jobs")).json()["items"]) == 1

    anyio.run(run)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/x", "https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x",
        "https://10.0.0.8/x", "https://169.254.169.254/latest", "https://[::ffff:127.0.0.1]/x",
        "https://user:pw@example.org/", "ftp://example.org/", "https:///x", "file:///etc/passwd",
        "https://0.0.0.0/", "https://[fe80::1]/", "https://metadata.internal/", "https://[64:ff9b::7f00:1]/",
        "https://[64:ff9b:1::a9fe:a9fe]/", "https://[::ffff:0:127.0.0.1]/", "https://[5f00::1]/",
    ],
)  # fmt: skip
def test_webhooks_never_call_inside(url: str, tmp_path) -> None:
    from marketplace.market.accounts.webhooks import check_url
    from marketplace.market.base.errors import HookRefused

    with pytest.raises(HookRefused):
        check_url(url, private=False)


def test_webhooks_arrive_signed_and_are_retried(tmp_path) -> None:
    anyio.run(_hooks, tmp_path)


async def _hooks(tmp_path) -> None:
    import hmac
    import json

    got: list[tuple[dict[str, str], bytes]] = []

    async def serve(stream) -> None:
        async with stream:
            data = b""
            while b"\r\n\r\n" not in data:
                data += await stream.receive()
            head, _, rest = data.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:])
            while len(rest) < int(headers["content-length"]):
                rest += await stream.receive()
            got.append((headers, rest))
            status = b"500 No" if len(got) == 1 else b"204 Yes"
            await stream.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        async with open_market(tmp_path, allow_private_hooks=True) as (client, _, _):
            hook = {"url": f"http://127.0.0.1:{port}/hook", "kinds": ["QUOTED"]}
            made = await client.post("/v1/webhooks", json=hook)
            assert made.status_code == 201, made.text
            secret = made.json()["secret"]

            async def two() -> bool:
                asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
                if not got:
                    await client.post("/v1/jobs", json=asked)
                    await anyio.sleep(0.5)
                return len(got) >= 2

            await until(two, 60)
            headers, raw = got[-1]
            stamp, _, mac = headers["tally-signature"].partition(",v1=")
            signed = f"{stamp.removeprefix('t=')}.".encode() + raw
            assert hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() == mac
            assert json.loads(raw)["kind"] == "QUOTED"
        tasks.cancel_scope.cancel()


def test_files_are_what_their_names_say(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, blob_limit=100_000) as (client, _, _):
            data = os.urandom(5000)
            name = hashlib.sha256(data).hexdigest()
            assert (await client.put(f"/v1/blobs/{name}", content=data)).json()["size"] == 5000
            assert (await client.get(f"/v1/blobs/{name}")).content == data
            wrong = await client.put(f"/v1/blobs/{'0' * 64}", content=data)
            assert (wrong.status_code, wrong.json()["code"]) == (422, "BLOB_MISMATCH")
            big = os.urandom(200_000)
            answer = await client.put(f"/v1/blobs/{hashlib.sha256(big).hexdigest()}", content=big)
            assert answer.status_code == 413
            for trick in ("..%2f..%2fetc%2fpasswd", "A" * 64, "0" * 63, "%00" * 10):
                assert (await client.get(f"/v1/blobs/{trick}")).status_code in (404, 422)
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as stranger:
                await sign_in(stranger, seed("stranger"))
                assert (await stranger.get(f"/v1/blobs/{name}")).status_code == 404
            answer = await client.post("/v1/jobs", content=b"x" * 3_000_000)
            assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")

    anyio.run(run)


def test_an_account_that_never_paid_keeps_fewer_bytes(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, blob_quota=10_000, blob_quota_new=1_000) as (
            client, inside, _,
        ):  # fmt: skip
            data = os.urandom(1_001)
            name = hashlib.sha256(data).hexdigest()
            full = await client.put(f"/v1/blobs/{name}", content=data)
            assert (full.status_code, full.json()["code"]) == (413, "BLOB_QUOTA")
            assert "first receipt" in full.json()["detail"]
            paid = Standing(seed("consumer").key_hash.hex(), paid=1)
            await inside.market.store.apply(Change(puts=[paid]))
            assert (await client.put(f"/v1/blobs/{name}", content=data)).status_code == 200

    anyio.run(run)


def test_an_accounts_files_have_a_quota_and_can_be_deleted(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, blob_quota=10_000) as (client, inside, _):
            one, two, three = (os.urandom(size) for size in (6_000, 4_000, 1))
            names = [hashlib.sha256(data).hexdigest() for data in (one, two, three)]
            for name, data in zip(names, (one, two), strict=False):
                for _ in range(2):  # twice is once
                    assert (await client.put(f"/v1/blobs/{name}", content=data)).status_code == 200
            full = await client.put(f"/v1/blobs/{names[2]}", content=three)
            assert (full.status_code, full.json()["code"]) == (413, "BLOB_QUOTA")
            kept = Path(inside.market.settings.blob_folder) / names[0][:2] / names[0]
            assert kept.exists()
            file = FileIn("/in", names[0], 6_000)
            using = replace(spec(), files=(file,))
            asked = body(using, Signer(os.urandom(32)), seed("consumer"))
            job = (await client.post("/v1/jobs", json=asked)).json()["id"]
            busy = await client.delete(f"/v1/blobs/{names[0]}")
            assert (busy.status_code, busy.json()["code"]) == (409, "BLOB_IN_USE")
            assert job in busy.json()["detail"]
            await client.post(f"/v1/jobs/{job}/stop")
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
                await sign_in(other, seed("other"))
                assert (await other.delete(f"/v1/blobs/{names[0]}")).status_code == 404
                await other.put(f"/v1/blobs/{names[0]}", content=one)
                assert (await client.delete(f"/v1/blobs/{names[0]}")).status_code == 200
                assert (await client.get(f"/v1/blobs/{names[0]}")).status_code == 404
                assert (await other.get(f"/v1/blobs/{names[0]}")).content == one
                assert (await other.delete(f"/v1/blobs/{names[0]}")).status_code == 200
            assert not kept.exists()
            assert (await client.put(f"/v1/blobs/{names[2]}", content=three)).status_code == 200

    anyio.run(run)


def test_an_accounts_waiting_jobs_are_counted(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, queued_jobs=2) as (client, _, _):
            much = Range(10**9)
            waits = replace(spec(), policy=replace(spec().policy, queue=True))
            (block,) = waits.resources
            waits = replace(waits, resources=(replace(block, memory=much),))

            async def post() -> httpx.Response:
                asked = body(waits, Signer(os.urandom(32)), seed("consumer"))
                return await client.post("/v1/jobs", json=asked)

            made = [await post() for _ in range(2)]
            assert [one.json()["state"] for one in made] == ["QUEUED", "QUEUED"], made[0].text
            more = await post()
            assert (more.status_code, more.json()["code"]) == (422, "TOO_MANY_QUEUED")
            await client.post(f"/v1/jobs/{made[0].json()['id']}/stop")
            assert (await post()).status_code == 201

    anyio.run(run)


def test_rates_are_limited_by_account(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path, requests_per_minute=60) as (client, _, _):
            answers = [await client.get("/v1/me") for _ in range(90)]
            limited = [a for a in answers if a.status_code == 429]
            assert limited and int(limited[0].headers["Retry-After"]) >= 1
            assert limited[0].json()["code"] == "RATE_LIMITED"

    anyio.run(run)


def test_the_operator_suspends_restores_and_moves_house(tmp_path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            asked = body(spec(), Signer(os.urandom(32)), seed("consumer"))
            job = (await client.post("/v1/jobs", json=asked)).json()
            await quoted(client, job["id"])
            provider = adapter.signer.verify_key.hex()
            assert await operator.suspend_provider(inside.market, provider, "too hot") == 1
            ended = (await client.get(f"/v1/jobs/{job['id']}")).json()
            assert (ended["state"], ended["reason"]) == ("ENDED", "SUSPENDED")
            assert (await client.get("/v1/offers")).json()["items"] == []
            await operator.restore_provider(inside.market, provider)
            assert (await client.get("/v1/offers")).json()["items"]
            account = seed("consumer").key_hash.hex()
            await operator.suspend_account(inside.market, account, "spam")
            answer = await client.get("/v1/jobs")
            assert (answer.status_code, answer.json()["code"]) == (403, "SUSPENDED")
            await operator.restore_account(inside.market, account)
            assert (await client.get("/v1/jobs")).status_code == 200
            actions = [a.action for a in await operator.audit_log(inside.market, actor="operator")]
            assert actions == ["account.restore", "account.suspend", "provider.restore",
                               "provider.suspend"]  # fmt: skip
            saved = tmp_path / "saved"
            rows = backup(f"sqlite:///{tmp_path}/m.db", saved)
        assert restore(f"sqlite:///{tmp_path}/new.db", saved) == rows
        async with market(f"sqlite:///{tmp_path}/new.db", tmp_path, fast()) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                await sign_in(client, seed("consumer"))
                assert (await client.get(f"/v1/jobs/{job['id']}")).json()["reason"] == "SUSPENDED"

    anyio.run(run)
