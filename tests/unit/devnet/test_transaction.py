"""The devnet's reading of transactions: byte spans, both encodings of everything, and no crash on
any bytes.
"""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.devnet import cbor
from contracts.devnet.decoding import read
from contracts.devnet.transaction import Malformed, Script, blake2b

_DATA = st.recursive(
    st.integers(-(2**70), 2**70)
    | st.binary(max_size=80)
    | st.text(max_size=30)
    | st.booleans()
    | st.none()
    | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.integers(0, 2**33), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(_DATA, st.binary(max_size=5))
def test_an_item_ends_where_the_library_ends_it(value: object, rest: bytes) -> None:
    encoded = cbor2.dumps(value)
    assert cbor.end(encoded + rest, 0) == len(encoded)


@given(st.binary(max_size=60))
def test_any_bytes_have_an_end_or_are_refused(data: bytes) -> None:
    try:
        assert 0 < cbor.end(data, 0) <= len(data)
    except ValueError:
        pass


def test_indefinite_lengths_and_sets() -> None:
    one, two = cbor2.dumps([1, 2]), b"\x82\x01\x02"
    assert cbor.elements(one) == cbor.elements(b"\x9f\x01\x02\xff") == [b"\x01", b"\x02"]
    assert cbor.elements(b"\xd9\x01\x02" + two) == [b"\x01", b"\x02"]
    assert cbor.pairs(b"\xbf\x01\x02\xff") == [(b"\x01", b"\x02")]
    assert cbor.end(b"\x5f\x41\x00\x41\x01\xff\x00", 0) == 6
    for wrong in (b"\x01", b"\xa0"):
        with pytest.raises(ValueError, match="array"):
            cbor.elements(wrong)


@settings(max_examples=200)
@given(st.binary(max_size=120))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_ids_and_hashes_are_taken_over_the_bytes_that_were_sent() -> None:
    """A body in an unusual but legal encoding: its id is the hash of just these bytes, not of a
    tidier encoding.
    """
    output = b"\xbf\x00\x44addr\x01\x1a\x00\x00\x00\x05\x02\x82\x01\xd8\x18\x43\x9f\x07\xff\xff"
    body = (
        b"\xa3\x02\x19\x00\x09\x01\x9f"
        + output
        + b"\xff\x00\xd9\x01\x02\x81\x82\x58\x20"
        + b"i" * 32
        + b"\x00"
    )
    tx = read(b"\x84" + body + b"\xa0\xf5\xf6")
    assert tx.id == blake2b(body) != blake2b(cbor2.dumps(cbor2.loads(body)))
    assert tx.fee == 9
    assert tx.inputs == [((b"i" * 32).hex(), 0)]
    assert tx.outputs[0].inline_datum == b"\x9f\x07\xff"
    assert tx.outputs[0].datum_hash == blake2b(b"\x9f\x07\xff")
    assert tx.outputs[0].raw == output


def test_redeemers_in_both_shapes_are_the_same() -> None:
    def with_redeemers(raw: bytes) -> bytes:
        return b"\x84" + cbor2.dumps({0: [], 1: [], 2: 1}) + b"\xa1\x05" + raw + b"\xf5\xf6"

    listed = read(with_redeemers(cbor2.dumps([[1, 0, 42, [7, 8]], [0, 3, 9, [5, 6]]])))
    mapped = read(with_redeemers(cbor2.dumps({(1, 0): [42, [7, 8]], (0, 3): [9, [5, 6]]})))
    assert listed.redeemers == mapped.redeemers
    assert [(one.tag, one.index, one.memory) for one in mapped.redeemers] == [(0, 3, 5), (1, 0, 7)]


@pytest.mark.parametrize("shape", ["list", "map"])
def test_of_redeemers_with_one_pointer_the_last_counts(shape: str) -> None:
    """The ledger keeps the last of a list as of a map, and so does an indexer with one row for each
    pointer.
    """
    rows = [(0, 3, 9, [5, 6]), (0, 3, 7, [1, 2]), (1, 0, 42, [7, 8]), (0, 3, 8, [3, 4])]
    if shape == "list":
        raw = cbor2.dumps([list(one) for one in rows])
    else:
        raw = b"\xa4" + b"".join(cbor2.dumps([t, i]) + cbor2.dumps([d, u]) for t, i, d, u in rows)
    tx = read(b"\x84" + cbor2.dumps({0: [], 1: [], 2: 1}) + b"\xa1\x05" + raw + b"\xf5\xf6")
    found = [(one.tag, one.index, one.data, one.memory, one.steps) for one in tx.redeemers]
    assert found == [(0, 3, b"\x08", 3, 4), (1, 0, b"\x18\x2a", 7, 8)]


def test_a_known_script_hash() -> None:
    """Cardano's "always succeeds" of the Alonzo test nets."""
    script = Script(1, bytes.fromhex("4d01000033222220051200120011"))
    assert script.hash == "67f33146617a5e61936081db3b2117cbf59bd2123748f58ac9678656"
