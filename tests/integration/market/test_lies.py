"""What a lying provider says costs nobody else anything: no strike, no name, no room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import Offer, offer_id
from marketplace.market.base.records import (
    Event,
    Lease,
    LogRecord,
    OfferRecord,
    Output,
    Standing,
    Tx,
    VoucherRecord,
)
from marketplace.market.leases import adapters
from tests.fakes import FakeAdapter, FakePayer, offer, seed, spec, until, working
from tests.integration.market.test_access import open_market
from tests.integration.market.test_spine import body, quoted, sign, state


async def started(client: Any, adapter: FakeAdapter, session: Signer) -> tuple[str, str]:
    """(job, lease), which runs."""
    answer = await client.post("/v1/jobs", json=body(spec(), session, seed("consumer")))
    assert answer.status_code == 201, answer.text
    view = await quoted(client, answer.json()["id"])
    lease = await sign(client, view, session, "ab" * 32)
    await until(lambda: bool(adapter.leases[lease].signed))
    for stage in ("CHANNEL_SEEN", "STARTED"):
        await adapter.progress(lease, stage)
    await state(client, view["id"], "RUNNING")
    return view["id"], lease


@pytest.mark.parametrize("receipt", ["none", "answered", "just now"])
def test_unpaid_without_a_receipt_that_was_left_unanswered_is_held_against_nobody(
    tmp_path: Path, receipt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if receipt == "just now":  # as long as a busy machine takes from one message to the next
        monkeypatch.setattr(adapters, "ANSWER_MS", 60_000)

    async def run() -> None:
        session = Signer(os.urandom(32))
        async with open_market(tmp_path) as (client, inside, adapter):
            payer = FakePayer(str(client.base_url), {session.verify_key: session}, pays=False)
            async with working(payer):
                await until(lambda: bool(payer.subscribed))
                job, lease = await started(client, adapter, session)
                if receipt != "none":
                    await adapter.tick(lease)
                    await until(lambda: bool(payer.receipts))
                if receipt == "answered":
                    paid = Voucher.sign(session, payer.receipts[-1].channel_owed)
                    await payer.socket.send(wire.VoucherSent(lease, paid))

                    async def there() -> bool:
                        vk = session.verify_key
                        return await inside.market.store.get(VoucherRecord, vk) is not None

                    await until(there)
                    await anyio.sleep(1.2)
                adapter.leases[lease].finished = True
                await adapter.progress(lease, "FINISHED", reason="UNPAID", exit_code=0, message="")
                await state(client, job, "ENDING", "ENDED")
                known = await inside.market.store.get(Standing, seed("consumer").key_hash.hex())
                assert known is None or (known.strikes, known.owing) == (0, [])
                over = await inside.market.store.get(Lease, lease)
                assert over is not None and over.reason == "PROVIDER_FAULT"

    anyio.run(run)


def test_the_id_of_an_offer_belongs_to_the_key_that_it_follows_from(tmp_path: Path) -> None:
    async def run() -> None:
        victim, thief = Signer(os.urandom(32)), Signer(os.urandom(32))
        name = offer_id(victim.verify_key.hex())
        async with open_market(tmp_path) as (client, inside, _):
            url = str(client.base_url)
            bad = FakeAdapter(url, thief, offer(thief, id=name))
            good = FakeAdapter(url, victim, offer(victim))
            async with working(bad):
                await until(lambda: bool(bad.socket.rejected))
                assert bad.socket.rejected[0].code == "OFFER_REFUSED"
                assert await inside.market.store.get(OfferRecord, name) is None
                async with working(good):

                    async def listed() -> bool:
                        return (await client.get(f"/v1/offers/{name}")).status_code == 200

                    await until(listed)
                    shown = (await client.get(f"/v1/offers/{name}")).json()
                    assert shown["provider"] == victim.verify_key.hex()
                    assert not good.socket.rejected

    anyio.run(run)


def test_an_adapter_that_would_not_understand_a_job_is_told_so_and_not_listed(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with open_market(tmp_path) as (client, _, _):
            signer, supply = _older()
            old = FakeAdapter(str(client.base_url), signer, supply)
            async with working(old):
                await until(lambda: bool(old.socket.rejected))
                assert old.socket.rejected[0].code == "ADAPTER_OUTDATED"
                assert (await client.get(f"/v1/offers/{supply.id}")).status_code == 404

    anyio.run(run)


def _older() -> tuple[Signer, Offer]:
    """An adapter's key and its offer, as adapters sent them that read version 1 of a job only."""
    signer = Signer(os.urandom(32))
    wire_form = offer(signer).to_wire()
    wire_form.pop("job_version")
    return signer, Offer.from_wire(wire_form)


def test_what_a_provider_has_stored_for_one_lease_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty chunks of log, outputs without a byte, stages that it made up, ends that never were."""
    monkeypatch.setattr(adapters, "MOST_OUTPUTS", 20)
    monkeypatch.setattr(adapters, "MOST_EVENTS", 30)

    async def run() -> None:
        session = Signer(os.urandom(32))
        async with open_market(tmp_path, log_limit=20 * adapters.LOG_ROW) as (client, inside, own):
            job, lease = await started(client, own, session)
            for n in range(60):
                await own.send(wire.LogChunk(lease, n, "stdout", b"x" if n % 2 else b""))
                await own.send(wire.OutputReady(lease, f"p{n:06d}/" + "x" * 900, "ab" * 32, 0))
                await own.progress(
                    lease, f"STAGE{n}", words="y" * 5_000, **{f"k{i}": i for i in range(90)}
                )
                await own.progress(lease, "SETTLED", tx=os.urandom(32).hex())
            await own.send(wire.LogChunk(lease, 1_000, "stdout", b"the last"))
            store = inside.market.store

            async def taken() -> bool:
                last = await store.find(LogRecord, lease=lease, offset=1_000, limit=1)
                return bool(last)

            await until(taken)
            assert await store.count(LogRecord, lease=lease) <= 20
            assert await store.count(Output, job=job) == 20
            events = await store.find(Event, job=job, limit=1_000)
            assert len(events) <= 31
            assert all(len(str(one.detail)) < 1_200 for one in events)
            named = await store.find(Tx, lease=lease)
            assert len(named) == 20 and {one.kind for one in named} == {"finish"}

    anyio.run(run)
