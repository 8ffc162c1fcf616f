"""Receipts, vouchers and terms: their bytes are pinned, and each broken rule is named."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from marketplace.domain.canonical import blake2b_256
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer, seal_to, unseal
from marketplace.domain.money.receipt import (
    GENESIS,
    Lost,
    Receipt,
    ReceiptRefused,
    SignedReceipt,
    check_next,
)
from marketplace.domain.money.terms import SignedTerms, Terms, TermsRefused
from marketplace.domain.money.voucher import End, Voucher, VoucherRefused, voucher_message

GOLDEN = Path(__file__).parents[2] / "golden" / "signed_bytes.json"
ADAPTER, SESSION, STRANGER = Signer(b"a" * 32), Signer(b"s" * 32), Signer(b"x" * 32)
RATE = 1_900_000_000

FIRST = Receipt(
    session_vk=SESSION.verify_key,
    lease="lease_1",
    seq=1,
    t0_ms=0,
    t1_ms=1500,
    wall_ms=1_800_000_000_000,
    device=blake2b_256(b"device"),
    resource="gpu",
    unit_ms_total=1000,
    lease_owed=1900,
    channel_owed=1900,
    lost=(Lost("STARTING", 500),),
    readings=blake2b_256(b"readings"),
    previous=GENESIS,
    final=False,
)
SECOND = replace(
    FIRST, seq=2, t0_ms=1500, t1_ms=2500, unit_ms_total=2000, lease_owed=3800, channel_owed=3800,
    lost=(), previous=FIRST.hash, final=True,
)  # fmt: skip
TERMS = Terms(
    magic=42, lease="lease_1", job="job_1", offer="offer_1", provider=ADAPTER.verify_key.hex(),
    adapter_vk=ADAPTER.verify_key, adapter_vkh=b"h" * 28, payout=b"p" * 28,
    session_vk=SESSION.verify_key, consumer_vkh=b"c" * 28, resource="gpu", rate_micro=RATE,
    units_milli=1000, tick_ms=1000, grace_ms=2000, pause_limit_ms=60_000,
    close_period_ms=86_400_000, fee_bps=50, ceiling=6_840_000, max_duration_ms=3_600_000, asset="",
    work=blake2b_256(b"job"), devices=blake2b_256(b"devices"), expires_at_ms=1_800_000_060_000,
)  # fmt: skip


def test_the_signed_bytes_are_pinned() -> None:
    body = TERMS.encode()
    now = {
        "voucher_message_1900": voucher_message(1900).hex(),
        "voucher": Voucher.sign(SESSION, 1900).signature.hex(),
        "end_message": End.message(SESSION.verify_key, 1900).hex(),
        "receipt": FIRST.encode().hex(),
        "receipt_hash": FIRST.hash.hex(),
        "receipt_signature": SignedReceipt.sign(FIRST, ADAPTER).signature.hex(),
        "terms": body.hex(),
        "terms_hash": TERMS.hash.hex(),
    }
    if os.environ.get("TALLY_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(now, indent=2) + "\n")
    assert json.loads(GOLDEN.read_text()) == now


def test_a_chain_of_two_is_accepted() -> None:
    check_next(FIRST, None, None, RATE)
    check_next(SECOND, FIRST, FIRST, RATE)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seq": 3}, "seq is 3"),
        ({"seq": 1}, "seq is 1"),
        ({"previous": GENESIS}, "hash chain"),
        ({"session_vk": STRANGER.verify_key}, "another channel"),
        ({"lease": "lease_2"}, "another lease"),
        ({"t1_ms": 1499}, "backwards"),
        ({"t0_ms": 1600}, "gap"),
        ({"unit_ms_total": 999}, "shrinks"),
        ({"lease_owed": 3801}, "ms x rate"),
        ({"channel_owed": 3801}, "sum of its leases"),
    ],
)
def test_each_broken_rule_is_named(change: dict[str, object], why: str) -> None:
    with pytest.raises(ReceiptRefused, match=why):
        check_next(replace(SECOND, **change), FIRST, FIRST, RATE)  # type: ignore[arg-type]


def test_nothing_follows_a_final_receipt_of_its_lease() -> None:
    third = replace(SECOND, seq=3, t0_ms=2500, t1_ms=2600, previous=SECOND.hash)
    with pytest.raises(ReceiptRefused, match="already had its last"):
        check_next(third, SECOND, SECOND, RATE)


def test_a_second_lease_continues_the_channel() -> None:
    other = replace(
        FIRST, lease="lease_2", seq=3, previous=SECOND.hash, channel_owed=3800 + 1900
    )  # fmt: skip
    check_next(other, SECOND, None, RATE)
    with pytest.raises(ReceiptRefused, match="sum of its leases"):
        check_next(replace(other, channel_owed=1900), SECOND, None, RATE)


def test_a_receipt_survives_its_bytes() -> None:
    assert Receipt.decode(FIRST.encode()) == FIRST
    assert SignedReceipt.sign(SECOND, ADAPTER).verify(ADAPTER.verify_key) == SECOND


@pytest.mark.parametrize("data", [b"", b"\x80", FIRST.encode() + b"\x00", TERMS.encode(), b"\xff"])
def test_other_bytes_are_no_receipt(data: bytes) -> None:
    with pytest.raises(Malformed):
        Receipt.decode(data)


def test_a_strangers_receipt_is_refused() -> None:
    with pytest.raises(ReceiptRefused):
        SignedReceipt.sign(FIRST, STRANGER).verify(ADAPTER.verify_key)


def test_a_voucher_binds_channel_and_amount() -> None:
    voucher = Voucher.sign(SESSION, 1900)
    voucher.verify()
    for forged in (
        replace(voucher, cumulative=1901),
        replace(voucher, session_vk=STRANGER.verify_key),
        replace(voucher, signature=bytes(64)),
        replace(voucher, cumulative=2**63),
    ):
        with pytest.raises(VoucherRefused):
            forged.verify()


def test_an_end_is_no_voucher_and_longer_than_one() -> None:
    end = End.sign(SESSION, 1900)
    end.verify()
    assert len(voucher_message(0)) == 16 < len(End.message(SESSION.verify_key, 0))
    with pytest.raises(VoucherRefused):
        Voucher(end.session_vk, end.cumulative, end.signature).verify()


def test_terms_need_both_signatures() -> None:
    body = TERMS.encode()
    half = SignedTerms(body, ADAPTER.sign(body))
    assert half.verify_adapter() == TERMS
    with pytest.raises(TermsRefused):
        half.verify()
    assert replace(half, session_signature=SESSION.sign(body)).verify() == TERMS
    with pytest.raises(TermsRefused):
        replace(half, session_signature=STRANGER.sign(body)).verify()


@pytest.mark.parametrize(
    "change", [{"fee_bps": 101}, {"tick_ms": 999}, {"rate_micro": 0}, {"ceiling": 0}]
)
def test_unfair_terms_cannot_be_made(change: dict[str, int]) -> None:
    with pytest.raises(Refusal):
        replace(TERMS, **change)  # type: ignore[arg-type]


def test_only_the_key_that_signed_the_terms_opens_a_secret() -> None:
    box = seal_to(ADAPTER.verify_key, b"hf_secret")
    assert unseal(ADAPTER, box) == b"hf_secret" and b"hf_secret" not in box
    for signer, bad in ((STRANGER, box), (ADAPTER, box[:-1]), (ADAPTER, b"")):
        with pytest.raises(Malformed):
            unseal(signer, bad)
    with pytest.raises(Malformed):
        seal_to(bytes(32), b"hf_secret")
