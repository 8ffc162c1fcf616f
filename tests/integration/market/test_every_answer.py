"""Every operation of the document is answered once, and every answer is what the document says.

``support.market`` compares each answer of each integration test; here is that no operation is left
out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import httpx

from marketplace.api.schemas import document
from marketplace.domain.keys import Signer
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster import Cluster
from marketplace.domain.work.cluster_order import ClusterOrder, SignedOrder, Verb
from marketplace.domain.work.mesh_net import FIRST_GUEST
from marketplace.domain.work.mesh_relay import RelayPlace
from marketplace.domain.work.parts import Gang, Policy, Port, Price
from marketplace.market.base.ports import (
    ChannelOnChain,
    ClaimRound,
    TxLook,
    UnsignedTx,
)
from marketplace.process.reference import schema
from tests.fake_router import TX, FakeRouter
from tests.fakes import FakeAdapter, FakePayer, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted, state
from tests.integration.market.test_spine import sign as sign_terms
from tests.integration.support.answers import Answered
from tests.integration.support.market import address_of, fast, market, sign_in
from tests.integration.support.paper_registry import PaperRegistry
from tests.integration.support.paper_stores import named, on_paper
from tests.unit.support.golden import writing

FILE = b"what the workload made"
NAME = hashlib.sha256(FILE).hexdigest()
KEYED: dict[str, Any] = {"name": "ci", "verbs": ["read"], "expires_at_ms": 4 * 10**12}


class PaperLedger:
    """A chain on which everything is there at once."""

    async def network(self) -> dict[str, Any]:
        hashes = {"settle_hash": "aa" * 28, "stub_hash": "bb" * 28}
        return {"magic": 42, "deployed": True, "chain_url": "http://chain.example", **hashes}

    async def fees(self) -> ChainFees:
        return ChainFees(open=176_149, top_up=234_254, end=237_818, end_together=49_684)

    async def reserve(self, terms: Terms) -> int:
        return 2_000_000

    async def channel(self, terms: Terms, open_tx: str) -> ChannelOnChain:
        return ChannelOnChain(ChannelStage.OPEN, terms.ceiling, 0, f"{open_tx}#0", 3, agreed=True)

    async def unsigned_open(self, terms: Terms, amount: int, *_: object) -> UnsignedTx:
        return self._step("open", terms, amount=amount)

    async def unsigned_top_up(self, terms: Terms, _: str, amount: int, *__: object) -> UnsignedTx:
        return self._step("top up", terms, amount=amount)

    async def unsigned_close(self, terms: Terms, *_: object) -> UnsignedTx:
        return self._step("close", terms)

    def _step(self, step: str, terms: Terms, **more: int) -> UnsignedTx:
        raw = step.encode() + terms.session_vk
        told = {"step": step, **more, "session_vk": terms.session_vk.hex()}
        return UnsignedTx(hashlib.sha256(raw).hexdigest(), raw, 170_000, told)

    async def witness(self, raw: bytes, witnesses: bytes) -> tuple[str, bytes]:
        return hashlib.sha256(raw).hexdigest(), raw + witnesses

    async def submit(self, signed: bytes) -> str:
        return ""

    async def claim(self, channels: Sequence[object]) -> ClaimRound:
        return ClaimRound([], {})

    async def look(self, tx: str, raw: bytes) -> TxLook:
        return TxLook(1, False, True)


def test_every_operation_answers_as_the_document_says(tmp_path: Path) -> None:
    seen: dict[Answered, bytes] = {}
    anyio.run(_walk, tmp_path, seen)
    successes = {
        (method, path, status)
        for path, operations in schema()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
        if status < "300"
    }
    assert len(successes) > 45
    assert not successes - seen.keys(), sorted(successes - seen.keys())
    if writing():
        _write({name: body for name, body in seen.items() if body and name in successes})


def _write(bodies: dict[Answered, bytes]) -> None:
    """The examples that the document shows: what this walk was answered, one item of each list."""
    examples = {
        " ".join(name): _shortened(json.loads(body)) for name, body in sorted(bodies.items())
    }
    path = Path(document.__file__).with_name("examples.json")
    path.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _shortened(value: Any) -> Any:
    """Lists of objects with their last entry only, however deep."""
    if isinstance(value, dict):
        return {k: _shortened(v) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [
            _shortened(one)
            for one in (items[-1:] if items and items[0] and isinstance(items[0], dict) else items)
        ]
    return value


async def _walk(tmp_path: Path, seen: dict[Answered, bytes]) -> None:
    ledger: Any = PaperLedger()
    db = f"sqlite:///{tmp_path}/market.db"
    async with market(
        db,
        tmp_path,
        fast(allow_private_hooks=True, registry="images.example"),
        seen=seen,
        ledger=ledger,
    ) as (
        url,
        run,
    ):
        run.market.router = FakeRouter()
        run.market.own_registry = PaperRegistry()
        on_paper(run.market)
        run.market.mesh_relay = RelayPlace("203.0.113.5", 42_000, 4, b"s" * 32)
        hosts = [
            FakeAdapter(
                url, seed(name), offer(seed(name), (gpu(at),), cluster_free_ms=180_000, mesh=True)
            )
            for at, name in enumerate(("first", "second"))
        ]
        session = Signer(os.urandom(32))
        payer = FakePayer(url, {session.verify_key: session})
        async with (
            httpx.AsyncClient(base_url=url, timeout=30) as client,
            working(*hosts, payer),
        ):
            await sign_in(client, seed("consumer"))
            await until(lambda: all(host.welcomes for host in hosts))
            await _reads(client)
            await _account(client)
            await _hop(client)
            await _before(client)
            await _job(client, hosts, payer, session)
            await _again(client, hosts)
            await _gang(client)
            await named(run.market, seed("consumer").key_hash.hex(), "run-1")
            await _stores(client)
            await _ok(client, "GET", "/v1/prices")
            assert (await _ok(client, "GET", "/v1/spend?by=job"))["items"]
            await _ok(client, "GET", "/v1/spend.csv")
            await _ok(client, "POST", "/v1/auth/logout")


async def _ok(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> Any:
    answer = await client.request(method, path, **more)
    assert answer.status_code in (200, 201, 202), (method, path, answer.text)
    return answer.json() if answer.headers["content-type"].endswith("json") else answer.text


async def _reads(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        await _ok(client, "GET", path)

    async def listed() -> list[dict[str, Any]]:
        items = (await _ok(client, "GET", "/v1/offers"))["items"]
        return items if len(items) == 2 else []

    first, *_ = await until(listed)
    providers = await _ok(client, "GET", "/v1/providers")
    for path in (
        "network",
        "devices",
        "stats",
        "utilisation",
        "images/popular",
        f"offers/{first['id']}",
        "me",
    ):
        await _ok(client, "GET", f"/v1/{path}")
    for row in providers["items"]:
        await _ok(client, "GET", f"/v1/providers/{row['id']}")
    assert (await client.get("/v1/offers/offer_none")).status_code == 404


async def _account(client: httpx.AsyncClient) -> None:
    key = await _ok(client, "POST", "/v1/keys", json=KEYED)
    bearer = {"Authorization": f"Bearer {key['secret']}"}
    assert (await _ok(client, "GET", "/v1/me", headers=bearer))["key"]["id"] == key["id"]
    hook = await _ok(client, "POST", "/v1/webhooks", json={"url": "https://127.0.0.1/x"})
    await _ok(client, "POST", f"/v1/webhooks/{hook['id']}/rotate")
    await _ok(client, "POST", f"/v1/webhooks/{hook['id']}/test")
    assert (await _ok(client, "GET", f"/v1/webhooks/{hook['id']}/deliveries"))["items"]
    await _ok(client, "PUT", f"/v1/blobs/{NAME}", content=FILE)
    for path in ("keys", "webhooks", "blobs"):
        assert (await _ok(client, "GET", f"/v1/{path}"))["items"]
    assert await _ok(client, "GET", f"/v1/blobs/{NAME}") == FILE.decode()
    for path in (f"keys/{key['id']}", f"webhooks/{hook['id']}", f"blobs/{NAME}"):
        await _ok(client, "DELETE", f"/v1/{path}")


async def _hop(client: httpx.AsyncClient) -> None:
    """The market's router, and a channel to it."""
    await _ok(client, "GET", "/v1/router")
    asked = {"session_vk": seed("hop").verify_key.hex(), "tx": TX}
    hop = await _ok(client, "POST", "/v1/router/hops", json=asked)
    assert await _ok(client, "GET", f"/v1/router/hops/{hop['session_vk']}") == hop


async def _before(client: httpx.AsyncClient) -> None:
    """What can be asked before anything is posted: it fits, it does not, and the same of a gang."""
    one, dear = spec().to_wire(), spec(price=Price(max_core_rate=1)).to_wire()
    two = spec(gang=Gang(2, spread=True)).to_wire()
    many = spec(gang=Gang(9, spread=True)).to_wire()
    for job in (one, two):
        await _ok(client, "POST", "/v1/quotes", json={"spec": job})
    assert (await _ok(client, "POST", "/v1/jobfiles", json={"spec": one}))["spec"] == one
    fits = [(await _ok(client, "POST", "/v1/explain", json={"spec": job}))["matches"]
            for job in (one, two, dear, many)]  # fmt: skip
    assert fits == [True, True, False, False]


async def _post(client: httpx.AsyncClient, session: Signer, **more: Any) -> dict[str, Any]:
    asked = body(spec(**more), session, seed("consumer"))
    return await quoted(client, (await _ok(client, "POST", "/v1/jobs", json=asked))["id"])


async def _sign(client: httpx.AsyncClient, view: dict[str, Any], session: Signer) -> str:
    """With a channel that the wallet opens by way of the market."""
    channel = f"/v1/channels/{session.verify_key.hex()}"
    address = address_of(seed("consumer"))[1]
    asked = {"lease": view["quote"]["lease"], "address": address}
    made = await _ok(client, "POST", "/v1/channels", json=asked)
    given = {"tx": made["tx"], "witness": "a0"}
    lease = await sign_terms(client, view, session, made["tx"])
    await _ok(client, "POST", f"{channel}/witness", json=given)
    for step, amount in (("topup", 5), ("close", 0)):
        await _ok(client, "POST", f"{channel}/{step}", json={"address": address, "amount": amount})
    assert (await _ok(client, "GET", channel))["chain"]["state"] == "OPEN"
    assert (await _ok(client, "GET", "/v1/channels"))["items"]
    await _ok(client, "GET", f"/v1/leases/{lease}")
    await _ok(client, "GET", f"/v1/leases/{lease}/evidence")
    return lease


async def _port(client: httpx.AsyncClient, port: str) -> None:
    """Opened in a browser, and shared."""
    ticket = await _ok(client, "POST", f"{port}/tickets")
    name = {"domain": urlsplit(ticket["url"]).hostname}
    assert await _ok(client, "GET", "/v1/app-origins", params=name) == {"known": True}
    link = await _ok(client, "POST", f"{port}/links", json={})
    assert (await _ok(client, "GET", f"{port}/links"))["items"]
    await _ok(client, "DELETE", f"{port}/links/{link['id']}")


async def _images(client: httpx.AsyncClient) -> None:
    """A token, and one that is public."""
    assert (await _ok(client, "GET", "/v1/registry"))["name"] == "images.example"
    await _ok(client, "GET", "/v1/registry/token", params={"scope": "registry:catalog:*"})
    await _ok(client, "PUT", "/v1/registry/images/train", json={"public": True})
    assert (await _ok(client, "GET", "/v1/registry/images"))["public"]
    held = await _ok(client, "GET", "/v1/registry/holdings")
    assert held["items"][0]["public"]
    await _ok(client, "DELETE", f"/v1/registry/images/train/{held['items'][0]['digest']}")


async def _stores(client: httpx.AsyncClient) -> None:
    """One: seen, reached and removed."""
    assert [one["name"] for one in (await _ok(client, "GET", "/v1/stores"))["items"]] == ["run-1"]
    given = await _ok(client, "POST", "/v1/stores/run-1/pass")
    assert given["url"].startswith("https://stores.example/")
    assert (await client.post("/v1/stores/none/pass")).status_code == 404
    await _ok(client, "DELETE", "/v1/stores/run-1")
    assert (await _ok(client, "GET", "/v1/stores"))["items"] == []


async def _service(client: httpx.AsyncClient, job: str) -> None:
    """Of one replica, met like a port."""
    service = "/v1/services/web"
    made = await _ok(client, "PUT", service, json={"auth": "public", "sticky": True})
    assert made["replicas"] == [] and made["url"]
    replica = f"{service}/replicas/{job}"
    await _ok(client, "PUT", replica, json={"port": 8888})
    assert (await _ok(client, "GET", service))["replicas"][0]["serving"] is True
    assert (await _ok(client, "GET", "/v1/services"))["items"]
    await _ok(client, "GET", f"{service}/load", params={"wait_s": 0})
    await _port(client, service)
    await _ok(client, "DELETE", replica)
    await _ok(client, "DELETE", service)


async def _job(
    client: httpx.AsyncClient, hosts: list[FakeAdapter], payer: FakePayer, session: Signer
) -> None:
    view = await _post(client, session, kind="service", ports=(Port(8888),))
    lease = await _sign(client, view, session)
    host = next(one for one in hosts if lease in one.leases)
    await until(lambda: host.leases[lease].signed)
    await host.progress(lease, "STARTED")
    job = f"/v1/jobs/{view['id']}"
    await state(client, view["id"], "RUNNING")

    async def answer(message: wire.Message) -> None:
        if isinstance(message, wire.BlobWanted):
            at = (message.lease, message.sha256, message.offset, len(FILE))
            await host.send(wire.BlobPart(*at, FILE[message.offset :]))
        elif isinstance(message, wire.ExecAsked):
            await host.send(wire.ExecDone(message.lease, message.call, 3, b"\xff said"))

    host.handler = answer
    assert (await _ok(client, "POST", f"{job}/exec", json={"command": ["x"]}))["exit_code"] == 3
    await _renewed(client, lease, session)
    await _port(client, f"{job}/ports/8888")
    await _service(client, view["id"])
    await _images(client)
    await host.send(wire.LogChunk(lease, 0, "stdout", b"hello\n"))
    await host.send(wire.Telemetry(lease, 1, {"cpu_milli": 7}))
    await host.send(wire.OutputReady(lease, "a", NAME, len(FILE)))

    async def there() -> list[Any]:
        return (await _ok(client, "GET", f"{job}/outputs"))["items"]

    await until(there)
    assert await _ok(client, "GET", f"{job}/outputs/{NAME}") == FILE.decode()
    receipt = await host.tick(lease)
    await until(lambda: host.paid(session.verify_key) == receipt.channel_owed)
    await host.finish(lease)
    await until(lambda: any(r.final for r in payer.receipts))
    await payer.end(session, receipt.channel_owed)
    await until(lambda: host.ends)
    await host.progress(lease, "SETTLED", tx="cd" * 32)
    await state(client, view["id"], "ENDED")
    for path in ("logs", "logs?follow=true", "events?follow=false"):
        assert "hello" in await _ok(client, "GET", f"{job}/{path}") or "events" in path
    for path in ("history", "telemetry", "receipts"):
        assert (await _ok(client, "GET", f"{job}/{path}"))["items"]
    assert (await _ok(client, "GET", f"{job}/invoice"))["channels"][0]["voucher"]


async def _renewed(client: httpx.AsyncClient, lease: str, session: Signer) -> None:
    at, more = f"/v1/leases/{lease}/renewal", {"duration_ms": 60_000, "budget": 1_000_000}
    offered = (await _ok(client, "POST", at, json=more))["renewal"]
    signature = session.sign(bytes.fromhex(offered["terms"])).hex()
    signed = await _ok(client, "POST", f"{at}/sign", json={"session_signature": signature})
    assert signed["ceiling"] == offered["ceiling"]


async def _again(client: httpx.AsyncClient, hosts: list[FakeAdapter]) -> None:
    """A job that is placed again with a fresh key, one that is declined, and one that is
    stopped.
    """
    session = Signer(os.urandom(32))
    view = await _post(client, session, policy=Policy(retry_on=("start_failed",), retry_max=1))
    lease = await sign_terms(client, view, session, "ab" * 32)
    host = next(one for one in hosts if lease in one.leases)
    await until(lambda: host.leases[lease].signed)
    await host.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    await host.finish(lease, "START_FAILED", 1)

    async def asked() -> bool:
        return bool((await _ok(client, "GET", f"/v1/jobs/{view['id']}"))["needs"])

    await until(asked)
    fresh = {"session_vk": Signer(os.urandom(32)).verify_key.hex()}
    await _ok(client, "POST", f"/v1/jobs/{view['id']}/resume", json=fresh)
    again = await quoted(client, view["id"])
    await _ok(client, "POST", f"/v1/leases/{again['quote']['lease']}/decline")
    other = await _post(client, Signer(os.urandom(32)))
    await _ok(client, "POST", f"/v1/jobs/{other['id']}/stop")
    await _ok(client, "GET", "/v1/jobs")


async def _gang(client: httpx.AsyncClient) -> None:
    keys = [Signer(os.urandom(32)) for _ in range(2)]
    asked = {
        "spec": spec(gang=Gang(2, spread=True), cluster=Cluster(2, mesh=True)).to_wire(),
        "session_vks": [key.verify_key.hex() for key in keys],
        "consumer_vkh": seed("consumer").key_hash.hex(),
    }
    gang = await _ok(client, "POST", "/v1/gangs", json=asked)
    await _ok(client, "GET", f"/v1/gangs/{gang['id']}")
    last = await quoted(client, gang["members"][1]["id"])
    lease = await sign_terms(client, last, keys[1], "ab" * 32)
    order = SignedOrder.sign(keys[1], ClusterOrder(lease, 1, Verb.MEET))
    told = {"body": order.body.hex(), "signature": order.signature.hex()}

    async def taken() -> bool:  # once it is its account's turn
        answer = await client.post(f"/v1/leases/{lease}/order", json=told)
        return answer.status_code == 200

    await until(taken)
    cluster = await _ok(client, "GET", f"/v1/gangs/{gang['id']}/cluster")
    assert cluster["members"][1]["order"] == told
    asked = {"number": FIRST_GUEST}
    given = await _ok(client, "POST", f"/v1/gangs/{gang['id']}/guest", json=asked)
    assert (given["count"], given["number"]) == (4, 3)
    await _ok(client, "POST", f"/v1/gangs/{gang['id']}/stop")
