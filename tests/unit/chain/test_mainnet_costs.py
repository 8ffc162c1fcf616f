"""Mainnet's present cost model of 350 values: whatever runs a script binds all of them, as the
chain says them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts import blueprint
from contracts.devnet.parameters import PARAMETERS
from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.build.wallet import Funds
from marketplace.chain.encoding import datum, txbytes
from marketplace.chain.encoding.address import channel_address
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.transaction.snapshot import Params, Snapshot, Units
from marketplace.domain.money.channel import Claim, Close, Closing, Finish, Open, Step, TopUp
from marketplace.domain.money.voucher import Voucher
from tests.unit.support import snapshot as s
from tests.unit.support.costs import bound, todays_costs, todays_parameters

ADA = s.ADA
UNIT = b"\xcc" * 28 + b"coin"
ME, ADAPTER = s.WALLET.signer.key_hash, s.key("adapter p").key_hash
_CLAIM = Claim(3 * ADA, 3 * ADA, Voucher.sign(s.key("session a"), 3 * ADA).signature)
KINDS: dict[str, list[Step]] = {
    "claim": [_CLAIM],
    "claim of three": [_CLAIM] * 3,
    "top-up": [TopUp(2 * ADA)],
    "close": [Close()],
    "finish with a voucher": [Finish(_CLAIM)],
    "finish without": [Finish(None)],
    "a mixed batch": [_CLAIM, Close(), TopUp(2 * ADA), Finish(_CLAIM)],
    "from Closing": [_CLAIM, Finish(None)],
}


def today(unit: bytes) -> Snapshot:
    """The frozen chain, with what Blockfrost would say of mainnet's parameters today."""
    scripts = blueprint.token(unit[:28], unit[28:]) if unit else blueprint.ada()
    return replace(s.snapshot(), params=Params.from_json(todays_parameters()), scripts=scripts)


def settlement(kind: str, unit: bytes) -> Draft:
    snapshot, stage = today(unit), Open(s.consts("a"), 0)
    held = Closing(s.consts("a"), 0, s.NOW_MS) if kind == "from Closing" else stage
    address = channel_address(snapshot.scripts.stub_hash, s.STAKE, False)
    assets = ((unit, 40 * ADA),) if unit else ()
    moves = [
        Move(Utxo(s.ref(n), address, 40 * ADA, assets, datum.stage_bytes(held)), step)
        for n, step in enumerate(KINDS[kind])
    ]
    money = [*s.money(5 * ADA, 900 * ADA), *s.money(9 * ADA, start=6_000)]
    if unit:
        money[-1] = replace(money[-1], assets=((unit, 50 * ADA),))
    batch = Batch(
        tuple(moves), {s.consts("a").payout: s.payout_address("p")}, (ME, ADAPTER),
        until_ms=s.NOW_MS + 300_000, unit=unit, reserve_collateral=True,
    )  # fmt: skip
    return plans.settle(snapshot, Funds.of(s.WALLET.address, money), batch).draft


def registration(_: str, unit: bytes) -> Draft:
    return plans.deploy(replace(today(unit), deployment=None, rewards=None), s.funds(90 * ADA))


@pytest.mark.parametrize("unit", [b"", UNIT], ids=["ADA", "token"])
@pytest.mark.parametrize(
    ("kind", "made"), [*((k, settlement) for k in KINDS), ("registration", registration)]
)
def test_all_350_values_are_bound(
    kind: str, made: Callable[[str, bytes], Draft], unit: bytes
) -> None:
    draft = made(kind, unit)
    unsigned = draft.finish({key: Units(90_000, 95_000_000) for key in draft.guess})
    assert unsigned.redeemers is not None and unsigned.redeemers[0] >> 5 == 5
    there = txbytes.body_of(unsigned.bytes)[11]
    assert there == bound(unsigned.redeemers, todays_costs())
    assert there != bound(unsigned.redeemers, PARAMETERS["cost_models_raw"]["PlutusV3"])
    assert there != bound(unsigned.redeemers, todays_costs()[:297])


def test_the_list_of_costs_is_the_one_of_the_action() -> None:
    """350 values; of the first 297 seven differ from those of protocol 10 (indices from 0)."""
    old, new = PARAMETERS["cost_models_raw"]["PlutusV3"], todays_costs()
    assert (len(old), len(new)) == (297, 350)
    assert {i: new[i] for i, n in enumerate(old) if n != new[i]} == {
        54: 960, 64: 30_623, 65: 28_755, 66: 75, 119: 960, 135: 960, 146: 960,
    }  # fmt: skip


def test_named_costs_are_taken_in_their_order_too() -> None:
    """A door without ``cost_models_raw`` says them by name, in the ledger's order."""
    raw = todays_parameters()
    del raw["cost_models_raw"]
    raw["cost_models"] = {"PlutusV3": {f"p{i:03d}": n for i, n in enumerate(todays_costs())}}
    assert Params.from_json(raw).costs_v3 == tuple(todays_costs())
