"""The same request twice at once is done once: through two market processes over one database."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import TxState
from marketplace.market.base.ports import ClaimRound, UnsignedTx
from marketplace.market.base.records import ApiKey, Audit, Hook, Job, Remembered, Tx
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted
from tests.integration.support.market import fast, market, postgres, sign_in

AT_ONCE = 8
FAR = 4_000_000_000_000


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
    else:
        with postgres() as url:
            yield url


class Builder:
    """A ledger whose every transaction is another one, as when the wallet's outputs have
    changed.
    """

    def __init__(self, asked: list[int]) -> None:
        self.built = 0
        self.asked = asked  # of all processes
        self.sent: list[bytes] = []
        self.same = False

    async def network(self) -> dict[str, Any]:
        return {"magic": 42, "chain_url": ""}

    async def fees(self) -> None:
        return None

    async def reserve(self, terms: object) -> int:
        return 2_000_000

    async def unsigned_open(
        self, terms: Terms, amount: int, address: str, utxos: Sequence[bytes]
    ) -> UnsignedTx:
        number, self.built = self.built, self.built + 1
        self.asked.append(number)
        with anyio.move_on_after(20):
            while len(self.asked) < 2:  # noqa: ASYNC110  nobody is first before others have asked
                await anyio.sleep(0.01)
        made = b"same" if self.same else f"{id(self)} {number}".encode()
        told = {"step": "open", "amount": amount, "session_vk": terms.session_vk.hex()}
        return UnsignedTx(hashlib.sha256(made).hexdigest(), made, 170_000, told)

    async def witness(self, tx: bytes, witnesses: bytes) -> tuple[str, bytes]:
        unsigned = tx.removesuffix(witnesses)  # as the chain's own: witnesses are put in once
        return hashlib.sha256(unsigned).hexdigest(), unsigned + witnesses

    async def submit(self, signed: bytes) -> str:
        self.sent.append(signed)
        return hashlib.sha256(signed[:-3]).hexdigest()

    async def claim(self, channels: object) -> ClaimRound:
        return ClaimRound([], {})


@asynccontextmanager
async def two(db: str, tmp_path: Path):
    """(askers, market, ledgers): clients of two processes in turn, signed in as one account."""
    asked: list[int] = []
    patient = fast(propose_ttl_ms=60_000, quote_ttl_ms=600_000)  # eight at once, on a busy machine
    ledgers = Builder(asked), Builder(asked)
    async with (
        market(db, tmp_path, patient, ledger=ledgers[0]) as (url, run),
        market(db, tmp_path, patient, ledger=ledgers[1]) as (other, _),
        httpx.AsyncClient(base_url=url, timeout=60) as one,
        httpx.AsyncClient(base_url=other, timeout=60) as second,
    ):
        await sign_in(one, seed("consumer"))
        second.headers["Authorization"] = one.headers["Authorization"]
        yield [one, second] * (AT_ONCE // 2), run.market, ledgers


async def at_once(
    askers: list[httpx.AsyncClient], path: str, sent: dict[str, Any], key: str = "k"
) -> list[httpx.Response]:
    """The same POST by everybody, none waiting for another; none may fail."""
    answers: list[httpx.Response] = []
    headers = {"Idempotency-Key": key} if key else {}

    async def ask(client: httpx.AsyncClient) -> None:
        answers.append(await client.post(path, json=sent, headers=headers))

    async with anyio.create_task_group() as tasks:
        for client in askers:
            tasks.start_soon(ask, client)
    assert len(answers) == AT_ONCE
    return answers


def one_of(answers: list[httpx.Response], name: str = "id") -> dict[str, Any]:
    """All say the same thing; one of them did it. Its answer."""
    assert {a.status_code for a in answers} <= {200, 201}, [a.text for a in answers]
    assert len({a.json()[name] for a in answers}) == 1
    first = [a for a in answers if "Idempotent-Replay" not in a.headers]
    assert len(first) == 1
    return first[0].json()


async def reused(client: httpx.AsyncClient, path: str, sent: dict[str, Any]) -> None:
    """The same key for another request is refused."""
    answer = await client.post(path, json=sent, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert answer.json()["remedy"]


def test_keys_and_webhooks_are_made_once(db: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with two(db, tmp_path) as (askers, inside, _):
            asked = {"name": "ci", "verbs": ["read", "keys"], "budget": 100, "expires_at_ms": FAR}
            made = await at_once(askers, "/v1/keys", asked)
            secret = one_of(made)["secret"]
            assert [a.json()["secret"] for a in made].count(None) == AT_ONCE - 1
            assert await inside.store.count(ApiKey) == 1
            assert await inside.store.count(Audit, action="key.new") == 1
            await reused(askers[0], "/v1/keys", {**asked, "name": "other"})

            # A key that makes keys commits its own budget once.
            bearer = {"Authorization": f"Bearer {secret}"}
            for client in set(askers):
                client.headers.update(bearer)
            child = {"name": "sub", "verbs": ["read"], "budget": 60, "expires_at_ms": FAR - 1}
            one_of(await at_once(askers, "/v1/keys", child, "child"))
            assert {k.committed for k in await inside.store.find(ApiKey)} == {0, 60}

    async def hooks() -> None:
        async with two(db, tmp_path) as (askers, inside, _):
            hook = {"url": "https://example.org/hook", "kinds": []}
            made = one_of(await at_once(askers, "/v1/webhooks", hook, "hook"))
            assert await inside.store.count(Hook) == 1
            path = f"/v1/webhooks/{made['id']}/rotate"
            turned = one_of(await at_once(askers, path, {}, "turn"))
            assert turned["rotation"] == 2 and turned["secret"] != made["secret"]
            # Without a key each is its own request; what collides is refused, and none is lost.
            answers = await at_once(askers, path, {}, "")
            done = [a for a in answers if a.status_code == 201]
            assert done and {a.status_code for a in answers} <= {201, 409}
            stored = await inside.store.get(Hook, made["id"])
            assert stored is not None and stored.rotation == 2 + len(done)

    anyio.run(run)
    anyio.run(hooks)


def test_jobs_signatures_and_transactions_are_made_once(db: str, tmp_path: Path) -> None:
    provider = seed("provider")

    async def run() -> None:
        async with two(db, tmp_path) as (askers, inside, ledgers):
            adapter = FakeAdapter(str(askers[0].base_url).rstrip("/"), provider,
                                  offer(provider, (gpu(0),)))  # fmt: skip
            async with working(adapter):
                for client in set(askers):

                    async def listed(client: httpx.AsyncClient = client) -> Any:
                        return (await client.get("/v1/offers")).json()["items"]

                    await until(listed)
                await _rent(askers, inside, ledgers)
                await _too_late(askers[0], inside, ledgers)

    anyio.run(run)


async def _rent(askers: list[httpx.AsyncClient], inside: Any, ledgers: Sequence[Builder]) -> None:
    session, address = Signer(os.urandom(32)), "addr_test1" + "q" * 50
    asked = body(spec(), session, seed("consumer"))
    posted = await at_once(askers, "/v1/jobs", asked)
    assert {a.status_code for a in posted} <= {201, 409}, [a.text for a in posted]
    assert len({a.json()["id"] for a in posted if a.status_code == 201}) == 1
    assert await inside.store.count(Job) == 1
    await reused(askers[0], "/v1/jobs", {**asked, "channels": ["00" * 32]})
    job = next(a.json()["id"] for a in posted if a.status_code == 201)
    view = await quoted(askers[0], job)
    lease = view["quote"]["lease"]

    # Every asker builds a transaction; one is kept, and everybody is given that one.
    want = {"lease": lease, "address": address, "amount": 0, "utxos": []}
    opened = one_of(await at_once(askers, "/v1/channels", want, "open"), "tx")
    assert sum(ledger.built for ledger in ledgers) > 1, "they did build at once"
    assert [tx.id for tx in await inside.store.find(Tx)] == [opened["tx"]]
    again = await askers[1].post("/v1/channels", json=want, headers={"Idempotency-Key": "open"})
    assert again.json() == opened and again.headers["Idempotent-Replay"] == "true"
    for ledger in ledgers:
        ledger.same = True  # without a key, and the same bytes each time: that is no conflict
    answers = await at_once(askers, "/v1/channels", want, "")
    assert {a.status_code for a in answers} == {200} and len({a.json()["tx"] for a in answers}) == 1
    unlike = answers[0].json()["tx"]

    # The witnesses are stored once, and nothing else is ever sent; the terms are signed once.
    path = f"/v1/channels/{session.verify_key.hex()}/witness"
    witnessed = {"tx": opened["tx"], "witness": "a0a0a0"}
    answers = await at_once(askers, path, witnessed, "")
    assert {a.status_code for a in answers} == {200}, [a.text for a in answers]
    assert await inside.store.count(Audit, action="tx.submit") == 1
    sent = {one for ledger in ledgers for one in ledger.sent}
    assert sent == {bytes.fromhex(opened["cbor"]) + b"\xa0\xa0\xa0"}
    second = {"tx": unlike, "witness": "a0a0a0"}  # another page had it built: one open is sent
    answers = await at_once(askers, path, second, "")
    assert {(a.status_code, a.json()["code"]) for a in answers} == {(409, "CONFLICT")}
    signed = {
        "session_signature": session.sign(bytes.fromhex(view["quote"]["terms"])).hex(),
        "channel_tx": opened["tx"],
    }
    answers = await at_once(askers, f"/v1/leases/{lease}/sign", signed, "")
    assert {a.status_code for a in answers} == {200}, [a.text for a in answers]
    assert await inside.store.count(Audit, action="lease.sign") == 1
    assert await inside.store.count(Remembered) == 2  # the job's and the transaction's


async def _too_late(client: httpx.AsyncClient, inside: Any, ledgers: Sequence[Builder]) -> None:
    """An open whose quote is over is sent by nobody: its money would lie in a channel of no job."""
    session, address = Signer(os.urandom(32)), "addr_test1" + "q" * 50
    for ledger in ledgers:
        ledger.same = False
    posted = await client.post("/v1/jobs", json=body(spec(), session, seed("consumer")))
    lease = (await quoted(client, posted.json()["id"]))["quote"]["lease"]
    want = {"lease": lease, "address": address, "amount": 0, "utxos": []}
    opened = (await client.post("/v1/channels", json=want)).json()["tx"]
    (await client.post(f"/v1/leases/{lease}/decline")).raise_for_status()
    before = [list(ledger.sent) for ledger in ledgers]
    path = f"/v1/channels/{session.verify_key.hex()}/witness"
    late = await client.post(path, json={"tx": opened, "witness": "a0a0a0"})
    assert (late.status_code, late.json()["code"]) == (409, "QUOTE_GONE")
    assert [list(ledger.sent) for ledger in ledgers] == before
    kept = await inside.store.get(Tx, opened)
    assert kept.state is TxState.BUILT and kept.version == 0
