"""What may be forfeited: whatever our builder pledges, a wallet's judge takes, and a lovelace more
it refuses.
"""

from __future__ import annotations

from dataclasses import replace

import cbor2
import pytest

from marketplace.chain.actions.external_wallet import ForeignWallet
from marketplace.chain.actions.judge import FORFEIT_MOST, Wanted, judge
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.money.channel import Close
from tests.unit.support import snapshot as s
from tests.unit.support.judged import AT, CONSTS, OWN, UNTIL_MS, WANTED

ADA = s.ADA
SIZES = [2 * ADA, 5 * ADA - 1, 5 * ADA, 5 * ADA + 1, 5_500_000, 6 * ADA, 6 * ADA + 1, 900 * ADA]


def _closing(funds: Funds) -> bytes:
    batch = Batch((Move(AT, Close()),), signers=(CONSTS.consumer_vkh,), until_ms=UNTIL_MS)
    draft = plans.settle(s.snapshot(), funds, batch).draft
    return draft.finish({key: Units(1000, 1000) for key in draft.guess}).bytes


def _wanted(owned: tuple[Utxo, ...]) -> Wanted:
    return replace(WANTED["close"], utxos={u.ref: u for u in owned})


def _forfeited(tx: bytes, owned: tuple[Utxo, ...]) -> int:
    body = txbytes.body_of(tx)
    pledged = [(bytes(at[0]), at[1]) for at in body[13]]
    held = sum(u.lovelace for u in owned if (u.ref.tx_id, u.ref.index) in pledged)
    return held - (body[16][1] if 16 in body else 0)


@pytest.mark.parametrize("size", SIZES)
def test_a_pledge_of_a_cip_30_wallet_is_one_that_its_judge_takes(size: int) -> None:
    owned = s.money(size, 90 * ADA)
    tx = _closing(ForeignWallet(OWN, owned[1:], owned[0]).funds())
    assert [f.code for f in judge(tx, _wanted(owned)) if f.wrong] == []
    assert _forfeited(tx, owned) <= FORFEIT_MOST == 5 * ADA
    assert (16 in txbytes.body_of(tx)) == (size > 5 * ADA)  # the rest of a larger one comes back


@pytest.mark.parametrize("size", SIZES)
def test_a_pledge_of_a_wallet_of_ours_too(size: int) -> None:
    owned = s.money(size, 90 * ADA)
    funds = Funds.of(OWN, owned)
    tx = _closing(funds)
    assert [f.code for f in judge(tx, _wanted(owned)) if f.wrong] == []
    assert funds.kept_apart == (size == 5 * ADA)  # only that much is set apart: it needs no return


def test_a_lovelace_more_is_refused() -> None:
    owned = (*s.money(5 * ADA + 1, 90 * ADA),)
    tx = _closing(ForeignWallet(OWN, owned[1:], owned[0]).funds())
    parts = txbytes.split(tx)
    body = cbor2.loads(parts.body)
    del body[16], body[17]  # as if the whole of it were pledged without a return
    greedy = b"\x84" + cbor2.dumps(body) + parts.witnesses + parts.rest
    assert [f.code for f in judge(greedy, _wanted(owned)) if f.wrong] == ["COLLATERAL"]
