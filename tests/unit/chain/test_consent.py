"""What an adapter signs when somebody else ends its channels, and every way to cheat it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Move
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum, plutus
from marketplace.chain.encoding.address import stake_account
from marketplace.chain.settlement.consent import (
    LIVES_SLOTS,
    ConsentRefused,
    Ending,
    Known,
    check,
    consent,
    to_resolve,
)
from marketplace.chain.transaction.signing import join
from marketplace.domain.money.channel import Claim, Finish
from marketplace.domain.money.voucher import Voucher
from tests.unit.support import snapshot as s

ADA = s.ADA
SNAPSHOT = s.snapshot()
ME, OTHER = s.key("adapter p"), s.key("adapter q")
MONEY = s.money(5 * ADA, 50 * ADA)
VIEWS = {
    "a": s.view("a", s.ref(1), 20 * ADA),
    "b": s.view("b", s.ref(2), 20 * ADA, provider="q"),
    "c": s.view("c", s.ref(3), 20 * ADA),
}
TAKE = 2 * ADA


def _voucher(name: str) -> Voucher:
    return Voucher.sign(s.key(f"session {name}"), TAKE)


def _finish(name: str) -> Move:
    return Move(VIEWS[name].utxo, plans.finish_step(_voucher(name), 0))


def _batch(*moves: Move, until_ms: int | None = None) -> tuple[bytes, bytes]:
    """(body, redeemers) of an honest builder's transaction."""
    payouts = {VIEWS[n].consts.payout: s.payout_address(p) for n, p in (("a", "p"), ("b", "q"))}
    signers = (ME.key_hash, OTHER.key_hash)
    batch = Batch(moves, payouts, signers, until_ms=until_ms)
    draft = plans.settle(SNAPSHOT, s.funds(5 * ADA, 50 * ADA), batch).draft
    made = draft.finish(draft.guess)
    assert made.redeemers is not None
    return made.body, made.redeemers


def _known(*names: str) -> Known:
    every = {u.ref: u for u in (*MONEY, *(v.utxo for v in VIEWS.values()))}
    asked = {VIEWS[n].utxo.ref: Ending(VIEWS[n].utxo, _voucher(n), TAKE) for n in names}
    return Known(ME.key_hash, asked, every, SNAPSHOT)


BODY, REDEEMERS = _batch(_finish("a"), _finish("b"))


def _changed(change: Callable[[dict[int, Any]], None]) -> bytes:
    body = cbor2.loads(BODY)
    change(body)
    return join(cbor2.dumps(body), (), REDEEMERS)


def _refused(tx: bytes, known: Known | None = None) -> str:
    with pytest.raises(ConsentRefused) as no:
        check(tx, known or _known("a"))
    return str(no.value.fields["rule"])


def test_an_honest_batch_of_two_adapters_is_signed_by_each() -> None:
    tx = join(BODY, (), REDEEMERS)
    mine = consent(tx, _known("a"), ME)
    its = consent(tx, replace(_known("b"), adapter_vkh=OTHER.key_hash), OTHER)
    assert mine.good_for(BODY, ME.key_hash) and its.good_for(BODY, OTHER.key_hash)
    assert not mine.good_for(BODY, OTHER.key_hash)
    assert to_resolve(tx) == {VIEWS[n].utxo.ref for n in "ab"} | {u.ref for u in MONEY}


def test_a_second_step_on_the_adapters_other_channel_is_not_hidden_under_one_signature() -> None:
    hidden = [
        _finish("c"),
        Move(VIEWS["c"].utxo, Finish()),
        Move(VIEWS["c"].utxo, plans.claim_step(_voucher("c"))),
    ]
    for move in hidden:
        body, redeemers = _batch(_finish("a"), _finish("b"), move)
        assert _refused(join(body, (), redeemers)) == "CHANNELS"
    assert _refused(join(BODY, (), REDEEMERS), _known("a", "c")) == "CHANNELS"  # nor one left out
    assert _refused(join(BODY, (), REDEEMERS), _known()) == "CHANNELS"  # nor one never asked for


def test_the_end_takes_all_that_was_asked_and_is_an_end() -> None:
    voucher = _voucher("a")
    less = Finish(Claim(voucher.cumulative, TAKE - 1, voucher.signature))
    for step in (less, Finish(), plans.claim_step(voucher)):
        body, redeemers = _batch(Move(VIEWS["a"].utxo, step), _finish("b"))
        assert _refused(join(body, (), redeemers)) == "TWIN"


def _output_to(address: bytes) -> Callable[[dict[int, Any]], int]:
    def at(body: dict[int, Any]) -> int:
        def of(out: Any) -> bytes:
            return out[0]

        return next(n for n, out in enumerate(body[1]) if of(out) == address)

    return at


def _with_lovelace(out: Any, less: int) -> Any:
    out[1] -= less  # both forms of an output keep the value there
    return out


def _with_address(out: Any, address: bytes) -> Any:
    out[0] = address
    return out


def _refund(view: ChannelView) -> bytes:
    return addresses.join(view.channel.refund, False)


def test_a_refund_or_a_payout_short_by_one_lovelace_is_refused() -> None:
    for address in (_refund(VIEWS["a"]), s.payout_address("p")):

        def short(body: dict[int, Any], address: bytes = address) -> None:
            n = _output_to(address)(body)
            body[1][n] = _with_lovelace(body[1][n], 1)

        assert _refused(_changed(short)) == "TWIN"


def test_a_payout_or_a_refund_to_another_address_is_refused() -> None:
    for address in (_refund(VIEWS["a"]), s.payout_address("p")):

        def elsewhere(body: dict[int, Any], address: bytes = address) -> None:
            n = _output_to(address)(body)
            body[1][n] = _with_address(body[1][n], s.payout_address("thief"))

        assert _refused(_changed(elsewhere)) == "TWIN"

    def other_network(body: dict[int, Any]) -> None:
        n = _output_to(s.payout_address("p"))(body)
        body[1][n] = _with_address(body[1][n], b"\x61" + s.payout_address("p")[1:])

    assert _refused(_changed(other_network)) == "NETWORK"  # the datum's hash does not name it


def test_an_input_that_our_own_door_does_not_show_is_refused_whatever_the_builder_says() -> None:
    for gone in to_resolve(join(BODY, (), REDEEMERS)):
        known = _known("a")
        seen = {ref: utxo for ref, utxo in known.resolved.items() if ref != gone}
        assert _refused(join(BODY, (), REDEEMERS), replace(known, resolved=seen)) == "RESOLVED"


def test_an_input_locked_by_another_script_is_refused() -> None:
    known, other = _known("a"), VIEWS["b"].utxo
    alien = replace(other, address=b"\x70" + b"\x11" * 28)
    assert (
        _refused(
            join(BODY, (), REDEEMERS), replace(known, resolved={**known.resolved, other.ref: alien})
        )
        == "CHANNELS"
    )


def test_a_channel_that_moved_since_it_was_asked_for_is_refused() -> None:
    known, mine = _known("a"), VIEWS["a"].utxo
    moved = replace(mine, lovelace=mine.lovelace + 1)
    assert (
        _refused(
            join(BODY, (), REDEEMERS), replace(known, resolved={**known.resolved, mine.ref: moved})
        )
        == "CHANNELS"
    )


def test_a_map_with_one_key_twice_is_refused() -> None:
    fee = cbor2.dumps(2) + cbor2.dumps(cbor2.loads(BODY)[2])
    twice = bytes([BODY[0] + 1]) + BODY[1:] + fee
    assert _refused(join(twice, (), REDEEMERS)) == "BYTES"
    count = cbor2.loads(REDEEMERS)
    row = next(iter(count.items()))
    again = plutus.head(5, len(count) + 1) + REDEEMERS[1:] + b"".join(map(cbor2.dumps, row))
    assert _refused(join(BODY, (), again)) == "BYTES"


def test_a_body_bound_to_other_redeemers_is_refused() -> None:
    _, others = _batch(_finish("a"), Move(VIEWS["b"].utxo, Finish()))
    assert _refused(join(BODY, (), others)) == "SCRIPT_DATA"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (4, [[0, [0, ME.key_hash]]]),
        (9, {b"\x22" * 28: {b"": 1}}),
        (19, {}),
        (20, []),
        (22, 1),
        (7, bytes(32)),
    ],
    ids=["certificate", "mint", "vote", "proposal", "donation", "data"],
)
def test_nothing_else_is_slipped_in(field: int, value: Any) -> None:
    assert _refused(_changed(lambda body: body.update({field: value}))) == "FIELDS"


def test_no_other_rewards_are_withdrawn() -> None:
    mine = b"\xe0" + ME.key_hash
    assert _refused(_changed(lambda body: body[5].update({mine: 1}))) == "WITHDRAWAL"
    assert _refused(_changed(lambda body: body.update({5: {mine: 0}}))) == "WITHDRAWAL"
    assert stake_account(SNAPSHOT.scripts.settle_hash, False) in cbor2.loads(BODY)[5]


def test_money_at_the_key_that_ends_channels_is_neither_spent_nor_pledged() -> None:
    known = _known("a")
    for stake in (None, b"\x77" * 28):
        at = addresses.key_address(ME.key_hash, stake, False)
        for utxo in MONEY:
            if utxo.ref not in to_resolve(join(BODY, (), REDEEMERS)):
                continue
            own = {**known.resolved, utxo.ref: replace(utxo, address=at)}
            assert _refused(join(BODY, (), REDEEMERS), replace(known, resolved=own)) == "MONEY"


def test_it_may_not_live_longer_than_fifteen_minutes() -> None:
    now = SNAPSHOT.tip.slot
    for until in (now + LIVES_SLOTS + 1, now, now - 1):
        assert _refused(_changed(lambda body, u=until: body.update({3: u}))) == "EXPIRY"
    assert _refused(_changed(lambda body: body.pop(3))) == "FIELDS"


def test_it_asks_for_our_signature() -> None:
    assert _refused(_changed(lambda body: body.update({14: [OTHER.key_hash]}))) == "SIGNERS"


def test_a_consent_is_good_for_one_body_only() -> None:
    mine = consent(join(BODY, (), REDEEMERS), _known("a"), ME)
    other, _ = _batch(_finish("a"))
    assert not mine.good_for(other, ME.key_hash)


def test_only_the_key_of_these_channels_consents() -> None:
    with pytest.raises(ConsentRefused):
        consent(join(BODY, (), REDEEMERS), _known("a"), OTHER)


def test_signatures_and_scripts_of_others_are_not_taken_along() -> None:
    witness = (OTHER.verify_key, OTHER.sign(bytes(32)))
    assert _refused(join(BODY, (witness,), REDEEMERS)) == "FIELDS"
    assert _refused(join(BODY, (), REDEEMERS, b"\x01")) == "FIELDS"


def test_a_payout_that_carries_a_datum_is_refused() -> None:
    n = _output_to(s.payout_address("p"))(cbor2.loads(BODY))
    inline = cbor2.CBORTag(24, datum.stage_bytes(VIEWS["a"].stage))

    def loaded(fields: dict[int, Any]) -> None:
        out = fields[1][n]
        address, value = out[0], out[1]
        fields[1][n] = {0: address, 1: value, 2: [1, inline]}

    assert _refused(_changed(loaded)) == "TWIN"


def test_noise_is_refused_by_name() -> None:
    tx = join(BODY, (), REDEEMERS)
    for noise in (b"", b"\x84", tx[:-1], tx + b"\x00", tx[:-2] + b"\xf4\xf6"):
        assert _refused(noise) == "BYTES"


def test_settle_is_told_one_thing_and_no_other_script_runs() -> None:
    rows = [(tag, at, *told) for (tag, at), told in cbor2.loads(REDEEMERS).items()]
    for more in ((1, 0, 0, [1, 1]), next(row for row in rows if row[:2] == (3, 0))):
        redeemers = cbor2.dumps([list(row) for row in (*rows, more)])
        body = cbor2.loads(BODY)
        body[11] = SNAPSHOT.params.script_data_hash(redeemers)
        assert _refused(join(cbor2.dumps(body), (), redeemers)) == "REDEEMERS"
