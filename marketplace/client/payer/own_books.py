"""A bill beside the books of who paid: the one thing that evidence cannot show is what was left out
of it.

A lease that is missing together with its channel, or the last receipts of one, leave no trace in
evidence. The purse that signed for them has them in its own books.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from marketplace.client.payer import journal
from marketplace.disk import JournalDamaged
from marketplace.domain.errors import Refusal
from marketplace.domain.money.evidence import Evidence

log = structlog.get_logger("tally.client")


class BillIncomplete(Refusal):
    """The purse's own books know of receipts that the evidence lacks."""

    code = "INVOICE_INCOMPLETE"
    remedy = (
        "the bill is not the whole one: keep this evidence and the purse's channels/ folder, which"
        " holds the receipts that were answered; ask whoever gave the evidence for the rest"
    )


def compare(folder: Path, evidence: Evidence) -> None:
    """:class:`BillIncomplete` names each lease of the job for which a book in *folder* has answered
    a later receipt than the evidence has. Blocking; a folder without books, or another purse's,
    says nothing.

    The evidence has been judged: see :func:`marketplace.domain.money.invoice.verify.read_signed`.
    """
    told: dict[tuple[bytes, str], int] = {}
    for channel in evidence.channels:
        for receipt in (signed.receipt for signed in channel.receipts):
            told[channel.session_vk, receipt.lease] = receipt.seq
    lacking: list[str] = []
    for session_vk in journal.channels_in(folder):
        try:
            leases = journal.peek(folder, session_vk).book.leases
        except JournalDamaged as damaged:
            log.warning("book_damaged", channel=session_vk.hex(), why=damaged.message)
            continue
        for name, lease in leases.items():
            if lease.terms.job != evidence.job or lease.last is None:
                continue
            shown = told.get((session_vk, name), 0)
            if lease.last.seq > shown:
                lacking.append(_said(name, session_vk, shown, lease.last.seq))
    if lacking:
        raise BillIncomplete("; ".join(lacking), job=evidence.job)


def _said(lease: str, session_vk: bytes, shown: int, known: int) -> str:
    where = f"lease {lease} on channel {session_vk.hex()[:16]}"
    if not shown:
        return f"{where} is not in the evidence: this purse has answered its receipts up to {known}"
    return f"{where} ends in the evidence with receipt {shown}: this purse has answered {known}"
