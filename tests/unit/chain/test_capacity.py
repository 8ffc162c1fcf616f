"""How far money may be relied upon at each depth; the caps of the channel's design."""

from __future__ import annotations

import pytest

from marketplace.chain.channels.capacity import Capacity, Funding, capacity, relied_on

ADA = 1_000_000


@pytest.mark.parametrize(
    ("depth", "relied"),
    [
        (0, 0),
        (1, 3 * ADA),
        (4, 3 * ADA),
        (5, 60 * ADA),
        (14, 60 * ADA),
        (15, 100 * ADA),
        (99, 100 * ADA),
    ],
)
def test_a_channel_of_100_ada_by_depth(depth: int, relied: int) -> None:
    assert relied_on([Funding(100 * ADA, depth)]) == relied


def test_each_top_up_counts_by_its_own_depth() -> None:
    deep, young, unseen = Funding(50 * ADA, 20), Funding(50 * ADA, 2), Funding(50 * ADA, 0)
    assert relied_on([deep, young, unseen]) == 53 * ADA
    assert relied_on([young, young]) == 3 * ADA  # many small top-ups raise no cap
    assert relied_on([Funding(1 * ADA, 1), deep]) == 51 * ADA


def test_the_reserve_is_never_promised() -> None:
    assert capacity([Funding(10 * ADA, 15)], 2 * ADA) == Capacity(8 * ADA, 8 * ADA, 2 * ADA)
    assert capacity([Funding(10 * ADA, 1)], 2 * ADA) == Capacity(8 * ADA, 1 * ADA, 2 * ADA)
    assert capacity([Funding(1 * ADA, 99)], 2 * ADA) == Capacity(0, 0, 2 * ADA)
