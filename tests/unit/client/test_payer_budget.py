"""A job's budget is a hard cap: a provider that was given up, and comes back, does not pass it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from marketplace.chain.encoding.utxo import OutRef
from marketplace.client.jobs.core.quotes import QuoteRefused
from marketplace.client.jobs.runner import Runner
from marketplace.client.payer.decide import approve_more
from marketplace.client.payer.missed_receipts import HttpReceipts
from marketplace.client.payer.payers import Payers
from marketplace.client.wallet.purse import Purse
from marketplace.domain.money.chain_fees import ChainFees
from marketplace.domain.work.parts import Price
from tests.unit.support import payer
from tests.unit.support.adapter import ADAPTER, core_job, offer, terms_for
from tests.unit.support.answers import job_answer
from tests.unit.support.payer import Paper

BUDGET = 1_000_000


class Rig:
    """A runner whose market and chain say yes to everything, and one job."""

    def __init__(self, home: Path) -> None:
        self.purse = Purse.create(home, passphrase="a passphrase of the tests")
        self.job = core_job(price=Price(budget=BUDGET))
        self.opened = 0

        async def reserve(_terms: object, _pays: int) -> int:
            return 2_000_000

        async def fees() -> ChainFees:
            return ChainFees(200_000, 230_000, 220_000, 40_000)

        async def opens(_terms: object, _amount: int) -> OutRef:
            self.opened += 1
            return OutRef(bytes([self.opened]) * 32, 0)

        async def post(*_: object) -> None:
            return None

        chain = SimpleNamespace(magic=42)
        till: Any = SimpleNamespace(chain=chain, reserve=reserve, fees=fees, open=opens)
        http: Any = SimpleNamespace(post=post)
        self.payers = Payers(self.purse.channels, "http://market", 42, http)
        self.runner = Runner(http, self.purse, till, self.payers)

    async def lease(self, name: str, ceiling: int):
        """Agree to a lease with that ceiling; its channel's payer and its terms."""
        session = self.purse.new_session()
        terms = terms_for(
            offer(), self.job, session=session, consumer_vkh=self.purse.signer.key_hash,
            ceiling=ceiling, lease=name,
        )  # fmt: skip
        body = terms.encode()
        quote = {
            "terms": body.hex(), "adapter_signature": ADAPTER.sign(body).hex(), "channel": "fresh",
        }  # fmt: skip
        view = job_answer(spec=self.job.to_wire(), quote=quote)
        return await self.runner.agreements.accept(
            await self.runner.agreements.examine(view)
        ), terms

    def total(self) -> int:
        return self.runner.channels.spent("job_1") + self.payers.spent_before("job_1")


def test_a_provider_that_comes_back_is_paid_no_more_than_the_budget(tmp_path: Path) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        first, terms = await rig.lease("lease_1", BUDGET)
        paper = Paper()
        book = first.book
        first.book = book.with_lease(_running(book.leases["lease_1"], approved=300_000))
        second, _ = await rig.lease("lease_2", 600_000)
        # The market gave the first lease up; its provider bills on, for as long as it likes.
        first.book = first.book.with_lease(
            _asking(first.book.leases["lease_1"], paper.tick(terms, 10**9, adapter=ADAPTER).receipt)
        )
        late = approve_more(first.book, 10**12).book
        assert late.leases["lease_1"].approved == 400_000  # what the new ceiling leaves
        second.book = second.book.with_lease(_running(second.book.leases["lease_2"], 600_000))
        assert late.spent + second.book.spent <= BUDGET
        for held in rig.payers.all:
            await held.let_go()
        again = Rig(tmp_path)
        known = await again.payers.take(first.session_vk, again.purse.session(first.session_vk))
        assert known.book.leases["lease_1"].cap == 400_000  # durable
        await known.let_go()

    anyio.run(story)


def test_a_second_lease_that_the_budget_does_not_bear_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        first, _ = await rig.lease("lease_1", BUDGET)
        offered = None
        accept = rig.runner.agreements.accept

        async def later(what: Any) -> Any:
            nonlocal offered
            offered = what
            return None

        setattr(rig.runner.agreements, "accept", later)  # noqa: B010 -- the quote was seen, not yet agreed to
        await rig.lease("lease_2", 800_000)
        first.book = first.book.with_lease(_running(first.book.leases["lease_1"], 300_000))
        assert offered is not None
        with pytest.raises(QuoteRefused):
            await accept(offered)
        assert rig.opened == 1
        await first.let_go()

    anyio.run(story)


@pytest.mark.parametrize(("capacity", "stated"), [(20_000_000, 10**11), (0, 0), (-(10**9), 0)])
def test_a_kept_channel_is_topped_up_by_no_more_than_the_new_ceiling(
    tmp_path: Path, capacity: int, stated: int
) -> None:
    """Whatever its provider stated, in a receipt or through the chain's door."""

    async def story() -> None:
        rig = Rig(tmp_path)
        held, _ = await rig.lease("lease_1", 600_000)
        lease = held.book.leases["lease_1"]
        receipt = replace(Paper().tick(lease.terms, 1000).receipt, channel_owed=stated)
        book = held.book.with_lease(replace(_running(lease, 40), last=receipt))
        held.book = replace(book, last=receipt, capacity=capacity)
        quote: Any = SimpleNamespace(terms=replace(lease.terms, lease="lease_2", ceiling=400_000))
        lacking = await rig.runner.agreements._lacking(quote)
        if stated:  # what the old lease can use at most is in there: nothing is lacking
            assert lacking == 0
        assert lacking <= 400_000
        await held.let_go()

    anyio.run(story)


def test_a_markets_nonsense_is_no_receipt_and_ends_no_payer() -> None:
    good = Paper().tick(payer.terms(), 1000)
    rows: list[Any] = [
        {"body": "zz", "signature": ""}, {}, {"body": "00", "signature": "00"}, "text",
        {"body": good.body.hex(), "signature": good.signature.hex()},
    ]  # fmt: skip

    async def get(*_: object, **__: object) -> Any:
        return {"items": rows, "next": None}

    async def between() -> list[Any]:
        return await HttpReceipts(get).between("job_1", 1, 9)

    assert anyio.run(between) == [good]


def _running(lease: Any, approved: int) -> Any:
    return replace(lease, approved=approved, since_ms=0)


def _asking(lease: Any, receipt: Any) -> Any:
    return replace(lease, last=receipt)
