"""What a quote says that the chain takes is what the chain takes: at most that, and nine tenths of it
at least.
"""

from __future__ import annotations

from marketplace.chain.actions.session import finish_channels, pay, settle, top_up
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import txbytes
from marketplace.chain.settlement.costs import TOGETHER, chain_fees
from marketplace.chain.transaction.outputs import Out
from tests.integration.support.chain import ADA, Provider, World, run


def holds(charged: int, said: int) -> None:
    assert said * 9 // 10 <= charged <= said, (charged, said)


async def fee_of(world: World, tx_id: bytes) -> int:
    """What the ledger took, from the bytes whose hash is the id."""
    raw = await world.chain.transaction_bytes(tx_id)
    assert raw is not None
    return int(txbytes.body_of(raw)[2])


def test_every_step_is_charged_what_was_said() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        world.fund("consumer", 300 * ADA)
        world.fund(f"fee {provider.name}", 100 * ADA)
        said = chain_fees(await world.chain.snapshot(world.desk("consumer").scripts))

        [one] = await world.open("consumer", provider, [20 * ADA])
        holds(await fee_of(world, one.ref.tx_id), said.open)
        mine = world.wallet("consumer").address
        whole = await world.balance(mine)
        await pay(world.desk("consumer"), [Out(mine, whole // 2)])  # two outputs of half each
        [two] = await world.open("consumer", provider, [whole * 3 // 4])
        assert len((await world.chain.moves(two.ref.tx_id)).inputs) == 2  # type: ignore[union-attr]
        holds(await fee_of(world, two.ref.tx_id), said.open)

        added = await top_up(world.desk("consumer"), await world.view(one), 5 * ADA)
        holds(added.sent.fee, said.top_up)

        payouts = {provider.payout: provider.payout_address}
        paying = world.desk(f"fee {provider.name}")
        finishes = [(await world.view(one), one.voucher(2 * ADA))]
        alone = await finish_channels(paying, finishes, payouts, provider.adapter)
        holds(alone.sent.fee, said.end)

    run(story)


def test_an_end_together_is_a_tenth_of_ten() -> None:
    async def story(world: World) -> None:
        world.fund("consumer", 900 * ADA)
        world.fund("operator", 100 * ADA)
        said = chain_fees(await world.chain.snapshot(world.desk("consumer").scripts))
        providers = [Provider(f"p{n}") for n in range(TOGETHER)]
        moves: list[Move] = []
        for provider in providers:
            [live] = await world.open("consumer", provider, [20 * ADA])
            view = await world.view(live)
            moves.append(Move(view.utxo, plans.finish_step(live.voucher(2 * ADA), 0)))
        batch = Batch(
            tuple(moves), {p.payout: p.payout_address for p in providers},
            tuple(p.adapter.key_hash for p in providers), reserve_collateral=True,
        )  # fmt: skip
        keys = [p.adapter for p in providers]
        done = await settle(world.desk("operator"), batch, "finish", *keys)
        assert abs(done.sent.fee - said.end_together * TOGETHER) <= done.sent.fee // 20

    run(story)
