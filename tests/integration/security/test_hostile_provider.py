"""A provider (and a market that helps it) against the real payer, over real sockets.

The payer's clock is driven, so that a minute takes no minute: what it signs may depend on nothing
else. The chain is left out: no rule of these is about it.
"""

from __future__ import annotations

import os
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from marketplace.client.net.clock import Stamp
from marketplace.client.payer.channel_payer import ChannelPayer, Paid
from marketplace.client.payer.journal import ChannelFacts
from marketplace.client.payer.payers import Payers
from marketplace.domain.keys import Signer
from marketplace.domain.money.receipt import Receipt, SignedReceipt
from marketplace.domain.money.terms import SignedTerms
from marketplace.domain.protocol import wire
from marketplace.domain.units import owed, unit_ms
from tests.fakes import FakeAdapter, gpu, offer, seed, spec, until, working
from tests.integration.market.test_spine import body, quoted, state
from tests.integration.support.market import fast, market, sign_in

RATE = 100_000_000  # micro-lovelace a GPU-second: 100 lovelace


@dataclass
class Clock:
    """The payer's own clock."""

    ms: int = 1_000_000

    def now(self) -> Stamp:
        return Stamp("a boot of the tests", self.ms, 1_800_000_000_000 + self.ms)


@dataclass
class Archive:
    """The market's receipts, as the payer reads them again."""

    known: list[SignedReceipt] = field(default_factory=list)

    async def between(self, job: str, first: int, last: int) -> list[SignedReceipt]:
        return [x for x in self.known if first <= x.receipt.seq <= last]


@dataclass
class Scene:
    """One running lease between a scripted adapter and the real payer."""

    adapter: FakeAdapter
    held: ChannelPayer
    lease: str
    clock: Clock
    heard: list[Paid]
    inside: Any
    archive: Archive

    @property
    def terms(self):
        return self.adapter.leases[self.lease].terms

    async def tick(self, ms: int) -> Receipt:
        """One receipt, once the payer has answered it."""
        receipt = await self.adapter.tick(self.lease, ms)
        await until(
            lambda: self.held.book.last is not None and self.held.book.last.seq == receipt.seq
        )
        await until(lambda: self.adapter.paid(receipt.session_vk) == self.held.book.signed)
        return receipt

    def collude(self, signed: SignedReceipt) -> None:
        """The market relays to the payer what it should have refused."""
        self.inside.parts.payers.tell(
            self.held.session_vk, wire.ReceiptSent(signed.receipt.lease, signed)
        )


@asynccontextmanager
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, archive, heard = Clock(), Archive(), list[Paid]()
    monkeypatch.setattr(Stamp, "now", staticmethod(clock.now))
    provider, consumer, session = seed("provider"), seed("consumer"), Signer(os.urandom(32))
    async with market(f"sqlite:///{tmp_path}/m.db", tmp_path, fast()) as (url, inside):
        adapter = FakeAdapter(url, provider, offer(provider, (gpu(0),)))
        payers = Payers(tmp_path / "books", url, 42, archive)

        async def hear(paid: Paid) -> None:
            heard.append(paid)

        payers.listen(hear)
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as client,
            working(adapter),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(payers.run)
            await sign_in(client, consumer)
            await until(lambda: adapter.welcomes and inside.market.directory.offers())
            asked = body(_gpu_job(), session, consumer)
            view = await quoted(client, (await client.post("/v1/jobs", json=asked)).json()["id"])
            quote = view["quote"]
            half = SignedTerms(
                bytes.fromhex(quote["terms"]), bytes.fromhex(quote["adapter_signature"])
            )
            facts = ChannelFacts(session.verify_key, url, 42, quote["provider"], "", 10**9)
            held = await payers.create(facts, session)
            both = await held.agree(half, half.terms.ceiling)
            await held.opened("ab" * 32, 0, 10**9)
            sent = {
                "session_signature": (both.session_signature or b"").hex(),
                "channel_tx": "ab" * 32,
            }
            answer = await client.post(f"/v1/leases/{quote['lease']}/sign", json=sent)
            assert answer.status_code == 200, answer.text
            lease = quote["lease"]
            await until(lambda: adapter.leases[lease].signed)
            await adapter.progress(lease, "STARTED")
            await state(client, view["id"], "RUNNING")
            await until(lambda: held.book.leases[lease].since_ms is not None)
            yield Scene(adapter, held, lease, clock, heard, inside, archive)
            tasks.cancel_scope.cancel()


def _gpu_job():
    from marketplace.domain.work.parts import GpuNeed, Policy, Price, Range, Resources

    need = Resources(cpu=Range(1000), memory=Range(256), gpu=GpuNeed(("T4",)))
    return spec(
        resources=(need,), price=Price(budget=50_000_000), policy=Policy(max_duration_ms=3_600_000)
    )


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Any) -> None:
    async def run() -> None:
        with anyio.fail_after(240):
            async with scene(tmp_path, monkeypatch) as at:
                await story(at)

    anyio.run(run)


def test_ten_per_cent_too_fast_for_a_minute_earns_a_tick_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Scene) -> None:
        assert at.terms.rate_micro == RATE and at.terms.tick_ms == 1000
        for _ in range(60):
            at.clock.ms += 1000
            await at.tick(1100)
        fair, signed = 60 * 100, at.held.book.signed
        run = at.adapter.leases[at.lease]
        assert run.last is not None and run.last.lease_owed == 66 * 100  # what it asked for
        assert fair <= signed <= fair + at.terms.tick_owed()
        assert at.adapter.paid(at.held.session_vk) == signed

        def notes() -> list[Paid]:
            return [n for n in at.heard if n.kind == "note"]

        # It is signed first and told then.
        await until(lambda: notes() and "the own clock 1m and one tick" in notes()[-1].message)
        assert {n.code for n in notes()} == {"NOT_SIGNED_CLOCK"}
        assert "not signed" in notes()[-1].message
        assert not [n for n in at.heard if n.kind == "refused"]

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("number", range(2))
def test_three_hundred_milliseconds_of_jitter_are_never_refused(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Scene) -> None:
        chance, begun = random.Random(number), at.clock.ms
        for tick in range(1, 31):
            at.clock.ms = (
                begun + tick * 1000 + chance.choice((-300, 300, chance.randint(-300, 300)))
            )
            receipt = await at.tick(1000)
            assert at.held.book.signed == receipt.channel_owed == tick * 100
        assert {n.kind for n in at.heard} <= {"tick", "stage"}

    play(tmp_path, monkeypatch, story)


def test_the_market_refuses_what_does_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Scene) -> None:
        adapter, lease = at.adapter, at.lease
        at.clock.ms += 3000
        first = adapter.receipt(lease, 1000)
        await adapter.send(wire.ReceiptSent(lease, first))
        second = adapter.receipt(lease, 1000)
        await adapter.send(wire.ReceiptSent(lease, second))
        await until(lambda: at.held.book.last is not None and at.held.book.last.seq == 2)
        honest = adapter.receipt(lease, 1000, wall_ms=1_900_000_000_000)  # not kept by the fake
        wrong = {
            "forged": SignedReceipt(honest.body, os.urandom(64)),
            "another's": SignedReceipt.sign(honest.receipt, seed("somebody")),
            "forked": SignedReceipt.sign(replace(second.receipt, wall_ms=7), adapter.signer),
            "reordered": adapter.receipt(lease, 1000, seq=5),
            "not chained": adapter.receipt(lease, 1000, previous=os.urandom(32)),
            "too dear": adapter.receipt(lease, 1000, lease_owed=10_000),
            "too long": adapter.receipt(lease, 1000, unit_ms_total=10_000_000),
            "other devices": adapter.receipt(lease, 1000, device=bytes(32)),
        }
        for count, (why, signed) in enumerate(wrong.items(), start=1):
            await adapter.send(wire.ReceiptSent(lease, signed))
            await until(lambda count=count: len(adapter.socket.rejected) == count)
            assert adapter.socket.rejected[-1].code == "RECEIPT_REFUSED", why
        before = at.held.book.signed
        await adapter.send(wire.ReceiptSent(lease, first))  # replayed: known, nothing happens
        await at.tick(1000)
        assert at.held.book.signed == before + 100 == 300
        assert len(adapter.socket.rejected) == len(wrong)
        assert not [n for n in at.heard if n.kind in ("refused", "note")]

    play(tmp_path, monkeypatch, story)


def test_a_market_that_helps_the_thief_earns_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Scene) -> None:
        adapter, lease = at.adapter, at.lease
        at.clock.ms += 60_000
        first = adapter.receipt(lease, 1000)
        await adapter.send(wire.ReceiptSent(lease, first))
        await until(lambda: adapter.paid(at.held.session_vk) == 100)
        await at.tick(1000)
        next_one = adapter.receipt(lease, 1000, wall_ms=1_900_000_000_000)
        gap = adapter.receipt(lease, 1000, seq=9)
        far = adapter.receipt(lease, 1000, seq=2**62)  # a gap that nobody walks through
        strange = SignedReceipt.sign(
            replace(next_one.receipt, lease="lease_nobody"), adapter.signer
        )
        for code, signed in (
            ("RECEIPT_FORGED", SignedReceipt(next_one.body, os.urandom(64))),
            ("RECEIPT_FORGED", SignedReceipt.sign(next_one.receipt, seed("somebody"))),
            ("RECEIPT_REORDERED", gap),
            ("RECEIPT_REORDERED", far),
            ("RECEIPT_FOREIGN", strange),
        ):
            count = len(_refusals(at))
            at.collude(signed)
            await until(lambda count=count: len(_refusals(at)) > count)
            assert _refusals(at)[-1] == code
            assert at.held.book.signed == 200 and not at.held.book.stopped
        # The answered one again gets no second payment, and says so only in the log.
        at.collude(first)
        await at.tick(1000)
        assert at.held.book.signed == adapter.paid(at.held.session_vk) == 300
        forked = SignedReceipt.sign(replace(first.receipt, wall_ms=7), adapter.signer)
        at.collude(forked)
        await until(lambda: at.held.book.stopped == "RECEIPT_FORKED")
        await until(lambda: _refusals(at)[-1] == "RECEIPT_FORKED")
        await until(lambda: adapter.stops == [lease])  # and the lease is asked to stop
        await adapter.tick(lease, 1000)
        await until(lambda: _refusals(at)[-1] == "PAYER_STOPPED")
        assert at.held.book.signed == adapter.paid(at.held.session_vk) == 300

    play(tmp_path, monkeypatch, story)


def test_a_wrong_sum_that_is_signed_ends_the_payments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(at: Scene) -> None:
        at.clock.ms += 60_000
        await at.tick(1000)
        dear = owed(unit_ms(2000, 1000), RATE) + 50
        at.collude(at.adapter.receipt(at.lease, 1000, lease_owed=dear, channel_owed=dear))
        await until(lambda: at.held.book.stopped == "RECEIPT_WRONG")
        await until(lambda: at.adapter.stops == [at.lease])
        assert at.held.book.signed == 100

    play(tmp_path, monkeypatch, story)


def _refusals(at: Scene) -> list[str]:
    return [n.code for n in at.heard if n.kind == "refused"]
