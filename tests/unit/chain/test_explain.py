"""Before signing: every step and every output of a transaction is shown, or it is not signed."""

from __future__ import annotations

import cbor2
import pytest

from marketplace.chain.actions.explain import explain_resolved
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.encoding import txbytes
from marketplace.chain.errors import TxRefused
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.money.channel import Close, TopUp
from tests.unit.support import judged
from tests.unit.support import snapshot as s

ADA = s.ADA
MINE = (s.WALLET.address,)


def _batch(*moves: Move) -> tuple[bytes, dict]:
    batch = Batch(moves, signers=(s.WALLET.signer.key_hash,))
    draft = plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch).draft
    unsigned = draft.finish({k: Units(1000, 1000) for k in draft.guess})
    return unsigned.bytes, {u.ref: u for u in draft.inputs}


def test_a_second_step_hidden_under_one_signature_is_shown() -> None:
    top, victim = s.view("a", s.ref(1), 40 * ADA), s.view("b", s.ref(2), 90 * ADA)
    asked, resolved = _batch(Move(top.utxo, TopUp(3 * ADA)))
    [only] = explain_resolved(asked, resolved, MINE).steps
    assert (only.session_vk, only.step) == (top.session_vk, TopUp(3 * ADA))

    hiding, resolved = _batch(Move(top.utxo, TopUp(3 * ADA)), Move(victim.utxo, Close()))
    shown = explain_resolved(hiding, resolved, MINE)
    assert {(x.session_vk, type(x.step)) for x in shown.steps} == {
        (top.session_vk, TopUp),
        (victim.session_vk, Close),
    }
    assert any(line.startswith("close channel") for line in shown.lines)


def test_what_ones_own_money_loses_is_summed_from_the_bytes() -> None:
    openings = [Opening(20 * ADA, lambda _r, _i: s.consts("x"), s.STAKE)]
    draft = plans.open_channels(s.snapshot(), s.funds(50 * ADA), openings)
    unsigned = draft.finish()
    shown = explain_resolved(unsigned.bytes, {u.ref: u for u in draft.inputs}, MINE)
    assert shown.loses == 20 * ADA + unsigned.fee
    assert [u.lovelace for u in shown.outputs] == [20 * ADA]
    assert shown.steps == () and shown.until == unsigned.until


@pytest.mark.parametrize("field", [4, 9, 19, 20, 22])
def test_certificates_mints_votes_and_donations_are_refused_unread(field: int) -> None:
    tx, resolved = _batch(Move(s.view("a", s.ref(1), 40 * ADA).utxo, TopUp(ADA)))
    parts = txbytes.split(tx)
    body = cbor2.loads(parts.body) | {field: [1]}
    forged = txbytes.TxParts(cbor2.dumps(body), parts.witnesses, parts.rest).join()
    with pytest.raises(TxRefused):
        explain_resolved(forged, resolved, MINE)


def test_a_reward_that_would_ride_along_and_a_missing_step_are_refused() -> None:
    tx, resolved = _batch(Move(s.view("a", s.ref(1), 40 * ADA).utxo, TopUp(ADA)))
    parts = txbytes.split(tx)
    body = cbor2.loads(parts.body)
    greedy = body | {5: {b"\xe0" + b"\x07" * 28: 7}}  # the signer's own stake rewards
    bare = txbytes.TxParts(parts.body, b"\xa0", parts.rest).join()
    for forged in (txbytes.TxParts(cbor2.dumps(greedy), parts.witnesses, parts.rest).join(), bare):
        with pytest.raises(TxRefused):
            explain_resolved(forged, resolved, MINE)


@pytest.mark.parametrize("step", ["topup", "close"])
def test_both_forms_of_redeemers_tell_the_same(step: str) -> None:
    told = {name: tx for name, _, tx, _ in judged.cases()}
    known = {u.ref: u for u in (judged.AT, *judged.MONEY)}
    forms = [told[f"{step}: as they are, a {form}"] for form in ("list", "map")]
    assert forms[0] != forms[1]
    listed, mapped = (explain_resolved(tx, known, [judged.OWN]) for tx in forms)
    assert listed == mapped and len(mapped.steps) == 1
