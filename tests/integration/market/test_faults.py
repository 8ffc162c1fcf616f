"""What goes wrong in a market, over real sockets: silent, declining, lying and vanishing
providers.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx

from marketplace.domain.keys import Signer
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import GpuNeed, Policy, Range, Resources
from marketplace.domain.work.workload import Egress, EgressMode
from marketplace.market.base.settings import Settings
from tests.fakes import FakeAdapter, FakePayer, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted, sign, state
from tests.integration.support.market import FAST, fast, market, sign_in


@asynccontextmanager
async def at_market(tmp_path, *adapters: Any, settings: Settings = FAST):
    """A market with these adapters listed, and a client that is signed in."""
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, settings) as (url, run):
        fakes = [make(url) for make in adapters]
        async with httpx.AsyncClient(base_url=url, timeout=30) as client, working(*fakes) as tasks:
            await sign_in(client, seed("consumer"))

            async def listed():
                items = (await client.get("/v1/offers")).json()["items"]
                return len(items) == len(fakes)

            await until(listed)
            yield client, run, tasks, *fakes


def adapter(name: str, answer: str = "", rate: int = 5_000_000, **more: Any):
    key = seed(name)

    def make(url: str) -> FakeAdapter:
        made = offer(key, core_rate=rate, **more)
        return FakeAdapter(url, key, made, answer=lambda _: answer)

    return make


async def post(client: httpx.AsyncClient, job, **more: Any) -> tuple[dict[str, Any], Signer]:
    session = Signer(os.urandom(32))
    answer = await client.post("/v1/jobs", json=body(job, session, seed("consumer"), **more))
    assert answer.status_code == 201, answer.text
    return answer.json(), session


def test_declined_goes_to_the_next_provider(tmp_path) -> None:
    async def run() -> None:
        cheap, dear = adapter("cheap", "BUSY", 1_000_000), adapter("dear")
        async with at_market(tmp_path, cheap, dear) as (client, _, _, no, yes):
            view, _ = await post(client, spec())
            view = await quoted(client, view["id"])
            assert view["provider"] == yes.signer.verify_key.hex()
            assert any(isinstance(m, wire.LeaseProposed) for m in no.asked)

    anyio.run(run)


def test_silence_is_swept_to_the_next_provider(tmp_path) -> None:
    async def run() -> None:
        cheap, dear = adapter("cheap", "silent", 1_000_000), adapter("dear")
        async with at_market(tmp_path, cheap, dear) as (client, _, _, mute, yes):
            view, _ = await post(client, spec())
            view = await quoted(client, view["id"])
            assert view["provider"] == yes.signer.verify_key.hex()
            await until(lambda: mute.cancelled)

    anyio.run(run)


def test_nobody_left_ends_with_a_reason(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("only", "BUSY")) as (client, *_):
            view, _ = await post(client, spec())
            ended = await state(client, view["id"], "ENDED")
            assert ended["reason"] == "DECLINED" and ended["explain"]["hosts"] == 1

    anyio.run(run)


def test_no_match_says_why_and_what_would(tmp_path) -> None:
    async def run() -> None:
        small = adapter("gpus", gpus=(gpu(0),))
        async with at_market(tmp_path, small) as (client, *_):
            wants = Resources(Range(1000), Range(256), Range(0), GpuNeed(vram=Range(40_000)))
            session = Signer(os.urandom(32))
            asked = body(spec(resources=(wants,)), session, seed("consumer"))
            answer = await client.post("/v1/jobs", json=asked)
            assert answer.status_code == 422
            problem = answer.json()
            assert problem["code"] == "NO_MATCH"
            assert problem["fields"]["explain"]["reasons"]["vram"] == 1
            assert "vram 16 GB" in problem["fields"]["explain"]["relaxations"][0]["change"]
            assert (await client.get("/v1/jobs")).json()["items"] == []

    anyio.run(run)


def test_egress_that_nobody_allows_is_refused_by_name_and_matched_where_one_does(tmp_path) -> None:
    async def run() -> None:
        closed, opened = adapter("closed", rate=1_000_000), adapter("open", egress=True)
        asks = spec(egress=Egress(EgressMode.OPEN))
        async with at_market(tmp_path, closed) as (client, *_):
            asked = body(asks, Signer(os.urandom(32)), seed("consumer"))
            problem = (await client.post("/v1/jobs", json=asked)).json()
            assert problem["code"] == "NO_MATCH"
            why = problem["fields"]["explain"]
            assert why["reasons"] == {"egress": 1} and "1 allow no egress" in why["text"]
            assert why["relaxations"][0]["change"] == "no egress"
            assert why["relaxations"][0]["hosts"] == 1
        async with at_market(tmp_path, closed, opened) as (client, *_):
            view, _ = await post(client, asks)  # the dearer one: the cheap one allows none
            view = await quoted(client, view["id"])
            assert view["provider"] == seed("open").verify_key.hex()
            plain, _ = await post(client, spec())
            plain = await quoted(client, plain["id"])
            assert plain["provider"] == seed("closed").verify_key.hex()

    anyio.run(run)


def test_a_lapsed_quote_ends_and_frees_the_device(tmp_path) -> None:
    async def run() -> None:
        one = adapter("one", gpus=(gpu(0),))
        settings = fast(quote_ttl_ms=3_000)  # it is seen before it lapses, on a busy machine too
        async with at_market(tmp_path, one, settings=settings) as (client, *_):
            wants = (Resources(Range(1000), Range(256), Range(0), GpuNeed()),)
            view, _ = await post(client, spec(resources=wants))
            await quoted(client, view["id"])
            ended = await state(client, view["id"], "ENDED")
            assert ended["reason"] == "QUOTE_EXPIRED"
            again, _ = await post(client, spec(resources=wants))
            await quoted(client, again["id"])

    anyio.run(run)


def test_one_device_is_leased_once_and_the_queue_gets_it_next(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one", gpus=(gpu(0),))) as (client, *_):
            wants = (Resources(Range(1000), Range(256), Range(0), GpuNeed()),)
            first, _ = await post(client, spec(resources=wants))
            await quoted(client, first["id"])
            waits = spec(resources=wants, policy=Policy(max_duration_ms=60_000, queue=True))
            second, _ = await post(client, waits)
            assert second["state"] == "QUEUED"
            stopped = await client.post(f"/v1/jobs/{first['id']}/stop")
            assert stopped.json()["state"] == "ENDED"
            view = await quoted_late(client, second["id"])
            assert view["quote"]["lease"]

    anyio.run(run)


async def quoted_late(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    return await state(client, job, "QUOTED")


async def _running(client, fake: FakeAdapter, view, session: Signer) -> str:
    view = await quoted(client, view["id"])
    lease = await sign(client, view, session, os.urandom(32).hex())
    await until(lambda: fake.leases[lease].signed)
    await fake.progress(lease, "STARTED")
    await state(client, view["id"], "RUNNING")
    return lease


def test_lies_in_receipts_are_refused_and_not_relayed(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("liar")) as (client, _, tasks, liar):
            view, session = await post(client, spec())
            lease = await _running(client, liar, view, session)
            payer = FakePayer(str(client.base_url).rstrip("/"), {session.verify_key: session})
            tasks.start_soon(payer.socket.run)
            await until(lambda: payer.subscribed)
            honest = await liar.tick(lease)
            lies: list[dict[str, Any]] = [
                {"lease_owed": 10_000}, {"seq": 9}, {"previous": bytes(32)},
                {"device": bytes(32)}, {"channel_owed": 1_000_000}, {"t0_ms": 5},
            ]  # fmt: skip
            for lie in lies:
                await liar.send(wire.ReceiptSent(lease, liar.receipt(lease, 1000, **lie)))
            await until(lambda: len(liar.socket.rejected) == len(lies))
            assert {r.code for r in liar.socket.rejected} == {"RECEIPT_REFUSED"}
            good = await liar.tick(lease)
            vk = session.verify_key
            await until(lambda: vk in liar.vouchers
                        and liar.vouchers[vk].cumulative == good.channel_owed)  # fmt: skip
            assert [r.seq for r in payer.receipts] == [honest.seq, good.seq]
            payer.socket.stopped = True

    anyio.run(run)


def test_vouchers_are_kept_by_greatness_and_forgeries_refused(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one")) as (client, _, tasks, one):
            view, session = await post(client, spec())
            lease = await _running(client, one, view, session)
            url = str(client.base_url).rstrip("/")
            payer = FakePayer(url, {session.verify_key: session}, pays=False)
            stranger = FakePayer(url, {})
            tasks.start_soon(payer.socket.run)
            tasks.start_soon(stranger.socket.run)
            await until(lambda: payer.subscribed)
            await one.tick(lease)
            for cumulative in (5, 9, 7):
                voucher = Voucher.sign(session, cumulative)
                await payer.socket.send(wire.VoucherSent(lease, voucher))
            forged = Voucher(session.verify_key, 100, bytes(64))
            await payer.socket.send(wire.VoucherSent(lease, forged))
            await until(lambda: payer.socket.rejected)
            assert payer.socket.rejected[0].code == "VOUCHER_REFUSED"
            theirs = wire.VoucherSent(lease, Voucher.sign(session, 8))
            await stranger.socket.send(theirs)
            await until(lambda: stranger.socket.rejected)
            assert stranger.socket.rejected[0].code == "FORBIDDEN"

            async def stored():
                row = (await client.get(f"/v1/channels/{session.verify_key.hex()}")).json()
                return row["voucher"] is not None and row["voucher"]["cumulative"] == 9

            await until(stored)
            payer.socket.stopped = stranger.socket.stopped = True

    anyio.run(run)


def test_a_lost_provider_is_replaced_within_the_budget(tmp_path) -> None:
    async def run() -> None:
        one, two = adapter("one", rate=1_000_000_000), adapter("two", rate=2_000_000_000)
        async with at_market(tmp_path, one, two) as (client, _, _, first, second):
            job = spec(
                policy=Policy(max_duration_ms=3_600_000, retry_on=("provider_lost",), retry_max=1)
            )
            spare = Signer(os.urandom(32))
            view, session = await post(client, job, spares=[spare.verify_key.hex()])
            lease = await _running(client, first, view, session)
            paid = await first.tick(lease, 2000)
            await until(lambda: _ticks(client, view["id"], 1))
            first.socket.stopped = True
            await first.socket.live.close()
            view = await quoted_late(client, view["id"])
            assert view["provider"] == second.signer.verify_key.hex()
            assert view["quote"]["ceiling"] == 5_000_000 - paid.lease_owed
            assert view["quote"]["session_vk"] == spare.verify_key.hex()
            await _running(client, second, view, spare)

    anyio.run(run)


async def _ticks(client: httpx.AsyncClient, job: str, count: int) -> bool:
    return (await client.get(f"/v1/jobs/{job}")).json()["ticks"] >= count


def test_without_retry_a_lost_provider_ends_the_job_and_says_so(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one")) as (client, _, _, one):
            view, session = await post(client, spec())
            await _running(client, one, view, session)
            one.socket.stopped = True
            await one.socket.live.close()
            ended = await state(client, view["id"], "ENDED")
            assert ended["reason"] == "PROVIDER_LOST"

    anyio.run(run)


def test_a_short_absence_loses_nothing(tmp_path) -> None:
    async def run() -> None:
        settings = fast(resume_window_ms=60_000)
        async with at_market(tmp_path, adapter("one"), settings=settings) as (client, _, _, one):
            view, session = await post(client, spec())
            lease = await _running(client, one, view, session)
            before = one.welcomes
            await one.socket.live.close()
            await one.tick(lease)
            await until(lambda: one.welcomes > before)
            await until(lambda: _ticks(client, view["id"], 1))
            assert (await client.get(f"/v1/jobs/{view['id']}")).json()["state"] == "RUNNING"

    anyio.run(run)


def test_a_ghost_lease_ends_when_its_adapter_forgot_it(tmp_path) -> None:
    async def run() -> None:
        settings = fast(resume_window_ms=60_000)
        async with at_market(tmp_path, adapter("one"), settings=settings) as (client, _, _, one):
            view, session = await post(client, spec())
            await _running(client, one, view, session)
            one.forget = True
            await one.socket.live.close()
            ended = await state(client, view["id"], "ENDED")
            assert ended["reason"] == "PROVIDER_LOST"

    anyio.run(run)


def test_stop_reaches_the_adapter_and_the_reason_is_kept(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one")) as (client, _, _, one):
            view, session = await post(client, spec())
            lease = await _running(client, one, view, session)
            answer = await client.post(f"/v1/jobs/{view['id']}/stop", json={})
            assert answer.json()["state"] == "ENDING"
            await until(lambda: lease in one.stops)
            await one.finish(lease, "CANCELLED", 143)
            ended = await state(client, view["id"], "ENDED")
            assert (ended["reason"], ended["exit_code"]) == ("CANCELLED", 143)

    anyio.run(run)


def test_secrets_are_never_stored_in_clear_and_dropped_at_the_start(tmp_path) -> None:
    async def run() -> None:
        async with at_market(tmp_path, adapter("one")) as (client, run_, _, one):
            view, session = await post(client, spec(secrets=("TOKEN",)))
            view = await quoted(client, view["id"])
            quote = view["quote"]
            terms = bytes.fromhex(quote["terms"])
            sealed = os.urandom(40)
            answer = await client.post(
                f"/v1/leases/{quote['lease']}/sign",
                json={"session_signature": session.sign(terms).hex(), "channel_tx": "ab" * 32,
                      "secrets": {"TOKEN": sealed.hex()}},
            )  # fmt: skip
            assert answer.status_code == 200 and sealed.hex() not in answer.text
            signed = await until(lambda: [m for m in one.asked if isinstance(m, wire.LeaseSigned)])
            assert signed[0].secrets == {"TOKEN": sealed}
            await one.progress(quote["lease"], "STARTED")
            await state(client, view["id"], "RUNNING")
            lease, _ = await run_.market.lease(quote["lease"])
            assert lease.secrets == {}

    anyio.run(run)
