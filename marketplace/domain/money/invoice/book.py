"""One channel of the evidence as it is read: its leases' terms, its receipts so far, its sums."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from marketplace.domain.money.evidence import ChannelEvidence, Evidence, LedgerFacts, told
from marketplace.domain.money.invoice.bill import Line, LostTime, Total
from marketplace.domain.money.invoice.refusals import InvoiceRefused
from marketplace.domain.money.receipt import (
    Receipt,
)
from marketplace.domain.money.terms import Terms


@dataclass
class Book:
    """One channel as it is read: its leases' terms, its receipts so far by lease.

    *routed*: it is no channel of its own, but the receipts of a lease that hops pay for.
    """

    evidence: ChannelEvidence
    whole: Evidence
    routed: bool = False
    terms: dict[str, Terms] = field(default_factory=dict[str, Terms])
    last: Receipt | None = None
    by_lease: dict[str, list[Receipt]] = field(default_factory=dict[str, list[Receipt]])

    @property
    def owed(self) -> int:
        """What its receipts state in all."""
        return self.last.channel_owed if self.last else 0

    @property
    def signed(self) -> int:
        """What its voucher holds."""
        return self.evidence.voucher.cumulative if self.evidence.voucher else 0

    def refuse(
        self, kind: type[InvoiceRefused], way: str, why: str, lease: str = "",
        receipt: int | None = None, **fields: object,
    ) -> InvoiceRefused:  # fmt: skip
        """*kind*, with where it is: this channel, *lease* or all of its leases, *receipt* or its
        last.
        """
        leases = [lease] if lease else list(self.terms)
        last = self.last.seq if self.last else 0
        at = f"last receipt {last}" if last else told(self.whole, self.evidence.session_vk)
        if receipt is not None:
            at = f"receipt {receipt}"
        where = f"{channel_name(self.evidence.session_vk)}, {lease_names(leases)}, {at}"
        known = {"channel": self.evidence.session_vk.hex(), "lease": ", ".join(leases)}
        seq = receipt if receipt is not None else last
        return kind(f"{where}: {why}", way=way, **known, receipt=seq, **fields)


def channel_name(session_vk: bytes) -> str:
    """How a refusal names a channel: by the first half of its session key's hex."""
    return f"channel {session_vk.hex()[:16]}"


def lease_names(names: list[str]) -> str:
    """How a refusal names leases: by their ids, or "no lease"."""
    if not names:
        return "no lease"
    return ("lease " if len(names) == 1 else "leases ") + " and ".join(map(plain_name, names))


def plain_name(text: str) -> str:
    """A name that somebody else chose, fit for a terminal."""
    return text if re.fullmatch(r"[A-Za-z0-9_.:-]{1,80}", text) else ascii(text)[:80]


def total_of(book: Book, facts: LedgerFacts | None) -> Total:
    """The channel's sums; what only the ledger knows is None where it was not asked."""
    return Total(
        channel=book.evidence.session_vk,
        owed=book.owed,
        signed=book.signed,
        ahead=max(book.signed - book.owed, 0),
        claimed=facts.claimed if facts else None,
        refunded=facts.refunded if facts else None,
        held=facts.held if facts else None,
        funded=facts.funded if facts else None,
        ended=facts.ended if facts else None,
    )


def line_of(terms: Terms, receipts: list[Receipt]) -> Line:
    """The lease's line of the bill, by its terms and its receipts (at least one), in order."""
    first, last = receipts[0], receipts[-1]
    lost: dict[str, int] = {}
    for receipt in receipts:
        for part in receipt.lost:
            lost[part.cause] = lost.get(part.cause, 0) + part.ms
    return Line(
        lease=terms.lease,
        provider=terms.provider,
        channel=terms.session_vk,
        resource=terms.resource,
        units_milli=terms.units_milli,
        rate_micro=terms.rate_micro,
        ticks=len(receipts),
        started_wall_ms=first.wall_ms - (first.t1_ms - first.t0_ms),
        ended_wall_ms=last.wall_ms,
        lease_ms=last.t1_ms,
        unit_ms=last.unit_ms_total,
        owed=last.lease_owed,
        ceiling=terms.ceiling,
        final=last.final,
        lost=tuple(LostTime(cause, ms) for cause, ms in sorted(lost.items()) if ms),
    )
