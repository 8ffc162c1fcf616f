"""One job from offer to invoice over real sockets, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
from typing import Any

import anyio
import httpx
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import SignedReceipt, check_next
from marketplace.domain.money.terms import SignedTerms
from tests.fakes import FakeAdapter, FakePayer, gpu, offer, seed, spec, until, working
from tests.integration.support.market import market, postgres, sign_in


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/market.db"
    else:
        with postgres() as url:
            yield url


def body(job, session: Signer, consumer: Signer, **more: Any) -> dict[str, Any]:
    return {
        "spec": job.to_wire(),
        "session_vk": session.verify_key.hex(),
        "consumer_vkh": consumer.key_hash.hex(),
        **more,
    }


async def quoted(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    async def look():
        view = (await client.get(f"/v1/jobs/{job}")).json()
        assert view["state"] in ("POSTED", "QUEUED", "QUOTED"), view
        return view if view["state"] == "QUOTED" else None

    return await until(look)


async def state(client: httpx.AsyncClient, job: str, *wanted: str) -> dict[str, Any]:
    async def look():
        view = (await client.get(f"/v1/jobs/{job}")).json()
        return view if view["state"] in wanted else None

    return await until(look)


async def sign(client: httpx.AsyncClient, view: dict[str, Any], session: Signer, tx: str) -> str:
    quote = view["quote"]
    signed = SignedTerms(bytes.fromhex(quote["terms"]), bytes.fromhex(quote["adapter_signature"]))
    terms = signed.verify_adapter()
    assert terms.session_vk == session.verify_key
    answer = await client.post(
        f"/v1/leases/{quote['lease']}/sign",
        json={"session_signature": session.sign(signed.body).hex(), "channel_tx": tx},
    )
    assert answer.status_code == 200, answer.text
    return quote["lease"]


def test_a_job_from_offer_to_invoice(db: str, tmp_path) -> None:
    anyio.run(_spine, db, tmp_path)


async def _spine(db: str, tmp_path) -> None:
    provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
    async with market(db, tmp_path) as (url, _):
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
        payer = FakePayer(url, {session.verify_key: session})
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(adapter, payer):
            await sign_in(client, consumer)

            async def listed():
                return (await client.get("/v1/offers")).json()["items"]

            await until(listed)
            posted = await client.post("/v1/jobs", json=body(spec(), session, consumer))
            assert posted.status_code == 201, posted.text
            view = await quoted(client, posted.json()["id"])
            job = view["id"]
            lease = await sign(client, view, session, "ab" * 32)
            assert view["quote"]["channel"] == "fresh"
            await until(lambda: adapter.leases[lease].signed)
            for stage in ("CHANNEL_SEEN", "PULLING", "STARTING", "STARTED"):
                await adapter.progress(lease, stage)
            await state(client, job, "RUNNING")
            for printed in (b"hel", b"hello\n", b"hell"):  # as one that begins again sends it
                await adapter.send(_log(lease, printed))

            async def paid_tick():
                receipt = await adapter.tick(lease)
                await until(lambda: adapter.paid(session.verify_key) == receipt.channel_owed)
                return receipt

            await paid_tick()
            await paid_tick()
            receipt = await paid_tick()
            assert receipt.lease_owed == 3 * 5
            await adapter.finish(lease)
            await until(lambda: any(r.final for r in payer.receipts))
            await payer.end(session, receipt.channel_owed)
            await until(lambda: adapter.ends)
            await adapter.progress(lease, "SETTLED", tx="cd" * 32)
            ended = await state(client, job, "ENDED")
            assert (ended["reason"], ended["exit_code"], ended["spent"]) == ("COMPLETED", 0, 15)

            async def named() -> bool:  # its end may have been counted before the adapter's word
                view = (await client.get(f"/v1/jobs/{job}")).json()
                return {t["id"] for t in view["transactions"]} == {"ab" * 32, "cd" * 32}

            await until(named)
            assert (await client.get(f"/v1/jobs/{job}/logs")).text == "hello\n"
            await _check_invoice(client, job, provider)


def _log(lease: str, data: bytes):
    from marketplace.domain.protocol import wire

    return wire.LogChunk(lease, 0, "stdout", data)


async def _check_invoice(client: httpx.AsyncClient, job: str, provider: Signer) -> None:
    """Recompute it as a stranger would: signatures, chain, sums."""
    invoice = (await client.get(f"/v1/jobs/{job}/invoice")).json()
    part, channel = invoice["leases"][0], invoice["channels"][0]
    terms = SignedTerms(
        bytes.fromhex(part["terms"]),
        bytes.fromhex(part["adapter_signature"]),
        bytes.fromhex(part["session_signature"]),
    ).verify()
    before = None
    for row in channel["receipts"]:
        signed = SignedReceipt(bytes.fromhex(row["body"]), bytes.fromhex(row["signature"]))
        receipt = signed.verify(provider.verify_key)
        check_next(receipt, before, before, terms.rate_micro)
        before = receipt
    assert before is not None and before.final
    assert channel["voucher"]["cumulative"] == before.channel_owed == 15
