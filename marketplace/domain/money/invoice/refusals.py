"""Why a bill is refused: one class for each rule of ``docs/invoice.md``, I1 to I12."""

from __future__ import annotations

from typing import ClassVar

from marketplace.domain.errors import Refusal


class InvoiceRefused(Refusal):
    """The bill does not follow from what was signed and settled; ``code`` names the rule.

    *way* is the page's name of what is broken; *fields* holds it with channel, lease and receipt.
    """

    code = "INVOICE_REFUSED"
    remedy = "keep this evidence: it shows what was signed; docs/invoice.md states the rule"
    rule: ClassVar[str] = ""

    def __init__(self, message: str, *, way: str = "", **fields: object) -> None:
        super().__init__(message, **({"way": way} if way else {}), **fields)
        self.way = way


class TermsNotSigned(InvoiceRefused):
    """I1: both sides signed the terms of every lease."""

    code, rule = "INVOICE_TERMS", "I1"


class ChannelDiffers(InvoiceRefused):
    """I2: the channel on the ledger is the one that the terms describe."""

    code, rule = "INVOICE_CHANNEL", "I2"


class ReceiptNotSigned(InvoiceRefused):
    """I3: the adapter of the terms signed every receipt."""

    code, rule = "INVOICE_RECEIPT_SIGNATURE", "I3"


class ChainBroken(InvoiceRefused):
    """I4: the receipts form one hash chain from the channel's first, and every total follows."""

    code, rule = "INVOICE_RECEIPT_CHAIN", "I4"


class UsageDiffers(InvoiceRefused):
    """I5: devices and resource are the terms', and no lease owes more than its ceiling."""

    code, rule = "INVOICE_USAGE", "I5"


class VoucherWrong(InvoiceRefused):
    """I6: the consumer signed the voucher, for this channel; a hop's is what its leases sum up
    to.
    """

    code, rule = "INVOICE_VOUCHER", "I6"


class ClaimWrong(InvoiceRefused):
    """I7: no more was claimed than was delivered and signed for, and all of that once the channel
    ended.
    """

    code, rule = "INVOICE_CLAIM", "I7"
    remedy = (
        "where this was saved before its channel had ended, get it again (`tally invoice JOB`): the"
        " channel may have paid later jobs; else keep this evidence, docs/invoice.md states the"
        " rule"
    )


class MoneyMissing(InvoiceRefused):
    """I8: opened + topped up = claimed + refunded + still held, to the lovelace."""

    code, rule = "INVOICE_CONSERVATION", "I8"


class TimeExceeded(InvoiceRefused):
    """I9: usage never grows faster than time x units, and nothing is lost that did not pass."""

    code, rule = "INVOICE_TIME", "I9"


class JobDiffers(InvoiceRefused):
    """I10: the evidence is of the job that was asked for, and the terms name it."""

    code, rule = "INVOICE_JOB", "I10"
    remedy = "fetch the invoice of the job that you mean; keep this evidence if a market gave it"


class RouteDiffers(InvoiceRefused):
    """I11: one lease, one route; its hops are those that the route commits to."""

    code, rule = "INVOICE_ROUTE", "I11"


class PaidWrong(InvoiceRefused):
    """I12: the provider was paid what it says, and no more than it is owed."""

    code, rule = "INVOICE_PAID", "I12"
