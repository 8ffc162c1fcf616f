"""A settlement read as settle reads it: where each channel's output lies, in every encoding."""

from __future__ import annotations

from dataclasses import replace

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.chain.encoding import cursor, datum, lenient
from marketplace.domain.errors import Malformed
from marketplace.domain.keys import Signer
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.channel import (
    Channel,
    Claim,
    Close,
    Consts,
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
WITNESS = Witness(frozenset((b"\x02" * 28, b"\x04" * 28)), 0, 0)


def _channel(payout: int, bps: int) -> Channel:
    consts = Consts(SESSION.verify_key, b"\x02" * 28, bytes([payout]) * 28, b"\x04" * 28, 1000, bps)
    return Channel(Address(Credential(b"\x09" * 28, True)), Open(consts, 3), Held(50_000_000))


def _claim(cum: int) -> Claim:
    return Claim(cum, cum, SESSION.sign(voucher_message(cum)))


steps = st.one_of(
    st.integers(4, 30).map(_claim),
    st.integers(4, 30).map(lambda cum: Finish(_claim(cum))),
    st.just(Finish()),
    st.integers(1, 30).map(TopUp),
    st.just(Close()),
)
moves = st.lists(
    st.tuples(st.builds(_channel, st.integers(1, 2), st.sampled_from((0, 50, 10_000))), steps),
    min_size=1,
    max_size=8,
)


@given(moves)
def test_outputs_lie_where_the_twin_puts_them(moved: list[tuple[Channel, Step]]) -> None:
    outputs = expect([will(channel, step, WITNESS) for channel, step in moved])
    own = [at for at, out in enumerate(outputs) if not isinstance(out, Payout)]
    read = lenient.steps_of(datum.steps_bytes([step for _, step in moved]))
    assert [step.ends for step in read] == [isinstance(step, Finish) for _, step in moved]
    datums = [datum.stage_bytes(channel.stage) for channel, _ in moved]
    assert [lenient.output_index(datums, read, mine) for mine in range(len(moved))] == own


@pytest.mark.parametrize("junk", [b"", b"\x01", b"\xa1\x80\xa0", b"\x81" * 5000 + b"\x00"])
def test_what_settle_does_not_look_at_is_not_looked_at(junk: bytes) -> None:
    general = b"\xd8\x66\x82\x03\x9f\x07" + junk + b"\xff"
    wide = b"\xd9\x00\x7c\x9f\xc2\x41\x07" + junk + b"\xff"
    for odd in (general, wide):
        assert [step.kind for step in lenient.steps_of(b"\x9f" + odd + b"\xff")] == [3]


@pytest.mark.parametrize(
    "broken",
    [
        b"", b"\x00", b"\x81", b"\x81\x00", b"\x81\xd8\x7c", b"\x81\xd8\x66\x80", b"\x9f\xd8\x7b\x80",
        b"\x81\xd8\x78\x80", b"\x81\xd8\x66\x82\x41\x00\x80", b"\x9b" + b"\xff" * 8, b"\x1f",
    ],
)  # fmt: skip
def test_what_is_no_redeemer_is_malformed(broken: bytes) -> None:
    with pytest.raises(Malformed):
        lenient.steps_of(broken)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_step_without_what_it_needs_is_malformed(kind: int) -> None:
    read = lenient.steps_of(b"\x81\xd8" + bytes([121 + kind]) + b"\x82\x80\x80")
    with pytest.raises(Malformed):
        lenient.output_index([datum.stage_bytes(_channel(1, 0).stage)], read, 0)


@given(st.binary(max_size=60))
def test_bytes_from_anywhere_are_steps_and_states_or_malformed(raw: bytes) -> None:
    for read in (lenient.steps_of, lenient.state_of):
        try:
            read(raw)
        except Malformed:
            pass


@given(st.recursive(
    st.integers() | st.binary(max_size=9) | st.text(max_size=9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9), inner, max_size=3),
    max_leaves=12,
))  # fmt: skip
def test_an_item_ends_where_a_decoder_ends(value: object) -> None:
    raw = cbor2.dumps(value)
    assert cursor.skip(raw + b"\xff\x00", 0) == len(raw)
    assert [cbor2.loads(one) for one in cursor.items(b"\x82" + raw * 2)] == [value, value]


def test_a_channels_own_constants_stay_strict() -> None:
    odd = replace(_channel(1, 0).stage.consts, payout=b"\x01" * 27)
    with pytest.raises(Malformed):
        datum.read_stage(datum.stage_bytes(Open(odd, 0)))
