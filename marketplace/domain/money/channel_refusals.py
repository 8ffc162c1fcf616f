"""Why the channel's script refuses a step: one class for each guard of ``contracts/README.md``.

A guard's number is 0 where the script fails without one.
"""

from __future__ import annotations

from typing import ClassVar

from marketplace.domain.errors import Refusal


class ChannelRefused(Refusal):
    """The script would refuse; ``guard`` is its number, 0 where it fails without one."""

    code = "CHANNEL_REFUSED"
    remedy = "rebuild the transaction from the channel's present state"
    guard: ClassVar[int] = 0


class Minting(ChannelRefused):
    """The transaction mints or burns."""

    code, guard = "CHANNEL_MINT", 3


class ManyWithdrawals(ChannelRefused):
    """The transaction withdraws from another account as well."""

    code, guard = "CHANNEL_WITHDRAWALS", 4


class StepsLeft(ChannelRefused):
    """More steps than script-locked inputs."""

    code, guard = "CHANNEL_STEPS_LEFT", 5


class TakeNotGrowing(ChannelRefused):
    """take_to is not above what is already claimed."""

    code, guard = "CHANNEL_TAKE_NOT_GROWING", 6
    remedy = "claim with a later voucher"


class TakeAboveVoucher(ChannelRefused):
    """take_to is above what the consumer signed."""

    code, guard = "CHANNEL_TAKE_ABOVE_VOUCHER", 7
    remedy = "take at most the voucher's cumulative amount"


class VoucherNotSigned(ChannelRefused):
    """The signature is not the session key's over this cumulative amount."""

    code, guard = "CHANNEL_VOUCHER_NOT_SIGNED", 8
    remedy = "use a voucher of this channel"


class PayNegative(ChannelRefused):
    """fee_bps above 10000: the bounty would exceed what is taken."""

    code, guard = "CHANNEL_PAY_NEGATIVE", 9
    remedy = "leave this channel out: its opener chose a fee nobody accepts"


class OutputUnexpected(ChannelRefused):
    """The next output is not the one that the step demands."""

    code, guard = "CHANNEL_OUTPUT", 10


class PayoutElsewhere(ChannelRefused):
    """The payout's address does not hash to the channel's ``payout``."""

    code, guard = "CHANNEL_PAYOUT_ADDRESS", 11


class PayoutShort(ChannelRefused):
    """The payout holds less than its run owes."""

    code, guard = "CHANNEL_PAYOUT_AMOUNT", 12


class PayoutLoaded(ChannelRefused):
    """The payout carries a datum, a reference script or a foreign token."""

    code, guard = "CHANNEL_PAYOUT_SHAPE", 13


class ConsumerMissing(ChannelRefused):
    """TopUp and Close need the consumer's signature."""

    code, guard = "CHANNEL_CONSUMER_SIGNATURE", 14
    remedy = "sign with the wallet that opened the channel"


class NotOpen(ChannelRefused):
    """TopUp and Close start from Open."""

    code, guard = "CHANNEL_NOT_OPEN", 15
    remedy = "a closing channel can only be claimed from or finished"


class TopUpNotPositive(ChannelRefused):
    """A top-up adds."""

    code, guard = "CHANNEL_TOP_UP", 16


class MayNotFinish(ChannelRefused):
    """Neither signed by the adapter, nor closing and expired."""

    code, guard = "CHANNEL_MAY_NOT_FINISH", 18
    remedy = "let the adapter sign, or close first and wait until expire_at"


class StepMissing(ChannelRefused):
    """Fewer steps than script-locked inputs, or fewer outputs than they demand."""

    code = "CHANNEL_STEP_MISSING"


class BoundInfinite(ChannelRefused):
    """Close needs a finite upper bound."""

    code = "CHANNEL_BOUND"
    remedy = "give the transaction a time to live"


class VoucherMalformed(ChannelRefused):
    """A key is not 32 bytes, a signature not 64, or the amount does not fit into 8."""

    code = "CHANNEL_VOUCHER_MALFORMED"
    remedy = "use a voucher of this channel"


class ChannelUnfit(Refusal):
    """A channel that the script would move but that nobody should serve or sign for."""

    code = "CHANNEL_UNFIT"
    remedy = "open a new channel with the terms that were signed"
