"""Windows of connections: nothing is lost, nobody waits for ever, and no liar gains room."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.protocol import flow

SIZES = st.lists(st.integers(0, 3 * flow.WINDOW // 2), max_size=40)


@given(SIZES, st.data())
def test_all_passes_within_the_window_in_any_order_of_turns(
    sizes: list[int], data: st.DataObject
) -> None:
    """The sender, the receiver and what the receiver tells take turns as they like."""
    sending, receiving = flow.Sending(), flow.Receiving()
    to_send = deque(bytes(size) for size in sizes)
    waiting, told = deque[bytes](), deque[int]()
    largest = max((flow.cost(one) for one in to_send), default=0)
    while to_send or waiting:
        turns = ["send"] if to_send and sending.room else []
        turns += ["pass"] if waiting else []
        turns += ["tell"] if told else []
        assert turns, "nobody can do anything"
        turn = data.draw(st.sampled_from(turns))
        if turn == "send":
            # What an honest sender gives always fits: a receiver may cut off who sends more.
            assert sum(map(flow.cost, waiting)) < flow.WINDOW
            sending.gave(to_send[0])
            waiting.append(to_send.popleft())
        elif turn == "pass":
            total = receiving.passed(waiting.popleft())
            told.extend([] if total is None else [total])
        else:
            sending.heard(told.popleft())
        assert sum(map(flow.cost, waiting)) < flow.WINDOW + largest
    assert receiving.taken == sending.sent == sum(flow.cost(bytes(size)) for size in sizes)


@given(SIZES, st.lists(st.integers(-(1 << 70), 1 << 70)))
def test_a_lie_about_what_was_taken_gains_no_more_than_what_was_sent(
    sizes: list[int], lies: list[int]
) -> None:
    sending = flow.Sending()
    for size in sizes:
        sending.gave(bytes(size))
    for lie in lies:
        before = sending.taken
        sending.heard(lie)
        assert before <= sending.taken <= sending.sent


def test_small_messages_count_for_what_they_take() -> None:
    sending, sent = flow.Sending(), 0
    while sending.room:
        sending.gave(b"x")
        sent += 1
    assert sent < flow.WINDOW // flow.EACH
