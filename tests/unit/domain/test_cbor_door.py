"""The door for strangers' bytes: what a general decoder chokes on is refused here, in linear
time.
"""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.chain.encoding import plutus, txbytes
from marketplace.domain import canonical, cbor
from marketplace.domain.errors import Malformed
from marketplace.domain.protocol import codec, wire
from marketplace.domain.protocol.conversation import Server
from marketplace.domain.work.job import JobSpec
from tests.fakes import spec

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.binary(max_size=40) | st.text(max_size=20)
    | st.integers(-(2**64), 2**64 - 1),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=30,
)  # fmt: skip


@given(PLAIN)
def test_what_we_write_is_read_as_a_decoder_reads_it(value: object) -> None:
    raw = cbor2.dumps(value)
    try:
        read = cbor.strict(raw)
    except Malformed as error:
        assert "deep" in str(error)
        return
    assert read == value
    assert cbor.ledger(raw) == value


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(Malformed, match="twice"):
        cbor.strict(b"\xa2\x61a\x00\x61a\x01")


def test_text_is_utf8_and_keys_are_text() -> None:
    for raw in (
        b"\x62\xc3\x28",
        b"\xa1\x01\x02",
        b"\xa1\x41a\x02",
        b"\xa1\xf6\x02",
        b"\xa1\x80\x02",
    ):
        with pytest.raises(Malformed):
            cbor.strict(raw)


def test_open_forms_tags_and_floats_are_not_for_frames() -> None:
    for raw in ("9fff", "bfff", "5fff", "7f6161ff", "c0f6", "c24101", "f90000", "f7", "f814", "ff"):
        with pytest.raises(Malformed):
            cbor.strict(bytes.fromhex(raw))


@pytest.mark.parametrize("depth", [cbor.FRAME.depth, cbor.FRAME.depth + 1])
def test_a_frame_is_eight_deep_at_most(depth: int) -> None:
    raw = b"\x81" * depth + b"\x00"
    if depth > cbor.FRAME.depth:
        with pytest.raises(Malformed, match="deep"):
            cbor.strict(raw)
    else:
        assert cbor.strict(raw)


def test_counts_are_limited_whatever_the_length() -> None:
    items = cbor.FRAME.items
    assert len(cbor.strict(plutus.head(4, items - 1) + b"\x18\x18" * (items - 1))) == items - 1
    with pytest.raises(Malformed, match="items"):
        cbor.strict(plutus.head(4, items) + b"\x18\x18" * items)
    with pytest.raises(Malformed, match="items"):
        cbor.strict(plutus.head(4, 4_000) + b"\x00" * 4_000)  # more than its length has room for
    entries = {str(n): n for n in range(cbor.FRAME.entries + 1)}
    with pytest.raises(Malformed, match="entries"):
        cbor.strict(cbor2.dumps(entries))


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("9f01820203ff", [1, [2, 3]]),
        ("bf0102ff", {1: 2}),
        ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
        ("7f6161626263ff", "abc"),
        ("c249010000000000000000", 2**64),
        ("c349010000000000000000", -(2**64) - 1),
        ("c25f4101420203ff", 0x010203),
        ("c240", 0),
        ("d81841ff", cbor2.CBORTag(24, b"\xff")),
        ("d901028101", cbor2.CBORTag(258, [1])),
        ("d8799f0102ff", cbor2.CBORTag(121, [1, 2])),
        ("d866821902299f01ff", cbor2.CBORTag(102, [553, [1]])),
        ("a18200011903e8", {(0, 1): 1000}),
        ("1b0000000000000001", 1),
        ("a201020103", {1: 3}),
    ],
)
def test_what_a_ledger_takes_stays_readable(raw: str, value: object) -> None:
    assert cbor.ledger(bytes.fromhex(raw)) == value


def test_a_reference_script_however_deep_does_not_hide_its_output() -> None:
    """A native script may be nested as deep as a transaction is long."""
    native = bytes.fromhex("8200581c" + "22" * 28)
    for _ in range(2_000):
        native = b"\x82\x01\x81" + native
    script = cbor2.dumps(cbor2.CBORTag(24, b"\x82\x00" + native))
    output = (
        b"\xa3\x00" + cbor2.dumps(b"\x60" + bytes(28)) + b"\x01\x1a\x00\x1e\x84\x80\x03" + script
    )
    utxo = txbytes.read_utxo(b"\x82\x82\x58\x20" + bytes(32) + b"\x00" + output)
    assert utxo.script_hash == canonical.blake2b_224(b"\x00" + native)


def test_a_number_in_the_place_of_an_address_allocates_nothing() -> None:
    raw = cbor2.dumps([[bytes(32), 0], {0: 2**62, 1: 5}])
    with pytest.raises(Malformed):
        txbytes.read_utxo(raw)


def test_before_its_proof_a_stranger_is_heard_for_4_kib_only() -> None:
    at = "http://market.example"
    server = Server(42, b"n" * 32, b"m" * 16, {}, (at,))
    hello = wire.Hello("payer", bytes(32), bytes(16), 0, 42, "x" * cbor.HELLO.length, at)
    with pytest.raises(codec.WireRefused, match="4096"):
        server.receive(codec.to_bytes(hello), 0)


def test_a_job_of_every_count_that_is_taken_fits_its_adapters_frame() -> None:
    word = {f"K{n}": "" for n in range(256)}
    plain = spec(command=("",) * 1024, env=word, secrets=tuple(word)[:64], outputs=("o",) * 64)
    job = JobSpec.from_wire(plain.to_wire())
    proposal = wire.LeaseProposed("l", job, b"")
    assert codec.from_bytes(codec.to_bytes(proposal)) == proposal
    with pytest.raises(Malformed, match="1024"):
        JobSpec.from_wire(spec(command=("",) * 1025).to_wire())
