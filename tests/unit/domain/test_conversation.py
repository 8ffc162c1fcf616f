"""The conversation loses nothing and handles nothing twice, whatever the connection does."""

from __future__ import annotations

import random

import pytest

from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import (
    MAX_WAITING,
    Backlog,
    Client,
    HelloRefused,
    Numbering,
    Server,
)

ADAPTER = Signer(b"a" * 32)
AT = "https://market.example"


def client() -> Client:
    return Client("adapter", ADAPTER, 42, "test", Numbering(b"s" * 16), AT)


def greet(c: Client, numberings: dict[tuple[bytes, bytes], Numbering], market: bytes) -> Server:
    """One connection up to the welcome; what is sent again is delivered to the server."""
    server = Server(42, b"n" * 32, market, numberings, (AT,))
    (challenge,), _ = server.receive(c.connected(), 0)
    (proof,), _ = c.receive(challenge)
    frames, _ = server.receive(proof, 0)
    for frame in frames:
        again, _ = c.receive(frame)
        for data in again:
            server.receive(data, 0)
    return server


def note(i: int) -> wire.Message:
    return wire.LeaseDeclined(f"lease_{i}", "CODE", "text")


def test_a_hello_is_proven() -> None:
    server = greet(client(), {}, b"m" * 16)
    assert server.hello is not None and server.hello.key == ADAPTER.verify_key


def test_a_forged_proof_is_refused() -> None:
    server = Server(42, b"n" * 32, b"m" * 16, {}, (AT,))
    server.receive(client().connected(), 0)
    with pytest.raises(HelloRefused, match="not signed"):
        server.receive(codec.to_bytes(wire.Proof(bytes(64))), 0)


def test_a_proof_for_another_nonce_is_refused() -> None:
    first, second = (
        Server(42, b"n" * 32, b"m" * 16, {}, (AT,)),
        Server(42, b"o" * 32, b"m" * 16, {}, (AT,)),
    )
    c = client()
    (challenge,), _ = first.receive(c.connected(), 0)
    (proof,), _ = c.receive(challenge)
    second.receive(c.connected(), 0)
    with pytest.raises(HelloRefused):
        second.receive(proof, 0)


def test_another_network_is_refused() -> None:
    with pytest.raises(HelloRefused, match="network"):
        Server(1, b"n" * 32, b"m" * 16, {}, (AT,)).receive(client().connected(), 0)


def test_nothing_is_accepted_before_the_proof() -> None:
    server = Server(42, b"n" * 32, b"m" * 16, {}, (AT,))
    with pytest.raises(HelloRefused):
        server.receive(codec.to_bytes(wire.Data(1, codec.to_bytes(note(1)))), 0)


def test_a_gap_is_refused_and_a_repetition_ignored() -> None:
    numberings: dict[tuple[bytes, bytes], Numbering] = {}
    c = client()
    server = greet(c, numberings, b"m" * 16)
    one, two, three = c.send(note(1)), c.send(note(2)), c.send(note(3))
    assert server.receive(one, 0)[1] == note(1)
    assert server.receive(one, 0)[1] is None
    with pytest.raises(HelloRefused, match="missing"):
        server.receive(three, 0)
    assert server.receive(two, 0)[1] == note(2)


@pytest.mark.parametrize("seed", range(30))
def test_over_random_cuts_every_message_arrives_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    numberings: dict[tuple[bytes, bytes], Numbering] = {}
    c, market, got, sent = client(), b"m" * 16, list[wire.Message](), 0
    while len(got) < 40:
        server = Server(42, bytes([chance.randrange(256)]) * 32, market, numberings, (AT,))
        (challenge,), _ = server.receive(c.connected(), 0)
        (proof,), _ = c.receive(challenge)
        frames, _ = server.receive(proof, 0)
        line = [data for frame in frames for data in c.receive(frame)[0]]
        while sent < 40 and chance.random() < 0.7:
            line.append(c.send(note(sent)))
            sent += 1
        arrived = line[: chance.randrange(len(line) + 1)]  # the cut
        for frame in arrived:
            _, message = server.receive(frame, 0)
            if message is not None and server.numbering is not None:
                got.append(message)
                server.numbering.finish(server.numbering.received)
        if arrived and chance.random() < 0.5:
            c.receive(server.acknowledgement())
    assert got == [note(i) for i in range(40)]


def test_what_was_cut_off_while_it_was_handled_comes_again() -> None:
    c, numberings = client(), dict[tuple[bytes, bytes], Numbering]()
    first = greet(c, numberings, b"m" * 16)
    numbering = first.numbering
    assert numbering is not None
    assert [first.receive(c.send(note(n)), 0)[1] for n in (1, 2, 3)] == [note(1), note(2), note(3)]
    numbering.finish(1)
    numbering.finish(3)  # the second one still waits for its commit
    assert codec.from_bytes(first.acknowledgement()) == wire.Ack(1)
    c.receive(first.acknowledgement())

    again = Server(42, b"n" * 32, b"m" * 16, numberings, (AT,))  # the line broke
    (challenge,), _ = again.receive(c.connected(), 0)
    (proof,), _ = c.receive(challenge)
    (welcome,), _ = again.receive(proof, 0)
    frames, _ = c.receive(welcome)
    assert [again.receive(frame, 0)[1] for frame in frames] == [note(2), None]
    numbering.finish(2)
    assert codec.from_bytes(again.acknowledgement()) == wire.Ack(3)


def test_a_market_that_restarts_gets_what_was_not_acknowledged() -> None:
    c = client()
    first = greet(c, {}, b"m" * 16)
    first.receive(c.send(note(1)), 0)
    c.receive(first.handled())
    c.send(note(2))
    c.send(note(3))
    fresh: dict[tuple[bytes, bytes], Numbering] = {}
    greet(c, fresh, b"M" * 16)
    (numbering,) = fresh.values()
    assert numbering.received == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x83\x01",
        codec.to_bytes(note(1))[:-1],
        b"\xff" * 40,
        bytes(codec.MAX_FRAME + 1),
    ],
)
def test_other_bytes_are_refused_with_a_code(data: bytes) -> None:
    with pytest.raises(Refusal):
        codec.from_bytes(data)


@pytest.mark.parametrize("seed", range(20))
def test_mangled_frames_never_crash(seed: int) -> None:
    chance = random.Random(seed)
    good = codec.to_bytes(note(1))
    for _ in range(100):
        bad = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        try:
            codec.from_bytes(bytes(bad))
        except Refusal as refusal:
            assert refusal.code in ("MALFORMED", "WIRE_REFUSED")


def test_a_market_keeps_so_much_for_a_client_that_acknowledges_nothing() -> None:
    c = client()
    server = greet(c, {}, b"m" * 16)
    part = wire.BlobPart("lease", "ab" * 32, 0, 1 << 20, bytes(1 << 18))
    sent = 0
    with pytest.raises(Backlog):
        for _ in range(MAX_WAITING // (1 << 18) + 1):
            server.send(part)
            sent += 1
    assert sent * (1 << 18) <= MAX_WAITING < (sent + 2) * (1 << 18)
    server.receive(codec.to_bytes(wire.Ack(1)), 0)
    server.send(part)
