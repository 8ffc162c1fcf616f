"""What the ledger says of a channel, compared with what was signed: I2, I7, I8; of hops I11 too."""

from __future__ import annotations

from dataclasses import replace

from marketplace.domain.money.channel import Consts
from marketplace.domain.money.evidence import LedgerFacts
from marketplace.domain.money.invoice.book import Book
from marketplace.domain.money.invoice.hops import HopBook
from marketplace.domain.money.invoice.refusals import (
    ChannelDiffers,
    ClaimWrong,
    MoneyMissing,
    RouteDiffers,
)


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


def compare_hop(book: HopBook, facts: LedgerFacts) -> None:
    """The ledger's part of I11, I7 and I8 for a hop. Leases that are not in the evidence may owe
    any part of their leaves.
    """
    claimed, due = facts.claimed, book.due
    if facts.session_vk != book.evidence.session_vk or facts.consts != _hop_consts(book, facts):
        raise book.refuse(
            RouteDiffers, "ledger", "the channel on the ledger is not the one that its payee asks"
        )
    if claimed > book.signed:
        why = f"{claimed} lovelace were claimed, {book.signed} were signed for"
        raise book.refuse(ClaimWrong, "hop_signed", why)
    if claimed > due:
        why = f"over-claimed {claimed - due}: {claimed} lovelace were claimed, {due} were due"
        raise book.refuse(
            ClaimWrong, "hop_due", why, over_claimed=claimed - due, ahead=book.signed - due
        )
    if facts.ended and claimed < due - book.blind:
        why = f"the hop ended with {claimed} claimed, {due - book.blind} at least were due"
        raise book.refuse(ClaimWrong, "hop_ended", why)
    parts = claimed + facts.refunded + facts.held
    if facts.funded != parts:
        raise book.refuse(
            MoneyMissing, "hop_sum",
            f"{facts.funded} went in; {claimed} claimed, {facts.refunded} refunded and"
            f" {facts.held} held are {parts}",
        )  # fmt: skip


def _hop_consts(book: HopBook, facts: LedgerFacts) -> Consts:
    """What the payee demands of the channel; who pays over it is the payer's own affair."""
    mine, payer = book.evidence.session_vk, facts.consts.consumer_vkh
    if book.offer is not None:
        return book.offer.consts(mine, payer)
    return replace(book.members[0].terms.consts(), session_vk=mine, consumer_vkh=payer)
