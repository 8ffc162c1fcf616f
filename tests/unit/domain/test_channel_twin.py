"""The channel's twin by itself: hand-computed outputs, addresses, and what nobody should serve.

That it is the script's twin is shown in ``tests/contracts``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.canonical import blake2b_224
from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money import channel as twin
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.channel_refusals import (
    BoundInfinite,
    ChannelRefused,
    ChannelUnfit,
    ConsumerMissing,
    MayNotFinish,
    TakeAboveVoucher,
    TakeNotGrowing,
    TopUpNotPositive,
    VoucherMalformed,
    VoucherNotSigned,
)
from marketplace.domain.money.voucher import voucher_message

KEY = Signer(bytes(range(32)))
STUB, PAY, STAKE, ME = bytes([1]) * 28, bytes([2]) * 28, bytes([3]) * 28, bytes([4]) * 28
ADAPTER = bytes([5]) * 28
WHERE = Address(Credential(STUB, is_script=True), Credential(STAKE))
PROVIDER = Address(Credential(PAY))
CONSTS = twin.Consts(KEY.verify_key, ADAPTER, PROVIDER.payout(), ME, 86_400_000, 50)
OPEN = twin.Channel(WHERE, twin.Open(CONSTS, 1_000_000), twin.Held(20_000_000))
NOBODY = twin.Witness()


def claim(cum: int, take_to: int | None = None) -> twin.Claim:
    return twin.Claim(cum, cum if take_to is None else take_to, KEY.sign(voucher_message(cum)))


# --- by hand ------------------------------------------------------------------------------------
def test_claim_by_hand() -> None:
    will = twin.will(OPEN, claim(5_000_001), NOBODY)
    assert will.taken == 4_000_001
    assert will.bounty == 20_000  # 4,000,001 · 50 / 10,000 = 20,000.005, rounded down
    assert will.pay == 3_980_001
    after = replace(OPEN, stage=twin.Open(CONSTS, 5_000_001), held=twin.Held(15_999_999))
    assert will.output == twin.Continuing(after)


def test_close_then_finish_by_hand() -> None:
    signed = twin.Witness(frozenset({ME}), upper_ms=1_000)
    closing = twin.will(OPEN, twin.Close(), signed).output
    assert isinstance(closing, twin.Continuing)
    assert closing.channel.stage == twin.Closing(CONSTS, 1_000_000, 86_401_000)
    with pytest.raises(MayNotFinish):
        twin.will(closing.channel, twin.Finish(), twin.Witness(lower_ms=86_400_999))
    home = twin.will(closing.channel, twin.Finish(), twin.Witness(lower_ms=86_401_000))
    refund = Address(Credential(ME), Credential(STAKE))
    assert home.output == twin.Refund(refund, twin.Held(20_000_000))
    assert home.payout == PROVIDER.payout()
    assert (home.taken, home.pay) == (0, 0)


def test_a_token_channel_keeps_its_lovelace() -> None:
    token = replace(OPEN, held=twin.Held(2_000_000, 9_000_000))
    assert token.held.amount == 9_000_000
    will = twin.will(token, claim(5_000_000), NOBODY)
    assert isinstance(will.output, twin.Continuing)
    assert will.output.channel.held == twin.Held(2_000_000, 5_000_000)


def test_runs_by_hand() -> None:
    other = bytes(28)

    def will(payout: bytes | None, pay: int) -> twin.Will:
        return twin.Will(twin.Continuing(OPEN), payout, pay, pay)

    kept = twin.Continuing(OPEN)
    a, b = PROVIDER.payout(), other
    paid = twin.Payout
    assert twin.expect([]) == []
    assert twin.expect([will(a, 5), will(a, 7)]) == [kept, kept, paid(a, 12)]
    assert twin.expect([will(a, 5), will(b, 7)]) == [kept, paid(a, 5), kept, paid(b, 7)]
    assert twin.expect([will(a, 5), will(None, 0), will(a, 7)]) == [
        kept,
        paid(a, 5),
        kept,
        kept,
        paid(a, 7),
    ]
    assert twin.expect([will(a, 0), will(b, 0)]) == [kept, kept]
    assert twin.expect([will(a, 5), will(a, 0)]) == [kept, kept, paid(a, 5)]


# --- refusals -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "witness", "refusal"),
    [
        (claim(1_000_000), NOBODY, TakeNotGrowing),
        (claim(5, 4_000_000), NOBODY, TakeAboveVoucher),
        (replace(claim(5_000_000), cum=5_000_001), NOBODY, VoucherNotSigned),
        (replace(claim(5_000_000), signature=b""), NOBODY, VoucherMalformed),
        (twin.Claim(2**64, 2**64, bytes(64)), NOBODY, VoucherMalformed),
        (twin.TopUp(5), NOBODY, ConsumerMissing),
        (twin.TopUp(0), twin.Witness(frozenset({ME})), TopUpNotPositive),
        (twin.Close(), twin.Witness(frozenset({ADAPTER}), upper_ms=1), ConsumerMissing),
        (twin.Close(), twin.Witness(frozenset({ME})), BoundInfinite),
        (twin.Finish(), twin.Witness(frozenset({ME}), lower_ms=2**60), MayNotFinish),
        (twin.Finish(claim(1)), twin.Witness(frozenset({ADAPTER})), TakeNotGrowing),
    ],
)
def test_refusals(step: twin.Step, witness: twin.Witness, refusal: type[ChannelRefused]) -> None:
    with pytest.raises(refusal):
        twin.will(OPEN, step, witness)


def test_each_refusal_has_its_own_code_and_a_remedy() -> None:
    kinds = [ChannelRefused, *ChannelRefused.__subclasses__()]
    assert len({k.code for k in kinds}) == len(kinds)
    numbered = [k.guard for k in kinds if k.guard]
    # 1 and 2 are other purposes', 17 an encoding that the twin's types cannot say.
    assert sorted(numbered) == [g for g in range(3, 19) if g != 17]
    assert all(k.remedy and issubclass(k, Refusal) for k in kinds)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": twin.Closing(CONSTS, 0, 5)},
        {"stage": twin.Open(CONSTS, 1)},
        {"stage": twin.Open(replace(CONSTS, payout=bytes(28)), 0)},
        {"stage": twin.Open(replace(CONSTS, fee_bps=51), 0)},
        {"address": replace(WHERE, stake=None)},
        {"held": twin.Held(9_999_999)},
    ],
)
def test_channels_that_nobody_should_serve(change: dict[str, object]) -> None:
    fit = replace(OPEN, stage=twin.Open(CONSTS, 0))
    twin.check_channel(fit, WHERE, CONSTS, 10_000_000)
    with pytest.raises(ChannelUnfit):
        twin.check_channel(replace(fit, **change), WHERE, CONSTS, 10_000_000)  # type: ignore[arg-type]


def test_constants_of_a_wrong_length_are_unfit_even_when_they_agree() -> None:
    for name in ("session_vk", "adapter_vkh", "payout", "consumer_vkh"):
        odd = replace(CONSTS, **{name: bytes(27)})
        with pytest.raises(ChannelUnfit):
            twin.check_channel(replace(OPEN, stage=twin.Open(odd, 0)), WHERE, odd, 1)


# --- addresses ----------------------------------------------------------------------------------
def test_payout_hash_by_hand() -> None:
    base = Address(Credential(PAY), Credential(STAKE, is_script=True))
    head = bytes.fromhex("d8799fd8799f581c") + PAY + b"\xff"
    assert base.plutus() == head + bytes.fromhex("d8799fd8799fd87a9f581c") + STAKE + b"\xff" * 4
    assert PROVIDER.plutus() == head + bytes.fromhex("d87a80ff")
    assert PROVIDER.payout() == blake2b_224(PROVIDER.plutus())


@pytest.mark.parametrize("payment", [False, True])
@pytest.mark.parametrize("stake", [None, False, True])
@pytest.mark.parametrize("network", [0, 1])
def test_addresses_are_parsed(payment: bool, stake: bool | None, network: int) -> None:
    kind = int(payment) | (0b110 if stake is None else int(stake) << 1)
    raw = bytes([kind << 4 | network]) + PAY + (b"" if stake is None else STAKE)
    part = None if stake is None else Credential(STAKE, stake)
    assert Address.parse(raw) == Address(Credential(PAY, payment), part)
    for other in (raw[:-1], raw + b"\0", b"", bytes([0xE0]) + PAY, bytes([0x40]) + raw[1:]):
        with pytest.raises(Malformed):
            Address.parse(other)


# --- properties ---------------------------------------------------------------------------------
@settings(deadline=None)
@given(st.integers(1, 10**15), st.integers(0, 10_000))
def test_bounty_and_pay_make_up_what_is_taken(taken: int, fee_bps: int) -> None:
    bounty = twin.bounty(taken, fee_bps)
    assert 0 <= bounty <= taken
    assert bounty * 10_000 <= taken * fee_bps < (bounty + 1) * 10_000


@settings(deadline=None)
@given(st.integers(1_000_001, 21_000_000), st.integers(0, 10**9))
def test_a_claim_conserves(take_to: int, beyond: int) -> None:
    will = twin.will(OPEN, claim(take_to + beyond, take_to), NOBODY)
    assert isinstance(will.output, twin.Continuing)
    assert will.output.channel.held.amount + will.pay + will.bounty == OPEN.held.amount
    assert will.output.channel.stage.claimed == take_to
    assert will.output.channel.stage.consts is CONSTS
