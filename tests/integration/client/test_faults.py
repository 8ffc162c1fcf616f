"""Over real sockets: a lost provider, a greedy one, a crash of the client, a channel that is
reused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marketplace.chain.channels.finder import ChannelEnded, ChannelView
from marketplace.client.jobs.jobfiles import LoadedJob
from marketplace.client.payer.channel_payer import Paid
from marketplace.client.sdk.market import Market
from marketplace.domain.keys import unseal
from marketplace.domain.protocol import wire
from marketplace.domain.work.parts import Policy, Price
from tests.integration.support.client import World, spec, story, until


def heard(market: Market) -> list[Paid]:
    events: list[Paid] = []

    async def hear(paid: Paid) -> None:
        events.append(paid)

    market.listen(hear)
    return events


def test_a_lost_provider_is_replaced_within_the_budget_and_without_a_question(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        first, second = world.providers
        asked: list[Any] = []

        async def confirm(offered: Any) -> bool:
            asked.append(offered)
            return True

        budget = 2_000_000
        wanted = spec(
            price=Price(budget=budget),
            policy=Policy(max_duration_ms=3_600_000, retry_on=("provider_lost",), retry_max=1),
        )
        async with Market(world.url, wallet=world.purse(), chain_url=world.served.url) as market:
            job = await market.run(wanted, confirm=confirm)
            lost = await first.lease()
            await first.start(lost)
            await first.ticks(lost, 3)
            first.adapter.socket.stopped = True
            live = first.adapter.socket.live
            assert live is not None
            await live.close()
            lease = await second.lease()
            await second.start(lease)
            await second.ticks(lease, 2)
            await second.adapter.finish(lease)
            held = [h for h in market.payers.all if lease in h.terms]
            await second.settle(held[0].session_vk, held[0].facts.open_tx, lease)
            with anyio.fail_after(120):
                await job.wait()
            assert job.reason == "COMPLETED" and len(asked) == 1
            caps = [
                lb.approved if name == lost else lb.cap
                for h in market.payers.all
                for name, lb in h.book.leases.items()
            ]
            assert len(caps) == 2 and sum(caps) <= budget
            bill = await job.invoice()
            assert [line.lease for line in bill.lines] == [lost, lease]
            assert bill.owed == 600 * 5 // 1000 + 400 * 6 // 1000 == job.spent
            # the first channel was asked to end: its provider settles whenever it comes back
            abandoned = next(h for h in market.payers.all if lost in h.terms)
            await until(lambda: abandoned.end_sent and held[0].end_sent)

    story(tmp_path, tell, providers=2)


def test_a_greedy_provider_gets_a_tick_too_much_at_most_and_is_told_why(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        async with Market(world.url, wallet=world.purse(), chain_url=world.served.url) as market:
            events = heard(market)
            await market.run(spec())
            provider = world.provider
            lease = await provider.lease()
            await provider.start(lease)
            run = provider.adapter.leases[lease]
            begun = anyio.current_time()
            for _ in range(5):  # five seconds' worth each half second: ten times too fast
                await anyio.sleep(0.5)
                await provider.adapter.tick(lease, 5000)
            await until(lambda: any(e.code == "NOT_SIGNED_CLOCK" for e in events))
            held = market.payers.all[0]
            await until(lambda: held.book.last is not None and held.book.last.seq == 5)
            took = (
                int((anyio.current_time() - begun) * 1000) + 1000
            )  # all five were answered by now
            assert held.book.signed <= (took + 1000) * run.terms.rate_micro // 1_000_000_000
            assert run.last is not None and run.last.lease_owed > held.book.signed
            # a fork ends it: the provider keeps two books
            fork = provider.adapter.receipt(lease, 0, wall_ms=1, seq=5, previous=bytes(32))
            await held.receipt(fork)
            assert held.book.stopped == "RECEIPT_FORKED"
            assert any(e.kind == "refused" and e.code == "RECEIPT_FORKED" for e in events)
            await until(lambda: lease in provider.adapter.stops)

    story(tmp_path, tell)


@pytest.mark.prove
def test_another_process_goes_on_where_a_client_stopped(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            job = await market.run(spec())
            lease = await provider.lease()
            await provider.start(lease)
            await provider.ticks(lease, 2)
            signed = market.payers.all[0].book.signed
            name, vk = job.id, market.payers.all[0].session_vk
        # nobody pays now; the receipt waits at the market
        receipt = await provider.adapter.tick(lease, 200)
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as again:
            assert await again.resume_all() == [name]
            held = again.payers.held(vk)
            assert held is not None and held.book.signed >= signed
            await provider.paid(vk, receipt.channel_owed)
            await provider.adapter.finish(lease)
            tx = await provider.settle(vk, held.facts.open_tx, lease)
            await until(lambda: held.facts.state == "ENDED")
            assert held.facts.settled_tx == tx.hex()
            bill = await again.job(name).invoice(verify=True)
            assert bill.reconciled and bill.owed == 3

    story(tmp_path, tell)


@pytest.mark.prove
def test_a_channel_that_is_kept_serves_the_next_job_without_a_transaction(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        async with Market(
            world.url, wallet=world.purse(), chain_url=world.served.url, keep="10m"
        ) as market:
            await provider.keeps(market)
            longer = Policy(max_duration_ms=180_000)  # its ceiling leaves room for the second job's
            first = await market.run(spec(policy=longer))
            one = await provider.lease()
            await provider.start(one)
            await provider.ticks(one, 2)
            await provider.adapter.finish(one)
            held = market.payers.all[0]
            await until(lambda: one in held.final and held.book.capacity is not None)
            blocks = (await world.chain.tip()).height
            second = await market.run(spec(name="again"))
            two = await provider.lease(2)
            assert provider.adapter.leases[two].terms.session_vk == held.session_vk
            assert (await world.chain.tip()).height == blocks and len(market.payers.all) == 1
            await provider.start(two)
            await provider.ticks(two, 2)
            await provider.adapter.finish(two)
            await until(lambda: two in held.final)
            assert held.book.signed == 4 and not held.end_sent
            for job in (first, second):
                assert [line.owed for line in (await job.invoice()).lines] == [2]
            await held.end()
            await provider.settle(held.session_vk, held.facts.open_tx, two)
            assert isinstance(
                await provider.look(held.session_vk, held.facts.open_tx), ChannelEnded
            )

    story(tmp_path, tell)


@pytest.mark.prove
def test_a_missed_receipt_is_read_again_before_anything_is_paid(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        async with Market(world.url, wallet=world.purse(), chain_url=world.served.url) as market:
            await market.run(spec())
            lease = await provider.lease()
            await provider.start(lease)
            await provider.ticks(lease, 1)
            held = market.payers.all[0]
            await market.payers.release(held.session_vk)  # the payer is away for two ticks
            await anyio.sleep(0.4)
            for _ in range(2):
                await provider.adapter.tick(lease, 200)
            last = provider.adapter.leases[lease].last
            assert last is not None
            again = await market.payers.take(held.session_vk, held.session)
            await provider.paid(held.session_vk, last.channel_owed)
            assert again.book.last is not None and again.book.last.seq == 3

    story(tmp_path, tell)


def test_a_price_above_the_cap_is_never_signed(tmp_path: Path) -> None:
    """A market that ignores the job's cap: the quote's signed terms are what the client reads."""

    async def tell(world: World) -> None:
        from marketplace.client.jobs.core import quotes
        from marketplace.client.jobs.core.quotes import Quote, QuoteRefused, Wanted

        async with Market(world.url, wallet=world.purse(), chain_url=world.served.url) as market:
            runner = market.runner
            wanted = spec()
            posted = await runner.post(LoadedJob(wanted, {}))
            view = await runner.quoted(posted["id"])
            quote = Quote.read(view["quote"])
            good = Wanted(
                posted["id"],
                wanted,
                42,
                runner.purse.signer.key_hash,
                frozenset({quote.terms.session_vk}),
            )
            quotes.check(quote, good, 0)
            tighter = replace(wanted, price=replace(wanted.price, max_core_rate=1))
            lies = {
                "not the job": replace(good, spec=tighter),
                "another job": replace(good, job="job_x"),
                "another network": replace(good, magic=1),
                "refund would go": replace(good, consumer_vkh=bytes(28)),
                "channel of another key": replace(good, session_vks=frozenset({bytes(32)})),
                "exceed the budget": replace(good, spent=5_000_000),
            }
            for says, lie in lies.items():
                try:
                    quotes.check(quote, lie, 0)
                except QuoteRefused as refused:
                    assert says in refused.message
                else:
                    raise AssertionError(says)
            try:
                quotes.check(quote, good, quote.terms.expires_at_ms)
            except QuoteRefused as refused:
                assert "expired" in refused.message
            else:
                raise AssertionError("expired")
            await runner.agreements.decline(view["lease"])

    story(tmp_path, tell)


@pytest.mark.prove
def test_a_crash_between_opening_and_signing_opens_no_second_channel(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        purse, provider = world.purse(), world.provider
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as market:
            runner = market.runner
            posted = await runner.post(LoadedJob(spec(), {}))
            offered = await runner.agreements.examine(await runner.quoted(posted["id"]))
            terms = offered.quote.terms
            held = await runner.agreements._book(offered.quote, offered.amount)  # pyright: ignore[reportPrivateUsage]
            await held.agree(offered.quote.signed, terms.ceiling)
            ref = await runner.till.open(terms, offered.amount)
            # the process dies here: the open transaction's id was not noted, the market not told
        async with Market(world.url, wallet=purse, chain_url=world.served.url) as again:
            assert await again.resume_all() == [posted["id"]]
            lease = await provider.lease()
            held = again.payers.all[0]
            assert (held.facts.open_tx, held.facts.index) == (ref.tx_id.hex(), ref.index)
            await provider.start(lease)
            await provider.ticks(lease, 1)
            await provider.adapter.finish(lease)
            await provider.settle(held.session_vk, held.facts.open_tx, lease)
            await until(lambda: held.facts.state == "ENDED")
            assert len(again.payers.all) == 1

    story(tmp_path, tell)


def test_a_secret_is_read_by_the_provider_and_by_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a very secret value")

    async def tell(world: World) -> None:
        async with Market(world.url, wallet=world.purse(), chain_url=world.served.url) as market:
            await market.run(spec(secrets=("HF_TOKEN",)))
            await world.provider.lease()
            (signed,) = [m for m in world.provider.adapter.asked if isinstance(m, wire.LeaseSigned)]
            opened = unseal(world.provider.adapter.signer, signed.secrets["HF_TOKEN"])
            assert opened == b"a very secret value"

    story(tmp_path, tell)
    for path in tmp_path.rglob("*"):  # database, blobs, books and keys of everybody
        if path.is_file():
            assert b"a very secret value" not in path.read_bytes()


@pytest.mark.prove
def test_a_kept_channel_that_is_too_small_is_topped_up(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        provider = world.provider
        async with Market(
            world.url, wallet=world.purse(), chain_url=world.served.url, keep="10m"
        ) as market:
            await provider.keeps(market)
            await market.run(spec())
            one = await provider.lease()
            await provider.start(one)
            await provider.ticks(one, 1)
            await provider.adapter.finish(one)
            held = market.payers.all[0]
            await until(lambda: one in held.final and held.book.capacity is not None)
            before, paid_in = held.book.capacity, held.facts.amount
            asked: list[int] = []

            async def confirm(offered: Any) -> bool:
                asked.append(offered.amount)
                return True

            # It may cost more than what was put aside in the channel for jobs to come.
            dear = {
                "price": Price(budget=20_000_000),
                "policy": Policy(max_duration_ms=2_000_000_000),
            }
            await market.run(spec(name="again", **dear), confirm=confirm)
            (more,) = asked
            assert more > 0 and held.facts.amount == paid_in + more and before is not None
            assert held.book.capacity == before + more
            two = await provider.lease(2)
            await provider.start(two)
            await provider.ticks(two, 1)
            await provider.adapter.finish(two)
            await until(lambda: two in held.final)
            view = await provider.look(held.session_vk, held.facts.open_tx)
            assert isinstance(view, ChannelView)
            assert [funding.amount for funding in view.fundings] == [paid_in, more]

    story(tmp_path, tell)
