"""The price shown is the price charged: random jobs over real sockets, a real purse and a real
ledger.

Only the provider is scripted: it bills what chance says within what its terms allow. Everything
that the bill passes through is the product: market, sockets, receipts, payer, channel, verifier.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.client.net.answers import JobQuoteAnswer
from marketplace.client.sdk.job import Job
from marketplace.client.sdk.market import Market
from marketplace.client.wallet.purse import Purse
from marketplace.domain.work.job import JobSpec
from marketplace.domain.work.parts import Placement, Policy, Price, Range, Resources
from tests.fakes import spec, until
from tests.integration.support.chain import devnet
from tests.integration.support.client import Provider, World, world

ON_ONE_CHANNEL = 10


@dataclass
class Ran:
    """One job: what was shown before, and what was delivered."""

    job: Job
    shown: JobQuoteAnswer
    ceiling: int
    rate: int
    lease: str
    provider: Provider
    owed: int


@pytest.mark.timeout(480)
def test_fifteen_random_jobs_cost_what_their_bills_say(tmp_path: Path) -> None:
    _play(tmp_path, 15, 1)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(40, marks=[pytest.mark.prove, pytest.mark.timeout(780)]),
        pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(2700)]),
    ],
)
def test_many_random_jobs_cost_what_their_bills_say(tmp_path: Path, count: int) -> None:
    _play(tmp_path, count, 2)


def _play(tmp_path: Path, count: int, number: int) -> None:
    async def main() -> None:
        with anyio.fail_after(240 + 12 * count):
            async with world(served, tmp_path, 2) as made:
                chance, purse = random.Random(number), made.purse()
                for turn, begin in enumerate(range(0, count, ON_ONE_CHANNEL)):
                    some = min(ON_ONE_CHANNEL, count - begin)
                    avoided = made.providers[turn % 2].adapter.signer.verify_key.hex()
                    await _charged(made, purse, some, chance, avoided)

    with devnet() as served:
        anyio.run(main)


def _random(chance: random.Random, place: str, first: bool, avoided: str) -> JobSpec:
    """Any cores, memory, duration and budget; the first holds enough for those that follow."""
    milli = chance.choice((chance.randint(1, 4000), 1000 * chance.randint(1, 4)))
    budget = 5_000_000 if first else chance.randint(1, 400)
    return spec(
        name=f"random-{place[:6]}",
        resources=(Resources(cpu=Range(milli), memory=Range(chance.randint(16, 2048))),),
        price=Price(budget=budget),
        placement=Placement(not_providers=(avoided,)),
        policy=Policy(max_duration_ms=600_000 if first else chance.randint(1, 90_000)),
    )


async def _charged(
    made: World, purse: Purse, count: int, chance: random.Random, avoided: str
) -> None:
    """*count* jobs on one channel, to the provider that is not *avoided*; then it ends."""
    shown: list[Any] = []

    async def confirm(offered: Any) -> bool:
        shown.append(offered.quote.terms)
        return True

    async with Market(made.url, wallet=purse, chain_url=made.served.url, keep="10m") as market:
        for provider in made.providers:
            await provider.keeps(market)
        ran = [
            await _one(
                made, market, confirm, shown, _random(chance, f"{i:06d}", i == 0, avoided), chance
            )
            for i in range(count)
        ]
        for each in ran:
            await _check(market, each)
        channels = {h.session_vk: h for h in market.payers.all}
        paid = {vk: h.book.signed for vk, h in channels.items()}
        assert sum(paid.values()) == sum(r.owed for r in ran) > 0
        for vk, held in channels.items():
            await held.end()
            last = next(r for r in reversed(ran) if r.lease in held.terms)
            await last.provider.settle(vk, held.facts.open_tx, last.lease)
        # And the ledger shows what was signed for, to the lovelace.
        for vk, held in channels.items():
            one = next(r for r in ran if r.lease in held.terms)
            bill = await one.job.invoice(verify=True)
            assert bill.reconciled and bill.channels[0].claimed == paid[vk]
            assert bill.unsigned == 0


async def _one(
    made: World,
    market: Market,
    confirm: Any,
    shown: list[Any],
    wanted: JobSpec,
    chance: random.Random,
) -> Ran:
    quote = await market.quote(wanted)
    assert "alternatives" in quote  # of a job alone
    job = await market.run(wanted, confirm=confirm)
    terms = shown[-1]

    def signed() -> Provider | None:
        for provider in made.providers:
            run = provider.adapter.leases.get(terms.lease)
            if run is not None and run.signed is not None:
                return provider
        return None

    provider: Provider = await until(signed, 60)
    lease, adapter = terms.lease, provider.adapter
    await provider.start(lease)
    left, total = 1000, 0  # one tick is what the payer's own clock always allows
    for _ in range(chance.randint(0, 3)):
        ms = chance.randint(0, left)
        units = (total + ms) * terms.units_milli // 1000
        if units * terms.rate_micro // 10**9 > terms.ceiling or total + ms > terms.max_duration_ms:
            break
        receipt = await adapter.tick(lease, ms)
        left, total = left - ms, total + ms
        await until(lambda due=receipt.channel_owed: _paid(provider, terms) >= due, 60)
    await adapter.finish(lease)
    held = next(h for h in market.payers.all if lease in h.terms)
    await until(lambda: lease in held.final, 60)
    last = adapter.leases[lease].last
    assert last is not None
    return Ran(job, quote, terms.ceiling, terms.rate_micro, lease, provider, last.lease_owed)


def _paid(provider: Provider, terms: Any) -> int:
    return provider.adapter.paid(terms.session_vk)


async def _check(market: Market, ran: Ran) -> None:
    """Shown, agreed, charged by the market's book, by the own book, and recomputed: all the
    same.
    """
    assert (ran.shown["ceiling"], ran.shown["rate_micro"]) == (ran.ceiling, ran.rate)
    with anyio.fail_after(60):
        view = await ran.job.wait()
    bill = await ran.job.invoice()
    (line,) = bill.lines
    exact = line.unit_ms * ran.rate // 10**9
    held = next(h for h in market.payers.all if ran.lease in h.terms)
    approved = held.book.leases[ran.lease].approved
    charged = {ran.owed, exact, line.owed, bill.owed, int(view["spent"]), approved}
    assert len(charged) == 1, (charged, view)
    assert bill.owed <= ran.ceiling <= view["budget"]
    assert line.final and line.ceiling == ran.ceiling
