"""Credentials, secrets, other people's things and webhooks that point inside, against a real
market.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.client.net.signin import sign_message
from marketplace.domain.errors import NotFound
from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import End, Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Price
from marketplace.market.base.errors import HookRefused
from marketplace.market.base.records import Delivery, Hook
from marketplace.market.leases import ticks
from marketplace.market.upkeep import operator
from marketplace.process.webhooks import Deliverer
from tests.fakes import FakeAdapter, FakePayer, offer, seed, spec, until, working
from tests.integration.market.test_access import FAR, challenge, open_market, verify
from tests.integration.market.test_spine import body, quoted, state
from tests.integration.support.market import address_of, fast, sign_in


async def post(client: httpx.AsyncClient, session: Signer, **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/jobs", json=body(spec(**more), session, seed("consumer")))
    assert answer.status_code == 201, answer.text
    return await quoted(client, answer.json()["id"])


async def sign(
    client: httpx.AsyncClient, view: dict[str, Any], session: Signer, secrets: dict[str, str]
) -> str:
    quote = view["quote"]
    signature = session.sign(bytes.fromhex(quote["terms"])).hex()
    sent = {"session_signature": signature, "channel_tx": "ab" * 32, "secrets": secrets}
    answer = await client.post(f"/v1/leases/{quote['lease']}/sign", json=sent)
    assert answer.status_code == 200, answer.text
    return str(quote["lease"])


def test_a_challenge_grows_old_and_is_one_addresss_own(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            inside.market.settings = fast(challenge_ttl_ms=1)
            raw, address = address_of(seed("late"))
            message = await challenge(client, address)
            await anyio.sleep(0.05)
            answer = await verify(client, address, sign_message(seed("late"), raw, message))
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")

    async def foreign() -> None:
        async with open_market(tmp_path) as (client, _, _):
            mine, other = seed("mine"), seed("other")
            message = await challenge(client, address_of(other)[1])  # asked for by another address
            raw, address = address_of(mine)
            answer = await verify(client, address, sign_message(mine, raw, message))
            assert answer.status_code == 401
            # My payment key under a foreign stake part is still only my account.
            franken = b"\x00" + mine.key_hash + other.key_hash
            said = await challenge(client, franken.hex())
            answer = await verify(client, franken.hex(), sign_message(other, franken, said))
            assert (answer.status_code, answer.json()["code"]) == (401, "SIGN_IN_REFUSED")

    anyio.run(run)
    anyio.run(foreign)


def test_a_key_does_what_its_verbs_say_and_makes_no_wider_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):

            async def key(by: httpx.AsyncClient, **more: Any) -> httpx.Response:
                asked = {"name": "k", "verbs": ["read"], "expires_at_ms": FAR, **more}
                return await by.post("/v1/keys", json=asked)

            hexes = "00" * 32
            routes = {
                "jobs": ("POST", "/v1/jobs/job_x/stop"),
                "channels": ("POST", f"/v1/channels/{hexes}/close"),
                "blobs": ("GET", "/v1/blobs"),
                "webhooks": ("GET", "/v1/webhooks"),
                "keys": ("GET", "/v1/keys"),
                "read": ("GET", "/v1/jobs"),
            }
            for verb in routes:
                secret = (await key(client, verbs=[verb])).json()["secret"]
                async with httpx.AsyncClient(
                    base_url=client.base_url, headers={"Authorization": f"Bearer {secret}"}
                ) as held:
                    for other, (method, path) in routes.items():
                        sent = {"address": "addr_test1xx"} if method == "POST" else None
                        answer = await held.request(method, path, json=sent)
                        refused = answer.json().get("code") == "FORBIDDEN"
                        assert refused is (verb != other), (verb, other, answer.text)
            parent = (
                await key(client, verbs=["keys", "read"], budget=100, expires_at_ms=FAR - 1)
            ).json()
            async with httpx.AsyncClient(
                base_url=client.base_url, headers={"Authorization": f"Bearer {parent['secret']}"}
            ) as held:
                for wider in ({"verbs": ["jobs"]}, {"budget": 101}, {"expires_at_ms": FAR}):
                    answer = await key(held, **{"expires_at_ms": FAR - 2, **wider})
                    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN"), wider
                assert (await key(held, budget=60, expires_at_ms=FAR - 2)).status_code == 201
                assert (await key(held, budget=60, expires_at_ms=FAR - 2)).status_code == 403

    anyio.run(run)


def test_an_output_is_given_only_by_a_provider_that_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, adapter):
            private = b"another account's file " + os.urandom(32)
            name = hashlib.sha256(private).hexdigest()
            async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as victim:
                await sign_in(victim, seed("victim"))
                assert (await victim.put(f"/v1/blobs/{name}", content=private)).status_code == 200

            async def lies(message: wire.Message) -> None:
                if isinstance(message, wire.BlobWanted):
                    part = wire.BlobPart(
                        message.lease,
                        message.sha256,
                        message.offset,
                        len(private),
                        b"x" * len(private),
                    )
                    await adapter.send(part)

            adapter.handler = lies
            session = Signer(os.urandom(32))
            view = await post(client, session)
            lease = await sign(client, view, session, {})
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            for path in ("../../etc/passwd", "/app/out/model.bin"):
                await adapter.send(wire.OutputReady(lease, path, name, len(private)))
            job = view["id"]

            async def listed() -> list[dict[str, Any]]:
                found = (await client.get(f"/v1/jobs/{job}/outputs")).json()["items"]
                return found if len(found) == 2 else []

            await until(listed)
            answer = await client.get(f"/v1/jobs/{job}/outputs/{name}")
            assert (answer.status_code, answer.json()["code"]) == (422, "BLOB_MISMATCH")
            assert (await client.get(f"/v1/blobs/{name}")).status_code == 404
            for trick in ("..%2f..%2fm.db", "%00", "A" * 64):
                answer = await client.get(f"/v1/jobs/{job}/outputs/{trick}")
                assert answer.status_code in (404, 422), trick
            for wrong in ("zz" * 32, "AB" * 32):
                await adapter.send(wire.OutputReady(lease, "x", wrong, 1))
            await until(lambda: len(adapter.socket.rejected) == 2)

    anyio.run(run)


def test_a_voucher_or_end_counts_for_its_own_channel(tmp_path: Path) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, adapter):
            mine, other = Signer(os.urandom(32)), Signer(os.urandom(32))
            leases = []
            for session in (mine, other):
                view = await post(client, session)
                leases.append(await sign(client, view, session, {}))
            market = inside.market
            with pytest.raises(NotFound):
                await ticks.take_voucher(market, leases[1], Voucher.sign(mine, 5))
            url = str(client.base_url).rstrip("/")
            payer = FakePayer(url, {mine.verify_key: mine})
            async with working(payer):
                await until(lambda: payer.subscribed)
                send = payer.socket.send
                await send(wire.VoucherSent(leases[1], Voucher.sign(other, 7)))
                await send(wire.StopAsked(leases[1], "CANCELLED"))
                forged = End(other.verify_key, 0, mine.sign(b"end"))
                await send(wire.EndSent(forged))
                forged = Voucher(mine.verify_key, 9, os.urandom(64))
                await send(wire.VoucherSent(leases[0], forged))
                await until(lambda: len(payer.socket.rejected) == 4)
                codes = [r.code for r in payer.socket.rejected]
                assert codes == ["FORBIDDEN", "FORBIDDEN", "VOUCHER_REFUSED", "VOUCHER_REFUSED"]
            assert not adapter.ends and not adapter.stops
            intruder = seed("intruder")
            thief = FakeAdapter(url, intruder, offer(intruder))
            thief.leases, thief.chains = dict(adapter.leases), {}
            async with working(thief):
                await until(lambda: thief.welcomes)
                thief.leases = dict(adapter.leases)
                await thief.progress(leases[0], "SETTLED", tx="cd" * 32)
                await thief.send(wire.ReceiptSent(leases[0], thief.receipt(leases[0], 1000)))
                await thief.send(wire.LogChunk(leases[0], 0, "stdout", b"x"))
                await until(lambda: len(thief.socket.rejected) >= 3)
                assert {r.code for r in thief.socket.rejected} == {"NOT_FOUND"}
            await adapter.progress(leases[0], "SETTLED", tx="<script>")
            await until(lambda: adapter.socket.rejected)
            assert adapter.socket.rejected[-1].code == "MALFORMED"

    anyio.run(run)


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "017700000001", "localhost.localdomain", "inside.example"]
)  # fmt: skip
def test_a_name_that_leads_inside_is_never_called(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up at the delivery, and the very address that was checked is called."""
    real = anyio.getaddrinfo
    calls: list[str] = []

    async def lookup(name: Any, port: Any, **more: Any) -> Any:
        calls.append(str(name))
        inside = str(name).endswith((".example", ".localdomain"))
        return await real("127.0.0.1" if inside else name, port, **more)

    async def run() -> None:
        async with open_market(tmp_path) as (client, inside, _):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                listener.setblocking(False)
                url = f"https://{host}:{listener.getsockname()[1]}/x"
                made = await client.post("/v1/webhooks", json={"url": url, "kinds": []})
                assert made.status_code in (201, 422), made.text
                monkeypatch.setattr(anyio, "getaddrinfo", lookup)
                hook = Hook("hook_1", "a", url, [], 0)
                with pytest.raises(HookRefused):
                    await Deliverer(inside.market)._post(hook, Delivery("d", "hook_1", {}, 0))  # pyright: ignore[reportPrivateUsage]
                with pytest.raises(BlockingIOError):
                    listener.accept()
            assert host in calls

    anyio.run(run)


def test_a_webhook_follows_no_redirect(tmp_path: Path) -> None:
    async def run() -> None:
        asked: list[bytes] = []

        async def serve(stream: Any) -> None:
            async with stream:
                data = await stream.receive()
                asked.append(data.split(b" ")[1])
                await stream.send(
                    b"HTTP/1.1 307 Go\r\nLocation: /inside\r\nContent-Length: 0\r\n\r\n"
                )

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            async with open_market(tmp_path, allow_private_hooks=True) as (_, inside, _adapter):
                hook = Hook("hook_1", "a", f"http://127.0.0.1:{port}/x", [], 0)
                delivery = Delivery("d", "hook_1", {"id": "ev"}, 0)
                status = await Deliverer(inside.market)._post(hook, delivery)  # pyright: ignore[reportPrivateUsage]
            assert status == 307 and asked == [b"/x"]  # and 307 counts as a failed delivery
            tasks.cancel_scope.cancel()

    anyio.run(run)


def test_money_keys_and_suspensions_leave_audit_rows(tmp_path: Path) -> None:
    async def run() -> None:
        # Its end is told before the market gives up waiting for it, on a busy machine too.
        async with open_market(tmp_path, end_grace_ms=60_000) as (client, inside, adapter):
            account = seed("consumer").key_hash.hex()
            made = {"name": "ci", "verbs": ["read", "jobs", "keys"], "expires_at_ms": FAR,
                    "budget": 9_000_000}  # fmt: skip
            key = (await client.post("/v1/keys", json=made)).json()
            worker = {"Authorization": f"Bearer {key['secret']}"}
            session = Signer(os.urandom(32))
            async with httpx.AsyncClient(
                base_url=client.base_url, headers=worker, timeout=30
            ) as held:
                view = await post(held, session, price=Price(budget=5_000_000))
                lease = await sign(held, view, session, {})
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            await state(client, view["id"], "RUNNING")
            receipt = await adapter.tick(lease)
            payer = FakePayer(str(client.base_url).rstrip("/"), {session.verify_key: session})
            async with working(payer):
                await until(lambda: adapter.paid(session.verify_key) == receipt.channel_owed)
                await payer.end(session, receipt.channel_owed)
                await until(lambda: adapter.ends)
                await adapter.finish(lease)
                await adapter.progress(lease, "SETTLED", tx="cd" * 32)
                await state(client, view["id"], "ENDED")
            await client.delete(f"/v1/keys/{key['id']}")
            market = inside.market
            await operator.set_fee(market, 10)
            await operator.suspend_provider(market, adapter.signer.verify_key.hex(), "why")
            await operator.restore_provider(market, adapter.signer.verify_key.hex())
            await operator.suspend_account(market, account, "why")
            await operator.restore_account(market, account)
            assert (await client.post("/v1/auth/logout")).status_code == 200
            rows = list(reversed(await operator.audit_log(market, 1000)))
            assert [r.action for r in rows] == [
                "sign-in", "key.new", "budget.commit", "lease.sign", "channel.end",
                "channel.finish", "budget.free", "key.revoke", "fee.set", "provider.suspend",
                "provider.restore", "account.suspend", "account.restore", "sign-out",
            ], [(r.actor, r.action, r.detail) for r in rows]  # fmt: skip
            by = {r.action: r for r in rows}
            assert by["budget.commit"].actor == by["lease.sign"].actor == key["id"]
            assert by["budget.commit"].detail["amount"] == 5_000_000
            assert by["budget.free"].detail["amount"] == 5_000_000 - receipt.lease_owed
            assert by["channel.finish"].detail["tx"] == "cd" * 32

    anyio.run(run)
