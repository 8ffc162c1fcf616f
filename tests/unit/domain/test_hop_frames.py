"""A payment over the wire: what changed is enough, and a wrong memory at the other end is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.route_world import signer
from marketplace.domain.errors import Malformed
from marketplace.domain.money.route.hop import Earning, Paying, Payment
from marketplace.domain.money.route.leaves import MOST_LEAVES, Leaf, unpack
from marketplace.domain.money.route.statement import StatementRefused
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.hop_frames import frame_of, payment_of

HOP = signer("hop c")
A, B, C = (bytes([n]) * 32 for n in (10, 11, 12))


def payments(*amounts: dict[bytes, int]) -> list[Payment]:
    """One after the other, over one hop."""
    paying, made = Paying(HOP.verify_key), list[Payment]()
    for one in amounts:
        paying = paying.pay(one, HOP)
        assert paying.last is not None
        made.append(paying.last)
    return made


def sent(payment: Payment, since: Payment | None) -> wire.HopPaid:
    """As it arrives."""
    frame = codec.from_bytes(codec.to_bytes(frame_of(payment, since)))
    assert isinstance(frame, wire.HopPaid)
    return frame


def test_only_what_changed_travels_and_makes_the_same_payment() -> None:
    one, two, three = payments({A: 0, B: 0}, {B: 700}, {A: 20, C: 5})
    assert [len(sent(two, one).leaves), len(sent(three, two).leaves)] == [40, 80]
    assert payment_of(sent(one, None), None) == one
    assert payment_of(sent(two, one), one) == two
    assert payment_of(sent(three, two), two) == three
    assert payment_of(sent(three, one), one) == three, "who missed one gets what it lacks"


def test_all_leaves_stand_for_whatever_was_there() -> None:
    one, _, three = payments({A: 0, B: 0}, {B: 700}, {A: 20, C: 5})
    for last in (None, one, three):
        assert payment_of(sent(three, None), last) == three


def test_a_change_to_what_was_missed_is_refused_and_nothing_is_taken() -> None:
    one, two, three = payments({A: 0, B: 0}, {B: 700}, {A: 20})
    earning = Earning(HOP.verify_key, 10_000).take(one)
    wrong = payment_of(sent(three, two), one)
    with pytest.raises(StatementRefused):
        earning.take(wrong)
    assert earning.take(payment_of(sent(three, None), one)).total == 720


def test_the_same_payment_again_is_the_same_whatever_leaves_come_with_it() -> None:
    one, two = payments({A: 0}, {A: 9})
    again = replace(sent(two, one), leaves=sent(one, None).leaves)
    assert payment_of(again, two) == two


@pytest.mark.parametrize(
    "leaves",
    [b"\0" * 39, b"\0" * 40 * (MOST_LEAVES + 1), b"\0" * 32 + b"\xff" * 8],
    ids=["cut", "many", "negative"],
)
def test_leaves_that_are_none_are_refused(leaves: bytes) -> None:
    with pytest.raises(Malformed):
        unpack(leaves)


def test_leaves_keep_their_order() -> None:
    assert unpack(B + bytes(8) + A + (7).to_bytes(8, "big")) == (Leaf(B, 0), Leaf(A, 7))
