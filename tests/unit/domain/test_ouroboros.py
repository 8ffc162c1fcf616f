"""Node-to-node without a network: however its bytes are cut, and whatever they are."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.ouroboros.asking import (
    Accepted,
    Alive,
    Asking,
    AtEnd,
    Event,
    Point,
    Tip,
    Told,
)
from marketplace.domain.ouroboros.mux import SEGMENT_MOST, Protocol, Segments, segments
from marketplace.domain.ouroboros.reading import NETWORKS, SKEW_MS, SlotClock, Standing, judge

HASH = bytes(range(32))
TIP = [[50, HASH], 7]


def answer(protocol: int, message: Any) -> bytes:
    raw = cbor2.dumps(message)
    return bytes(4) + (0x8000 | protocol).to_bytes(2, "big") + len(raw).to_bytes(2, "big") + raw


def opened() -> Asking:
    asking = Asking(1)
    asking.propose(0)
    assert asking.receive(answer(0, [1, 14, [1, False, 0, False]])) == [Accepted(14)]
    return asking


def told(asking: Asking, *messages: bytes) -> list[Event]:
    return [event for message in messages for event in asking.receive(message)]


def test_a_handshake_says_the_network_and_that_we_only_ask() -> None:
    raw = Asking(764_824_073).propose(0x1_2345_6789)
    assert raw[:8] == bytes.fromhex("23456789") + b"\x00\x00" + (len(raw) - 8).to_bytes(2, "big")
    kind, versions = cbor2.loads(raw[8:])
    assert kind == 0 and list(versions) == sorted(versions)
    assert all(data == [764_824_073, True, 0, False] for data in versions.values())


def test_nothing_is_asked_before_the_handshake_nor_twice_at_once() -> None:
    asking = Asking(1)
    assert not asking.ask_tip(0) and not asking.ask_alive(0) and not asking.ask_next(0)
    asking = opened()
    assert asking.ask_tip(0) and not asking.ask_tip(0) and not asking.ask_next(0)
    assert asking.ask_alive(0) and not asking.ask_alive(0)
    assert told(asking, answer(8, [1, 1]), answer(2, [5, [], TIP])) == [
        Alive(1), Told(Tip(Point(50, HASH), 7)),
    ]  # fmt: skip
    assert asking.ask_alive(0) and asking.ask_next(0)


def test_what_it_hands_out_has_to_be_the_tip_that_it_says() -> None:
    header = cbor2.dumps(["a header"])
    name = hashlib.blake2b(header, digest_size=32).digest()
    for tip, proven in (([[60, name], 8], True), ([[60, HASH], 8], False)):
        asking = opened()
        asking.follow(Point(50, HASH), 0)
        assert told(asking, answer(2, [5, [50, HASH], TIP])) == [Told(Tip(Point(50, HASH), 7))]
        asking.ask_next(0)
        assert told(asking, answer(2, [3, [50, HASH], TIP]))[0] == Told(
            Tip(Point(50, HASH), 7), back=Point(50, HASH)
        )
        asking.ask_next(0)
        assert told(asking, answer(2, [1])) == [AtEnd(True)]
        told(asking, answer(2, [2, [6, cbor2.CBORTag(24, header)], tip]))
        asking.ask_next(0)
        assert told(asking, answer(2, [1])) == [AtEnd(proven)]
    asking = opened()  # it does not know its own tip
    asking.follow(Point(50, HASH), 0)
    told(asking, answer(2, [6, TIP]))
    asking.ask_next(0)
    assert told(asking, answer(2, [1])) == [AtEnd(False)]


@given(st.lists(st.binary(max_size=3 * SEGMENT_MOST), max_size=4), st.data())
def test_segments_may_be_cut_anywhere(values: list[bytes], data: st.DataObject) -> None:
    raw = bytearray()
    for value in values:
        sent = bytearray(segments(Protocol.CHAIN_SYNC, cbor2.dumps(value), 5))
        at = 0
        while at < len(sent):  # as if it were answered
            sent[at + 4] |= 0x80
            at += 8 + int.from_bytes(sent[at + 6 : at + 8], "big")
        raw += sent
    reader, found = Segments(), list[bytes]()
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += [value for _, value in reader.receive(bytes(raw[:size]))]
        del raw[:size]
    assert found == values


def fuzzed(count: int, seed: int) -> int:
    """So many frames of chance, half of them nearly right; how many were read."""
    chance, read = random.Random(seed), 0
    right = [
        answer(2, [5, [], TIP]), answer(2, [2, [6, cbor2.CBORTag(24, b"x")], TIP]), answer(2, [1]),
        answer(8, [1, 1]), answer(2, [3, [], TIP]), answer(0, [1, 14, [1, False, 0, False]]),
    ]  # fmt: skip
    asking = opened()
    for turn in range(count):
        if turn % 4 == 0:  # one that has lost its place reads nothing any more
            asking = opened()
        frame = bytearray(chance.choice(right))
        if chance.random() < 0.5:
            for _ in range(chance.randrange(1, 4)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
        else:
            frame = bytearray(chance.randbytes(chance.randrange(40)))
        asking.ask_tip(0)
        asking.ask_next(0)
        asking.ask_alive(0)
        try:
            read += len(asking.receive(bytes(frame)))
        except (Malformed, Refusal):
            asking = opened()
    return read


def test_nothing_but_a_refusal_comes_out_of_strange_frames() -> None:
    assert fuzzed(20_000, 1) > 100


@pytest.mark.nightly
def test_nothing_but_a_refusal_comes_out_of_a_million_strange_frames() -> None:
    assert fuzzed(1_000_000, 2) > 5_000


CLOCK = SlotClock(100, 1_000_000)


@pytest.mark.parametrize(
    ("slot", "standing"),
    [
        (200, Standing.AT_TIP),
        (140, Standing.AT_TIP),  # a minute old
        (139, Standing.LAGGING),
        (200 + SKEW_MS // 1000, Standing.AT_TIP),
        (201 + SKEW_MS // 1000, Standing.AHEAD),
        (1 << 63, Standing.AHEAD),
    ],
)
def test_where_a_tip_stands(slot: int, standing: Standing) -> None:
    now = CLOCK.when(200)
    assert judge(Tip(Point(slot, HASH), 1), CLOCK, now, 60_000) is standing


def test_slots_of_the_public_networks() -> None:
    # Blocks that anybody can look up: the first of epoch 500 on mainnet, 19 July 2024, 21:44:51 UTC.
    assert NETWORKS["mainnet"].clock.at(1_721_425_491_000) == 129_859_200
    for one in NETWORKS.values():
        assert one.clock.at(one.clock.when(1_000_000)) == 1_000_000
