"""The channel: the twin of ``contracts/channel/settle.py``, rule for rule and in the same order.

Can, Want and Will are separate types: a :class:`Channel` is what stands on the chain, a
:class:`Step` is what somebody wants, a :class:`Will` is what the script will then demand.

    will(channel, step, witness) -> Will        one channel
    expect(wills)                -> outputs     a whole transaction's, in order, payouts joined
    settle(transaction)                         the script's verdict on a whole transaction

A refusal (``channel_refusals``) names the guard of ``contracts/README.md``.  Amounts are of the
channel's one asset (lovelace, or a token's smallest unit); times are POSIX milliseconds.
``tests/contracts`` proves this file and the compiled script against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.keys import verifies
from marketplace.domain.money.address import Address, Credential
from marketplace.domain.money.channel_refusals import (
    BoundInfinite,
    ChannelUnfit,
    ConsumerMissing,
    ManyWithdrawals,
    MayNotFinish,
    Minting,
    NotOpen,
    OutputUnexpected,
    PayNegative,
    PayoutElsewhere,
    PayoutLoaded,
    PayoutShort,
    StepMissing,
    StepsLeft,
    TakeAboveVoucher,
    TakeNotGrowing,
    TopUpNotPositive,
    VoucherMalformed,
    VoucherNotSigned,
)
from marketplace.domain.money.voucher import voucher_message

BPS: Final = 10_000
MAX_CUM: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Consts:
    """What a channel keeps for life.  ``session_vk`` is its id."""

    session_vk: bytes
    adapter_vkh: bytes
    payout: bytes
    consumer_vkh: bytes
    close_period_ms: int
    fee_bps: int


@dataclass(frozen=True, slots=True)
class Open:
    """May be topped up, claimed from, closed; finished by the adapter."""

    consts: Consts
    claimed: int


@dataclass(frozen=True, slots=True)
class Closing:
    """The consumer wants out: may be claimed from until somebody finishes it."""

    consts: Consts
    claimed: int
    expire_at_ms: int


Stage = Open | Closing


@dataclass(frozen=True, slots=True)
class Held:
    """Lovelace, and in the token instance how much of the token."""

    lovelace: int
    tokens: int | None = None

    @property
    def amount(self) -> int:
        """Of the channel's asset."""
        return self.lovelace if self.tokens is None else self.tokens

    def plus(self, amount: int) -> Held:
        """With *amount* (may be negative) more of the asset."""
        if self.tokens is None:
            return Held(self.lovelace + amount)
        return Held(self.lovelace, self.tokens + amount)


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel's UTxO: its address (payment: the stub; stake: the consumer's), stage, value."""

    address: Address
    stage: Stage
    held: Held

    @property
    def refund(self) -> Address:
        """Where its remainder goes."""
        return Address(Credential(self.stage.consts.consumer_vkh), self.address.stake)


def check_channel(channel: Channel, address: Address, consts: Consts, deposit: int) -> None:
    """What adapter and payer both demand before they serve or sign; :class:`ChannelUnfit`.

    Opening runs no script, so anything may stand at the address.  *address* and *consts* follow
    from the signed terms, *deposit* is the amount that was agreed.  Foreign tokens and reference
    scripts are refused where the UTxO is read; depth is the caller's.
    """
    lengths = (
        len(consts.session_vk),
        len(consts.adapter_vkh),
        len(consts.payout),
        len(consts.consumer_vkh),
    )
    rules = (
        (isinstance(channel.stage, Open), "it is not open"),
        (channel.address == address, "it stands at another address"),
        (lengths == (32, 28, 28, 28), "a key or hash has a wrong length"),
        (channel.stage.consts == consts, "its constants are not those of the terms"),
        (channel.stage.claimed == 0, "something is claimed already"),
        (channel.held.amount >= deposit, "it holds less than was agreed"),
    )
    for holds, why in rules:
        if not holds:
            raise ChannelUnfit(f"channel {channel.stage.consts.session_vk.hex()[:16]}: {why}")


@dataclass(frozen=True, slots=True)
class TopUp:
    """The consumer adds *amount*."""

    amount: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Anybody: *take_to* of the *cum* that the session key signed become the provider's."""

    cum: int
    take_to: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """The consumer starts the close period."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The adapter, or anybody after expiry: the remainder goes home, after a last claim if any."""

    claim: Claim | None = None


Step = TopUp | Claim | Close | Finish


@dataclass(frozen=True, slots=True)
class Witness:
    """What a transaction proves: who signed it (key hashes) and its bounds (None: infinite)."""

    signers: frozenset[bytes] = frozenset()
    lower_ms: int | None = None
    upper_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Continuing:
    """The channel lives on: this address, this inline datum, this value and nothing else."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Refund:
    """The channel is over: exactly *held* at *address*, no datum."""

    address: Address
    held: Held


@dataclass(frozen=True, slots=True)
class Payout:
    """At least *owed* at an address that hashes to *payout*, no datum."""

    payout: bytes
    owed: int


Expected = Continuing | Refund | Payout


@dataclass(frozen=True, slots=True)
class Will:
    """One step's consequence.  ``payout`` is None where the step belongs to no run.

    ``taken`` leaves the channel, ``pay`` of it is the provider's, the rest is the settler's bounty.
    """

    output: Continuing | Refund
    payout: bytes | None = None
    taken: int = 0
    pay: int = 0

    @property
    def bounty(self) -> int:
        """What the transaction may keep."""
        return self.taken - self.pay


def bounty(taken: int, fee_bps: int) -> int:
    """The settler's part of *taken*, rounded down."""
    return taken * fee_bps // BPS


def will(channel: Channel, step: Step, witness: Witness) -> Will:
    """What *step* makes of *channel*, or the :class:`ChannelRefused` of the guard that forbids
    it.
    """
    stage = channel.stage
    match step:
        case Claim():
            taken, pay = _taking(stage, step)
            onward = replace(stage, claimed=step.take_to)
            continuing = replace(channel, stage=onward, held=channel.held.plus(-taken))
            return Will(Continuing(continuing), stage.consts.payout, taken, pay)
        case Finish(claim):
            taken, pay = _taking(stage, claim) if claim is not None else (0, 0)
            _may_finish(stage, witness)
            refund = Refund(channel.refund, channel.held.plus(-taken))
            return Will(refund, stage.consts.payout, taken, pay)
        case TopUp(amount):
            _by_consumer(stage, witness)
            if amount <= 0:
                raise TopUpNotPositive(f"a top-up of {amount}")
            return Will(Continuing(replace(channel, held=channel.held.plus(amount))))
        case Close():
            _by_consumer(stage, witness)
            if witness.upper_ms is None:
                raise BoundInfinite("close without an upper bound")
            expire_at = witness.upper_ms + stage.consts.close_period_ms
            closing = Closing(stage.consts, stage.claimed, expire_at)
            return Will(Continuing(replace(channel, stage=closing)))


def _taking(stage: Stage, claim: Claim) -> tuple[int, int]:
    """(taken, pay) of a voucher on *stage*."""
    consts = stage.consts
    if stage.claimed >= claim.take_to:
        raise TakeNotGrowing(f"take {claim.take_to} where {stage.claimed} is claimed")
    if claim.take_to > claim.cum:
        raise TakeAboveVoucher(f"take {claim.take_to} of {claim.cum}")
    fits = len(consts.session_vk) == 32 and len(claim.signature) == 64
    if not fits or not 0 <= claim.cum <= MAX_CUM:
        raise VoucherMalformed("key, signature or amount of another length")
    if not verifies(consts.session_vk, voucher_message(claim.cum), claim.signature):
        raise VoucherNotSigned("not signed by the channel's session key")
    taken = claim.take_to - stage.claimed
    pay = taken - bounty(taken, consts.fee_bps)
    if pay < 0:
        raise PayNegative(f"fee_bps is {consts.fee_bps}")
    return taken, pay


def _may_finish(stage: Stage, witness: Witness) -> None:
    if stage.consts.adapter_vkh in witness.signers:
        return
    if not isinstance(stage, Closing):
        raise MayNotFinish("the adapter did not sign and the channel is open")
    if witness.lower_ms is None:
        raise BoundInfinite("finish after expiry without a lower bound")
    if witness.lower_ms < stage.expire_at_ms:
        raise MayNotFinish(f"{stage.expire_at_ms - witness.lower_ms} ms before expire_at")


def _by_consumer(stage: Stage, witness: Witness) -> None:
    if stage.consts.consumer_vkh not in witness.signers:
        raise ConsumerMissing("the consumer did not sign")
    if not isinstance(stage, Open):
        raise NotOpen("the channel is closing")


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive claims and finishes of one payout, and what they owe it."""

    payout: bytes = b""
    owed: int = 0

    def flush(self) -> Iterator[Expected]:
        if self.owed:
            yield Payout(self.payout, self.owed)

    def take(self, will_: Will) -> tuple[_Run, Iterator[Expected]]:
        """The run after *will_* and the payout that it ends, if any."""
        if will_.payout is None:
            return _Run(), self.flush()
        if will_.payout == self.payout:
            return replace(self, owed=self.owed + will_.pay), iter(())
        return _Run(will_.payout, will_.pay), self.flush()


def expect(wills: Sequence[Will]) -> list[Expected]:
    """The outputs of a transaction, by position from 0; any may follow them."""
    outputs: list[Expected] = []
    run = _Run()
    for each in wills:
        run, ended = run.take(each)
        outputs += [*ended, each.output]
    return [*outputs, *run.flush()]


@dataclass(frozen=True, slots=True)
class Output:
    """An output as the script sees it.  ``stage`` is its inline datum read as a channel's;
    ``loaded``: it has another datum, a reference script or a foreign token."""

    address: Address
    held: Held
    stage: Stage | None = None
    loaded: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """What settle judges: the script-locked inputs in ledger order (read as channels), one step
    each, the outputs from 0, and whether the transaction mints or withdraws elsewhere."""

    channels: Sequence[Channel]
    steps: Sequence[Step]
    outputs: Sequence[Output]
    witness: Witness = Witness()
    mints: bool = False
    withdrawals: int = 1


def settle(tx: Transaction) -> list[Will]:
    """The script's verdict on *tx*: what it does to each channel, or the refusal, guard and all."""
    if tx.mints:
        raise Minting("the transaction mints")
    if tx.withdrawals != 1:
        raise ManyWithdrawals(f"{tx.withdrawals} withdrawals")
    wills: list[Will] = []
    run = _Run()
    outputs = iter(tx.outputs)
    for position, channel in enumerate(tx.channels):
        if position >= len(tx.steps):
            raise StepMissing("a script-locked input without a step")
        each = will(channel, tx.steps[position], tx.witness)
        run, ended = run.take(each)
        for expected in (*ended, each.output):
            _meet(expected, next(outputs, None))
        wills.append(each)
    if len(tx.steps) > len(tx.channels):
        raise StepsLeft("a step without a script-locked input")
    for expected in run.flush():
        _meet(expected, next(outputs, None))
    return wills


def _meet(expected: Expected, output: Output | None) -> None:
    """*output* is *expected*."""
    if output is None:
        raise StepMissing("an output is missing")
    match expected:
        case Payout(payout, owed):
            if output.address.payout() != payout:
                raise PayoutElsewhere("the payout goes elsewhere")
            if output.held.amount < owed:
                raise PayoutShort(f"{output.held.amount} paid where {owed} are owed")
            if output.stage is not None or output.loaded:
                raise PayoutLoaded("the payout carries more than the asset")
        case Continuing(channel):
            if output != Output(channel.address, channel.held, channel.stage):
                raise OutputUnexpected("the channel does not go on as the step demands")
        case Refund(address, held):
            if output != Output(address, held):
                raise OutputUnexpected("the refund is not exact")
