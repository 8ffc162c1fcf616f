"""The fee is what the ledger wants, to the lovelace: one less is refused, for every way in which a
fee comes about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cbor2
import pytest

from marketplace.chain.actions.session import CLOSE_WITHIN_MS, Desk
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import cursor, plutus, txbytes
from marketplace.chain.errors import TxRefused
from marketplace.chain.transaction.outputs import Out
from marketplace.chain.transaction.signing import Signed, Unsigned
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import TopUp
from tests.integration.support.chain import ADA, Provider, World, run


def a_lovelace_less(unsigned: Unsigned) -> Unsigned:
    """The same with fee − 1, and the lovelace in the change."""
    fields = dict(txbytes.map_items(unsigned.body))
    outputs = cursor.items(fields[1])
    change = cbor2.loads(outputs[-1])
    change[1] += 1
    outputs[-1] = cbor2.dumps(change)
    fields[1] = plutus.head(4, len(outputs)) + b"".join(outputs)
    fields[2] = plutus.head(0, unsigned.fee - 1)
    body = plutus.head(5, len(fields))
    body += b"".join(plutus.head(0, key) + raw for key, raw in fields.items())
    assert len(body) == len(unsigned.body)
    return replace(unsigned, body=body, fee=unsigned.fee - 1)


async def exactly(desk: Desk, draft: Draft, *keys: Signer) -> Signed:
    """*draft* is sent: with a lovelace less first, which the ledger refuses for its fee."""
    unsigned = await desk.finish(draft, {})
    short = a_lovelace_less(unsigned).sign(desk.wallet.signer, *keys)
    with pytest.raises(TxRefused, match=r"(?i)fee"):
        await desk.chain.submit(short.bytes)
    signed = unsigned.sign(desk.wallet.signer, *keys)
    await desk.chain.submit(signed.bytes)
    return signed


def test_a_lovelace_less_than_the_fee_is_refused() -> None:
    async def story(world: World) -> None:
        provider = Provider("p")
        for name in ("consumer", "settler"):
            world.fund(name, 300 * ADA)
        consumer, settler = world.desk("consumer"), world.desk("settler")
        token = Desk(world.chain, world.wallet("settler"), "aa" * 28 + "01")
        snapshot, funds, _ = await token.look()
        deployed = await exactly(token, plans.deploy(snapshot, funds))
        assert deployed.units.mem > 0  # settle ran for its registration

        snapshot, funds, _ = await consumer.look()
        to = world.wallet("settler").address
        await exactly(consumer, plans.pay(snapshot, funds, [Out(to, 9 * ADA)]))
        lives = await world.open("consumer", provider, [30 * ADA, 30 * ADA, 30 * ADA])
        me = consumer.wallet.signer
        payouts = {provider.payout: provider.payout_address}

        async def settled(desk: Desk, moves: Sequence[Move], *keys: Signer, pledges: bool) -> None:
            snapshot, funds, _ = await desk.look()
            until_ms = snapshot.tip.time_ms + CLOSE_WITHIN_MS
            signers = tuple(key.key_hash for key in keys)
            batch = Batch(
                tuple(moves), payouts, signers, until_ms=until_ms, reserve_collateral=True
            )
            draft = plans.settle(snapshot, funds, batch).draft
            assert draft.pledges_an_input == pledges
            await exactly(desk, draft, *keys)

        views = [await world.view(live) for live in lives]
        await settled(consumer, [Move(views[0].utxo, TopUp(4 * ADA))], me, pledges=True)
        claims = [
            Move((await world.view(x)).utxo, plans.claim_step(x.voucher(3 * ADA))) for x in lives
        ]
        await settled(settler, claims, pledges=False)
        close = plans.closing_batch((await world.view(lives[0])).utxo, me.key_hash, 0)
        await settled(consumer, close.moves, me, pledges=False)
        ends = [
            Move((await world.view(x)).utxo, plans.finish_step(x.voucher(5 * ADA), 3 * ADA))
            for x in lives
        ]
        await settled(settler, ends, provider.adapter, pledges=False)

    run(story)
