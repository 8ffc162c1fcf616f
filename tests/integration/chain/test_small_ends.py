"""Ends that bring less than an output may hold: together with others of their payout, or not at all;
whoever pays for a batch adds nothing to them.
"""

from __future__ import annotations

from marketplace.chain.build import plans
from marketplace.chain.settlement.batched_ends import EndBatcher, EndRound, OfferedEnd
from marketplace.chain.settlement.consent import Consent, Ending, Known, consent, to_resolve
from tests.integration.support.chain import ADA, Live, Provider, World, run

SHARE = 300_000  # of one alone, too


async def offered(world: World, provider: Provider, live: Live, owed: int | None) -> OfferedEnd:
    """Its end, with what is owed or (None) without it."""
    view = await world.view(live)
    tip = await world.chain.tip()
    claim = plans.claim_step(live.voucher(owed)) if owed else None
    return OfferedEnd(
        provider.name, provider.adapter.key_hash, live.session.verify_key, view.utxo.ref, claim,
        provider.payout_address, tip.time_ms + 600_000,
    )  # fmt: skip


async def together(
    world: World, ends: list[tuple[Provider, Live, int | None]]
) -> tuple[EndRound, list[OfferedEnd]]:
    """One round of the market's, every adapter consenting to what it checked."""
    offers = [await offered(world, *one) for one in ends]
    snapshot = await world.chain.snapshot(world.desk("operator").scripts)

    async def ask(name: str, tx: bytes) -> Consent | str:
        refs = to_resolve(tx)
        outputs = [await world.chain.output(ref) for ref in refs]
        resolved = {o.utxo.ref: o.utxo for o in outputs if o and o.spent_by is None}
        asked: dict[object, Ending] = {}
        for (provider, live, owed), offer in zip(ends, offers, strict=True):
            if provider.name == name and offer.ref in refs:
                voucher = live.voucher(owed) if owed else None
                asked[offer.ref] = Ending(resolved[offer.ref], voucher, owed or 0)
        key = next(p.adapter for p, _, _ in ends if p.name == name)
        return consent(tx, Known(key.key_hash, asked, resolved, snapshot), key)  # type: ignore[arg-type]

    return await EndBatcher(world.desk("operator"), SHARE).round(offers, ask), offers


def test_small_debts_of_one_payout_are_one_output_and_a_lone_one_waits() -> None:
    async def story(world: World) -> None:
        world.fund("consumer", 300 * ADA)
        world.fund("operator", 100 * ADA)
        world.fund("operator", 5 * ADA)
        two, lone, large = Provider("two"), Provider("lone"), Provider("large")
        first, second = await world.open("consumer", two, [10 * ADA, 10 * ADA])
        [other] = await world.open("consumer", lone, [10 * ADA])
        [third] = await world.open("consumer", large, [10 * ADA])
        ends = [
            (two, first, 600_000), (two, second, 500_000), (lone, other, 400_000),
            (large, third, 2 * ADA),
        ]  # fmt: skip
        done, _ = await together(world, [*ends])
        ended = {one.session_vk for one in done.ended}
        assert ended == {x.session.verify_key for x in (first, second, third)}
        assert await world.balance(two.payout_address) == 1_100_000  # to the lovelace: no gift
        assert await world.balance(large.payout_address) == 2 * ADA
        assert not done.unfit and not done.left  # the lone one waits, and is offered again
        assert done.sent is not None and done.sent.subsidy == 0
        assert (await world.view(other)).claimed == 0

        done, _ = await together(world, [(lone, other, None)])  # in vain: without its claim
        assert [one.session_vk for one in done.ended] == [other.session.verify_key]
        assert await world.balance(lone.payout_address) == 0

    run(story)


def test_a_round_of_nothing_but_small_debts_sends_nothing() -> None:
    async def story(world: World) -> None:
        world.fund("consumer", 300 * ADA)
        world.fund("operator", 100 * ADA)
        lone = Provider("lone")
        [other] = await world.open("consumer", lone, [10 * ADA])
        done, _ = await together(world, [(lone, other, 400_000)])
        assert done.sent is None and not done.ended and not done.unfit

    run(story)
