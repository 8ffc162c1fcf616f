"""What the ledger says of a channel, compared with what was signed: I2, I7 and I8."""

from __future__ import annotations

from marketplace.domain.money.evidence import LedgerFacts
from marketplace.domain.money.invoice.book import Book
from marketplace.domain.money.invoice.refusals import ChannelDiffers, ClaimWrong, MoneyMissing


def compare(book: Book, facts: LedgerFacts) -> None:
    """The ledger's part of I2, I7 and I8."""
    signed, delivered, claimed = book.signed, book.owed, facts.claimed
    consts = next(iter(book.terms.values())).consts()
    if facts.session_vk != book.evidence.session_vk or facts.consts != consts:
        raise book.refuse(
            ChannelDiffers, "ledger", "the channel on the ledger is not the one of the terms"
        )
    if claimed > signed:
        why = f"{claimed} lovelace were claimed, {signed} were signed for"
        raise book.refuse(ClaimWrong, "signed", why)
    if claimed > delivered:
        over, ahead = claimed - delivered, signed - delivered
        raise book.refuse(
            ClaimWrong, "delivered",
            f"over-claimed {over}: {claimed} lovelace were claimed, {delivered} were delivered; the"
            f" {ahead} signed ahead are an allowance, not a due",
            over_claimed=over, delivered=delivered, ahead=ahead,
        )  # fmt: skip
    due = min(signed, delivered)
    if facts.ended and claimed != due:
        why = f"the channel ended with {claimed} claimed, {due} were due"
        raise book.refuse(ClaimWrong, "due", why)
    parts = claimed + facts.refunded + facts.held
    if facts.funded != parts:
        raise book.refuse(
            MoneyMissing, "sum",
            f"{facts.funded} went in; {claimed} claimed, {facts.refunded} refunded and"
            f" {facts.held} held are {parts}",
        )  # fmt: skip
