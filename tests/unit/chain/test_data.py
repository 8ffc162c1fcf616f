"""Addresses, Plutus data, datums and steps as bytes: golden vectors, and every other shape
refused.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycardano import Address as LibraryAddress

from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import datum, plutus
from marketplace.chain.encoding.plutus import Constr
from marketplace.domain.errors import Malformed
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.channel import Claim, Close, Closing, Consts, Finish, Open, TopUp

CONSTS = Consts(b"\x01" * 32, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, 86_400_000, 25)
CONSTS_HEX = f"865820{'01' * 32}581c{'02' * 28}581c{'03' * 28}581c{'04' * 28}1a05265c001819"
SIGNATURE = bytes(range(64))
hashes = st.binary(min_size=28, max_size=28)
credentials = st.builds(Credential, hashes, st.booleans())
amounts = st.integers(0, 2**63 - 1)


def test_the_datum_has_these_bytes() -> None:
    assert datum.stage_bytes(Open(CONSTS, 0)).hex() == f"d87982{CONSTS_HEX}00"
    assert datum.stage_bytes(Open(CONSTS, 5_000_000)).hex() == f"d87982{CONSTS_HEX}1a004c4b40"
    closing = Closing(CONSTS, 24, 1_800_000_000_000)
    assert datum.stage_bytes(closing).hex() == f"d87a83{CONSTS_HEX}18181b000001a3185c5000"


def test_the_steps_have_these_bytes() -> None:
    claim = Claim(1000, 24, SIGNATURE)
    steps = [claim, Finish(claim), Finish(), TopUp(7), Close()]
    taking = f"831903e818185840{SIGNATURE.hex()}"
    expected = f"85d879{taking}d87a{taking}d87b80d87c8107d87d80"
    assert datum.steps_bytes(steps).hex() == expected
    assert datum.read_steps(plutus.decode(bytes.fromhex(expected))) == tuple(steps)


@given(amounts, amounts, amounts, st.integers(0, 10_000))
def test_a_stage_survives_its_bytes(claimed: int, expire: int, period: int, bps: int) -> None:
    consts = Consts(b"\x01" * 32, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, period, bps)
    for stage in (Open(consts, claimed), Closing(consts, claimed, expire)):
        assert datum.read_stage(datum.stage_bytes(stage)) == stage


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff",
        b"\x00",
        plutus.encode(Constr(0, (1,))),
        plutus.encode(Constr(2, ((b"\x01" * 32,), 0))),
        plutus.encode(
            Constr(0, ((b"\x01" * 31, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, 1, 1), 0))
        ),
        plutus.encode(Constr(0, ((b"\x01" * 32, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, 1), 0))),
        plutus.encode(
            Constr(0, ((b"\x01" * 32, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, 1, b"1"), 0))
        ),
        plutus.encode(
            Constr(1, ((b"\x01" * 32, b"\x02" * 28, b"\x03" * 28, b"\x04" * 28, 1, 1), 0))
        ),
        bytes.fromhex("a0"),
        bytes.fromhex("d87982f500"),
    ],
)
def test_another_shape_is_no_channels_datum(broken: bytes) -> None:
    with pytest.raises(Malformed):
        datum.read_stage(broken)


def test_open_lists_and_closed_lists_are_the_same_value() -> None:
    closed = datum.stage_bytes(Open(CONSTS, 9))
    opened = bytes.fromhex(f"d8799f9f{CONSTS_HEX[2:]}ff09ff")
    assert opened != closed
    assert datum.read_stage(opened) == datum.read_stage(closed)


@given(credentials, st.none() | credentials, st.booleans())
def test_an_address_survives_its_parts_and_its_text(
    payment: Credential, stake: Credential | None, mainnet: bool
) -> None:
    whole = addresses.join(Address(payment, stake), mainnet)
    assert Address.parse(whole) == Address(payment, stake)
    assert addresses.is_mainnet(whole) is mainnet
    text = addresses.to_text(whole)
    assert addresses.from_text(text) == whole
    assert bytes(LibraryAddress.from_primitive(text)) == whole
    assert addresses.lenient_bytes(text) == whole


def test_a_payout_is_named_by_these_28_bytes() -> None:
    at = addresses.key_address(b"\x11" * 28, b"\x22" * 28, False)
    assert addresses.payout_hash(at).hex() == PAYOUT_HEX
    # Header and network are not what a script sees: the same hash on every network.
    assert addresses.payout_hash(bytes([at[0] | 1]) + at[1:]).hex() == PAYOUT_HEX
    script = addresses.join(
        Address(Credential(b"\x11" * 28, True), Credential(b"\x22" * 28)), False
    )
    assert addresses.payout_hash(script).hex() != PAYOUT_HEX


PAYOUT_HEX = "507a08e19dad2318b98773e3dc3773efaa053a9eab5e4a217d93fac9"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "addr_test1qq",
        "stake_test1uqevw2xnsc0pvn9t9r9c7qryfqfeerchgrlm3ea2nefr9hqp8n5xl",
        "Ae2tdPwUPEZFSi1cTyL1ZL6bgixhc2vSy5heg6Zg9uP7PpumkAJ82Qprt8b",
        "https://example.org",
    ],
)
def test_what_is_no_payment_address_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        addresses.from_text(text)


def test_a_scripts_address_has_no_key_to_pay_with() -> None:
    with pytest.raises(Malformed):
        addresses.pay_key_hash(addresses.channel_address(b"\x01" * 28, None, False))


@given(st.binary(max_size=300))
def test_bytes_from_anywhere_are_data_or_malformed(raw: bytes) -> None:
    try:
        value = plutus.decode(raw)
    except Malformed:
        return
    assert plutus.decode(plutus.encode(value)) == value


@given(st.integers(0, 2**64 - 1))
def test_long_bytes_are_cut_as_the_ledger_wants_them(number: int) -> None:
    long = number.to_bytes(8, "big") * 20
    encoded = plutus.encode(long)
    assert encoded.startswith(b"\x5f\x58\x40")
    assert plutus.decode(encoded) == long
