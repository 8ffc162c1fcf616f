"""Cost models come from the chain: a door that says mainnet's present ones gets them back, bound
into what is built.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.devnet.parameters import COST_MODELS
from marketplace.chain.actions.session import top_up
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.encoding import txbytes
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.blockfrost import connect
from marketplace.domain.money.channel import TopUp
from tests.integration.support.chain import ADA, Provider, World, run
from tests.unit.support.costs import bound, todays_costs


def test_what_the_chain_says_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.fund("consumer", 200 * ADA)
        [live] = await world.open("consumer", Provider("p"), [50 * ADA])
        view = await world.view(live)
        monkeypatch.setitem(COST_MODELS, "PlutusV3", todays_costs())
        chain = await connect(world.served.url)  # type: ignore[attr-defined]
        desk = replace(world.desk("consumer"), chain=chain)  # one that has not asked before
        snapshot, funds, fresh = await desk.look()
        assert snapshot.params.costs_v3 == tuple(todays_costs())
        batch = Batch((Move(view.utxo, TopUp(5 * ADA)),), signers=(desk.wallet.signer.key_hash,))
        unsigned = await desk.finish(plans.settle(snapshot, funds, batch).draft, fresh)
        assert unsigned.redeemers is not None
        there = txbytes.body_of(unsigned.bytes)[11]
        assert there == bound(unsigned.redeemers, todays_costs())
        with pytest.raises(TxRefused, match=r"(?i)hash"):  # this ledger has the older costs
            await top_up(desk, view, 5 * ADA)

    run(story)
