"""Where a channel went, from outputs alone: against the twin, with decoys, and read in two ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.chain.channels import descent
from marketplace.chain.channels.descent import Landing
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.channel import (
    Channel,
    Claim,
    Close,
    Closing,
    Consts,
    Continuing,
    Finish,
    Held,
    Open,
    Payout,
    Step,
    TopUp,
    Witness,
    expect,
    will,
)
from marketplace.domain.money.voucher import voucher_message

SESSION = Signer(b"\x05" * 32)
CONSUMER, ADAPTER = b"\x04" * 28, b"\x02" * 28
WITNESS = Witness(frozenset((ADAPTER, CONSUMER)), 0, 5000)
STUB = Address(Credential(b"\x09" * 28, True), Credential(b"\x0a" * 28))
PAYOUTS = [Address(Credential(bytes([n]) * 28)) for n in (0x31, 0x32)]
HOME = Address(Credential(CONSUMER), STUB.stake)
"""Where a refund goes; as somebody's payout address it makes refunds look like payouts."""
SPENDER = b"\xee" * 32


def _claim(cum: int) -> Claim:
    return Claim(cum, cum, SESSION.sign(voucher_message(cum)))


def _channel(payout: Address, bps: int, closing: bool) -> Channel:
    consts = Consts(SESSION.verify_key, ADAPTER, payout.payout(), CONSUMER, 1000, bps)
    stage = Closing(consts, 3, 9_000) if closing else Open(consts, 3)
    return Channel(STUB, stage, Held(50_000_000))


def _utxo(ref: OutRef, address: Address, lovelace: int, body: bytes | None = None) -> Utxo:
    return Utxo(ref, addresses.join(address, False), lovelace, datum=body)


def _transaction(moved: list[tuple[Channel, Step]]) -> tuple[list[Utxo], list[Utxo]]:
    """Inputs and outputs as settle demands them, payouts paid exactly."""
    inputs = [
        _utxo(OutRef(bytes([n]) * 32, 0), c.address, c.held.lovelace, datum.stage_bytes(c.stage))
        for n, (c, _) in enumerate(moved)
    ]
    by_payout = {a.payout(): a for a in (*PAYOUTS, HOME)}
    outputs: list[Utxo] = []
    for out in expect([will(channel, step, WITNESS) for channel, step in moved]):
        ref = OutRef(SPENDER, len(outputs))
        if isinstance(out, Payout):
            outputs.append(_utxo(ref, by_payout[out.payout], out.owed))
        elif isinstance(out, Continuing):
            body = datum.stage_bytes(out.channel.stage)
            outputs.append(_utxo(ref, out.channel.address, out.channel.held.lovelace, body))
        else:
            outputs.append(_utxo(ref, out.address, out.held.lovelace))
    return inputs, outputs


def _landings(moved: list[tuple[Channel, Step]], *more: Utxo) -> list[frozenset[Landing]]:
    inputs, outputs = _transaction(moved)
    return [descent.landings(u.ref, inputs, [*outputs, *more], b"") for u in inputs]


def _true(moved: list[tuple[Channel, Step]]) -> list[Landing]:
    outputs = expect([will(channel, step, WITNESS) for channel, step in moved])
    own = [at for at, out in enumerate(outputs) if not isinstance(out, Payout)]
    return [Landing(p, isinstance(s, Finish)) for p, (_, s) in zip(own, moved, strict=True)]


steps = st.one_of(
    st.integers(4, 30).map(_claim),
    st.integers(4, 30).map(lambda cum: Finish(_claim(cum))),
    st.just(Finish()),
    st.integers(1, 30).map(TopUp),
    st.just(Close()),
)


def _moves(*payouts: Address) -> st.SearchStrategy[list[tuple[Channel, Step]]]:
    channels = st.builds(
        _channel, st.sampled_from(payouts), st.sampled_from((0, 50, 10_000)), st.booleans()
    )
    one = st.tuples(channels, steps).filter(
        lambda m: not (isinstance(m[0].stage, Closing) and isinstance(m[1], TopUp | Close))
    )
    return st.lists(one, min_size=1, max_size=8)


@given(_moves(*PAYOUTS))
def test_outputs_alone_tell_where_the_twin_puts_each_channel(
    moved: list[tuple[Channel, Step]],
) -> None:
    assert _landings(moved) == [{landing} for landing in _true(moved)]


@given(_moves(*PAYOUTS), st.sampled_from((0, 1, 4_000_000)), st.booleans())
def test_no_decoy_behind_the_outputs_is_taken_for_a_channel(
    moved: list[tuple[Channel, Step]], more: int, closing: bool
) -> None:
    inputs, outputs = _transaction(moved)
    stage = datum.read_stage(inputs[0].datum or b"")
    copy = Closing(stage.consts, stage.claimed, 9_999) if closing else stage
    decoys = [
        _utxo(OutRef(SPENDER, len(outputs) + n), STUB, 50_000_000 + more, datum.stage_bytes(copy))
        for n in range(2)
    ]
    assert _landings(moved, *decoys) == [{landing} for landing in _true(moved)]


@given(_moves(HOME))
def test_the_redeemer_decides_only_among_what_the_outputs_allow(
    moved: list[tuple[Channel, Step]],
) -> None:
    """A provider and a consumer of one address: refunds look like payouts."""
    inputs, outputs = _transaction(moved)
    told = datum.steps_bytes([step for _, step in moved])
    for utxo, landing in zip(inputs, _true(moved), strict=True):
        assert landing in descent.landings(utxo.ref, inputs, outputs, b"")
        assert descent.landing_told(told, utxo.ref, inputs) == landing


def test_a_neighbour_can_make_two_readings_but_not_many() -> None:
    """Forty neighbours of one address for payout and refund: all readings are found in no time."""
    pair = [(_channel(HOME, 0, False), Finish(_claim(9))), (_channel(HOME, 0, False), TopUp(4))]
    moved: list[tuple[Channel, Step]] = [*pair * 20, (_channel(PAYOUTS[0], 0, False), Close())]
    assert _true(moved)[-1] in _landings(moved)[-1]


@pytest.mark.parametrize("pointer", [b"\x41", b"\x51"])
def test_a_payout_to_a_pointer_hides_no_channel(pointer: bytes) -> None:
    moved: list[tuple[Channel, Step]] = [
        (_channel(PAYOUTS[0], 0, False), _claim(9)),
        (_channel(PAYOUTS[1], 0, False), Close()),
    ]
    inputs, outputs = _transaction(moved)
    odd = replace(outputs[1], address=pointer + b"\x31" * 28 + b"\x01\x02\x03")
    found = descent.landings(inputs[1].ref, inputs, [outputs[0], odd, outputs[2]], b"")
    assert found == {Landing(2, False)}


def test_what_no_settlement_makes_is_no_landing() -> None:
    inputs, outputs = _transaction([(_channel(PAYOUTS[0], 0, False), Close())])
    for broken in (
        replace(outputs[0], lovelace=outputs[0].lovelace - 1),
        replace(outputs[0], address=addresses.join(HOME, False)),
        replace(outputs[0], script_hash=b"\x01" * 28),
        replace(outputs[0], assets=((b"\x01" * 29, 1),)),
        replace(outputs[0], datum=None),
    ):
        assert descent.landings(inputs[0].ref, inputs, [broken], b"") == frozenset()
    assert descent.landings(inputs[0].ref, inputs, [], b"") == frozenset()
    with pytest.raises(Malformed):
        descent.landings(OutRef(b"\x77" * 32, 0), inputs, outputs, b"")
