"""Our Bech32 against BIP-173's own vectors and against pycardano's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycardano import Address
from pycardano.crypto import bech32 as theirs

from marketplace.chain.encoding import address, bech32
from marketplace.domain.errors import Malformed

PREFIXES = st.sampled_from(["addr", "addr_test", "stake", "stake_test", "a"])


# As long as an address gets: pycardano gives None for what is over 108 letters.
@given(PREFIXES, st.binary(min_size=1, max_size=56))
def test_it_writes_and_reads_what_pycardano_does(prefix: str, data: bytes) -> None:
    text = bech32.encode(prefix, data)
    assert text == theirs.encode(prefix, data)
    assert bech32.decode(text) == bech32.decode(text.upper()) == (prefix, data)


@given(PREFIXES, st.binary(min_size=1, max_size=60), st.data())
def test_any_one_letter_mistyped_is_seen(prefix: str, data: bytes, draw: st.DataObject) -> None:
    text = bech32.encode(prefix, data)
    at = draw.draw(st.integers(0, len(text) - 1))
    other = draw.draw(
        st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l1b! ").filter(text[at].__ne__)
    )
    with pytest.raises(Malformed):
        bech32.decode(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize(
    "text",
    [
        "pzry9x0s0muk", "1pzry9x0s0muk", "x1b4n0q5v", "li1dgmt3", "A1G7SGD8", "10a06t8", "1qzzfhee",
        "abcdef1Qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw", "addr1", "", "1", "addré1qqqqqqqqqqqq",
    ],
)  # fmt: skip
def test_what_bip_173_calls_invalid_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        bech32.decode(text)


@given(
    st.sampled_from([0, 1, 2, 3, 6, 7, 14, 15]), st.booleans(), st.binary(min_size=56, max_size=56)
)
def test_addresses_read_as_pycardano_writes_them(kind: int, mainnet: bool, parts: bytes) -> None:
    raw = bytes([kind << 4 | mainnet]) + (parts if kind < 4 else parts[:28])
    text = Address.from_primitive(raw).encode()
    assert address.to_text(raw) == text
    assert address.lenient_bytes(text) == raw
    if kind < 8:
        assert address.from_text(text) == raw
    else:  # a reward account is no place to be paid at
        with pytest.raises(Malformed):
            address.from_text(text)


def test_an_address_under_the_other_networks_prefix_is_refused() -> None:
    raw = bytes([0x61]) + bytes(28)
    with pytest.raises(Malformed):
        address.from_text(bech32.encode("addr_test", raw))
