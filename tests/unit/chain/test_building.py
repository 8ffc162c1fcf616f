"""Building from a frozen snapshot: money conserved, fees exact, bytes the same every time."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycardano import CostModels, RedeemerMap, Transaction
from pycardano.utils import script_data_hash

from marketplace.chain.build import plans
from marketplace.chain.build.balancing import Draft, Plan, assemble
from marketplace.chain.build.plans import Batch, Move, Opening
from marketplace.chain.build.wallet import COLLATERAL, Funds
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.encoding.utxo import Utxo
from marketplace.chain.errors import FundsShort, NotDeployed, TxRefused
from marketplace.chain.settlement.fitting import fit
from marketplace.chain.transaction.outputs import Out, least
from marketplace.chain.transaction.signing import Unsigned
from marketplace.chain.transaction.snapshot import Units
from marketplace.domain.money.channel import Close, Closing, Finish, Open, TopUp
from marketplace.domain.money.channel_refusals import NotOpen, TakeNotGrowing
from marketplace.domain.money.voucher import Voucher
from tests.unit.support import snapshot as s

ADA = s.ADA


def _units(draft: Draft) -> dict[str, Units]:
    return {
        k: Units(7_000, 3_600_000) if k[0] == "s" else Units(90_000, 95_000_000)
        for k in draft.guess
    }


def _finish(draft: Draft) -> Unsigned:
    return draft.finish(_units(draft))


def _conserved(unsigned: Unsigned, inputs: tuple[Utxo, ...], extra: int = 0) -> None:
    came = sum(u.lovelace for u in inputs) + extra
    assert came == sum(u.lovelace for u in unsigned.made) + unsigned.fee
    for out in unsigned.made:
        need = least(s.snapshot(), Out(out.address, out.lovelace, out.assets, out.datum))
        assert out.lovelace >= need


def _ledgers_least(tx: bytes, units: Units, ref_bytes: int) -> int:
    """The ledger's own formula: its size is that of [body, witness set, auxiliary data] (Alonzo
    ledger, ``toCBORForSizeComputation``).
    """
    parts = txbytes.split(tx)
    size = len(b"\x83" + parts.body + parts.witnesses + b"\xf6")
    scripts = math.ceil(Fraction(577, 10_000) * units.mem + Fraction(721, 10_000_000) * units.steps)
    return 44 * size + 155_381 + scripts + 15 * ref_bytes


@given(
    st.lists(st.integers(2 * ADA, 10**12), min_size=1, max_size=6),
    st.integers(ADA, 10**9),
)
@settings(max_examples=60, deadline=None)
def test_a_payment_conserves_every_lovelace_or_says_what_is_missing(
    owned: list[int], amount: int
) -> None:
    purse = s.funds(*owned)
    try:
        draft = plans.pay(s.snapshot(), purse, [Out(s.payout_address("p"), amount)])
    except FundsShort as short:
        assert short.missing > 0
        assert sum(u.lovelace for u in purse.spendable) < amount + 2 * ADA
        return
    made = draft.finish()
    _conserved(made, draft.inputs)
    signed = made.sign(s.WALLET.signer)
    assert made.fee == _ledgers_least(signed.bytes, Units(0, 0), 0)  # signatures included
    assert signed.bytes == draft.finish().sign(s.WALLET.signer).bytes


def test_a_claims_fee_is_the_ledgers_least_to_the_lovelace() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    batch = _claims([view])
    unsigned = _finish(plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch).draft)
    signed = unsigned.sign(s.WALLET.signer)
    assert unsigned.fee == _ledgers_least(signed.bytes, unsigned.units, s.snapshot().ref_bytes)
    assert unsigned.units == Units(97_000, 98_600_000)
    assert signed.size < 840


def test_a_rewards_balance_is_counted_in() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    for rewards in (0, 777):
        planned = plans.settle(s.snapshot(rewards), s.funds(5 * ADA, 50 * ADA), _claims([view]))
        unsigned = _finish(planned.draft)
        _conserved(unsigned, planned.draft.inputs, rewards)
        assert list(txbytes.body_of(unsigned.bytes)[5].values()) == [rewards]


def test_outputs_come_in_the_order_that_the_script_consumes() -> None:
    views = [s.view(n, s.ref(i), 40 * ADA, provider=p) for i, (n, p) in enumerate(_NAMES)]
    planned = plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), _claims(views))
    made = _finish(planned.draft).made
    refs = [m.utxo.ref for m in planned.moves]
    assert refs == sorted(refs)
    assert sum(1 for u in made if u.datum) == len(views)
    payouts = [u for u in made[:-1] if not u.datum]
    assert sum(u.lovelace for u in payouts) == 3 * ADA * len(views)
    assert {u.address for u in payouts} == {s.payout_address("p"), s.payout_address("q")}


_NAMES = (("a", "p"), ("b", "q"), ("c", "p"), ("d", "p"), ("e", "q"))


def test_collateral_is_kept_apart_and_made_when_there_is_none() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    rich = s.funds(5 * ADA, 50 * ADA)
    assert rich.collateral is not None and rich.collateral.lovelace == COLLATERAL
    assert rich.collateral not in rich.spendable
    body = txbytes.body_of(_finish(plans.settle(s.snapshot(), rich, _claims([view])).draft).bytes)
    assert (
        16 not in body and 17 not in body
    )  # 5 ADA stand behind it: a return costs more than it saves

    first = _finish(plans.settle(s.snapshot(), s.funds(50 * ADA), _claims([view])).draft)
    body = txbytes.body_of(first.bytes)
    assert body[17] == -(-first.fee * 150 // 100) and 16 in body
    assert first.made[-1].lovelace == COLLATERAL  # the next one's
    nothing = Funds.of(s.WALLET.address, s.money(3 * ADA, 4 * ADA))
    with pytest.raises(FundsShort):
        _finish(plans.settle(s.snapshot(), nothing, _claims([view])).draft)


def test_the_script_data_hash_is_pycardanos() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    unsigned = _finish(
        plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), _claims([view])).draft
    )
    whole = Transaction.from_cbor(unsigned.sign(s.WALLET.signer).bytes)
    redeemers = whole.transaction_witness_set.redeemer
    assert isinstance(redeemers, RedeemerMap)  # the form that the next era takes
    theirs = script_data_hash(
        redeemers, [], CostModels({2: {str(i): n for i, n in enumerate(s.PARAMS.costs_v3)}})
    )
    assert whole.transaction_body.script_data_hash == theirs


def test_signers_are_those_that_the_ledger_wants() -> None:
    adapter = s.key("adapter p")
    view = s.view("a", s.ref(1), 40 * ADA)
    batch = Batch((Move(view.utxo, Finish()),), signers=(adapter.key_hash,))
    unsigned = _finish(plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch).draft)
    assert unsigned.signers == {adapter.key_hash, s.WALLET.signer.key_hash}
    with pytest.raises(TxRefused):
        unsigned.sign(s.WALLET.signer)
    witnesses = txbytes.split(unsigned.sign(s.WALLET.signer, adapter).bytes).witnesses
    assert len(txbytes.key_witnesses(witnesses)) == 2
    assert txbytes.required_signers_of(unsigned.bytes) == (adapter.key_hash,)


def test_close_counts_from_the_transactions_own_upper_bound() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    batch = plans.closing_batch(view.utxo, s.WALLET.signer.key_hash, s.NOW_MS + 300_999)
    unsigned = _finish(plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch).draft)
    until = txbytes.until_of(unsigned.bytes)
    assert until == 150_000_300  # the slot in which that moment lies
    stage = read_stage(unsigned.made[0].datum or b"")
    assert isinstance(stage, Closing)
    assert stage.expire_at_ms == s.NOW_MS + 300_000 + 86_400_000


def test_the_reserve_pays_for_close_and_refund_whatever_the_numbers() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    out = Out(view.utxo.address, view.utxo.lovelace, datum=view.utxo.datum)
    kept = plans.reserve(s.snapshot(), out)
    wide = s.view("a", s.ref(1), kept, claimed=2**62, expire_at_ms=2**62)
    assert kept >= least(s.snapshot(), Out(wide.utxo.address, kept, datum=wide.utxo.datum))
    assert 1_500_000 < kept < 1_700_000


def test_a_session_key_follows_from_the_inputs_and_the_output() -> None:
    asked: list[tuple[object, int]] = []

    def consts(first: object, index: int):
        asked.append((first, index))
        return s.consts(f"derived {index}")

    openings = [Opening(20 * ADA, consts, s.STAKE), Opening(30 * ADA, consts, s.STAKE)]
    draft = plans.open_channels(s.snapshot(), s.funds(40 * ADA, 30 * ADA), openings)
    least_input = min(u.ref for u in draft.inputs)
    assert asked == [(least_input, 0), (least_input, 1)]
    made = draft.finish().made
    assert [u.lovelace for u in made[:2]] == [20 * ADA, 30 * ADA]
    assert read_stage(made[1].datum or b"") == Open(s.consts("derived 1"), 0)


def test_the_twin_refuses_before_a_byte_is_built() -> None:
    view = s.view("a", s.ref(1), 40 * ADA, claimed=9 * ADA)
    with pytest.raises(TakeNotGrowing):
        plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), _claims([view]))


def test_what_is_not_deployed_or_not_addressed_is_refused_by_name() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    for missing in (s.snapshot(deployed=False), s.snapshot(rewards=None)):
        with pytest.raises(NotDeployed):
            plans.settle(missing, s.funds(5 * ADA, 50 * ADA), _claims([view]))
    with pytest.raises(TxRefused):
        batch = replace(_claims([view]), payouts={})
        plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch)


@pytest.mark.parametrize("count", [1, 30, 60, 110])
def test_a_batch_is_packed_up_to_the_size_limit(count: int) -> None:
    views = [s.view(f"v{i}", s.ref(i), 40 * ADA) for i in range(count)]
    purse = s.funds(5 * ADA, 50 * ADA)
    batch = _claims(views)
    sizes: list[int] = []
    while batch.moves:
        planned = fit(s.snapshot(), purse, batch)
        unsigned = _finish(planned.draft)
        size = unsigned.sign(s.WALLET.signer).size
        assert size <= s.PARAMS.max_tx_size
        sizes.append(len(planned.moves))
        batch = batch.without([m.utxo.ref for m in planned.moves])
    assert sum(sizes) == count
    assert all(n >= 45 for n in sizes[:-1])
    assert len(sizes) == -(-count // max(sizes))


def test_a_transaction_above_the_limits_is_refused() -> None:
    views = [s.view(f"v{i}", s.ref(i), 40 * ADA) for i in range(60)]
    draft = plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), _claims(views)).draft
    with pytest.raises(TxRefused):
        _finish(draft)
    one = plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), _claims(views[:1])).draft
    with pytest.raises(TxRefused):
        one.finish({k: Units(10**7, 1) for k in one.guess})
    with pytest.raises(TxRefused):
        one.finish({"spend:0": Units(1, 1)})


def test_tokens_in_the_purse_come_back_in_the_change() -> None:
    unit = b"\xcc" * 28 + b"coin"
    utxos = (replace(s.money(3 * ADA)[0], assets=((unit, 5),)), *s.money(30 * ADA, start=6000))
    purse = Funds.of(s.WALLET.address, utxos)
    draft = assemble(
        s.snapshot(), Plan((Out(s.payout_address("p"), 2 * ADA, ((unit, 3),)),)), purse
    )
    made = draft.finish().made
    assert made[0].assets == ((unit, 3),)
    assert made[1].assets == ((unit, 2),)
    with pytest.raises(FundsShort):
        assemble(s.snapshot(), Plan((Out(s.payout_address("p"), 2 * ADA, ((unit, 6),)),)), purse)


def test_a_top_up_takes_from_the_consumer_what_the_channel_gains() -> None:
    view = s.view("a", s.ref(1), 40 * ADA)
    batch = Batch((Move(view.utxo, TopUp(6 * ADA)),), signers=(s.WALLET.signer.key_hash,))
    planned = plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch)
    unsigned = _finish(planned.draft)
    _conserved(unsigned, planned.draft.inputs)
    assert unsigned.made[0].lovelace == 46 * ADA
    assert unsigned.made[1].lovelace == 44 * ADA - unsigned.fee


def test_deploying_registers_and_locks_both_scripts_for_good() -> None:
    draft = plans.deploy(s.snapshot(rewards=None, deployed=False), s.funds(40 * ADA))
    unsigned = _finish(draft)
    body = txbytes.body_of(unsigned.bytes)
    settle = s.snapshot().scripts
    assert body[4] == [
        [7, [1, settle.settle_hash], 2 * ADA]
    ]  # it names its deposit and runs settle
    witnesses = cbor2.loads(txbytes.split(unsigned.bytes).witnesses)
    assert witnesses[5] == {(2, 0): [0, [90_000, 95_000_000]]}
    assert witnesses[7] == [settle.settle_cbor]  # what this makes is no reference input yet
    assert 18 not in body and 5 not in body and txbytes.settle_redeemers(unsigned.bytes) == ()
    came = sum(u.lovelace for u in draft.inputs)
    assert came == sum(u.lovelace for u in unsigned.made) + unsigned.fee + 2 * ADA
    signed = unsigned.sign(s.WALLET.signer)
    assert unsigned.fee == _ledgers_least(signed.bytes, unsigned.units, 0)
    with pytest.raises(TxRefused):
        plans.deploy(s.snapshot(), s.funds(40 * ADA))
    scripts_only = plans.deploy(s.snapshot(deployed=False), s.funds(40 * ADA)).finish()
    assert 4 not in txbytes.body_of(scripts_only.bytes)  # registered already, by whomever


def _claims(views: list) -> Batch:
    moves: list[Move] = []
    for view in views:
        session = next(k for k in _sessions(view))
        moves.append(Move(view.utxo, plans.claim_step(Voucher.sign(session, 3 * ADA))))
    payouts = {
        view.consts.payout: s.payout_address(p) for view in views for p in "pq" if _pays(view, p)
    }
    return Batch(tuple(moves), payouts, reserve_collateral=True)


def _sessions(view):
    names = [n for n, _ in _NAMES] + [f"v{i}" for i in range(120)]
    for name in names:
        if s.key(f"session {name}").verify_key == view.session_vk:
            yield s.key(f"session {name}")


def _pays(view, provider: str) -> bool:
    return s.consts("x", provider).payout == view.consts.payout


def test_close_is_refused_from_closing() -> None:
    view = s.view("a", s.ref(1), 40 * ADA, expire_at_ms=s.NOW_MS)
    batch = Batch((Move(view.utxo, Close()),), signers=(s.WALLET.signer.key_hash,))
    with pytest.raises(NotOpen):
        plans.settle(s.snapshot(), s.funds(5 * ADA, 50 * ADA), batch)
