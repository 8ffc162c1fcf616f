"""The bill, recomputed by anyone from what both sides signed and from the ledger: pure and offline.

``reconcile(evidence, ledger) -> Invoice`` trusts nobody: it takes the terms, every receipt of the
channels, the greatest vouchers and what the ledger says, and applies the rules of
``docs/invoice.md`` in that page's order. The first that fails ends as :class:`InvoiceRefused` with
that rule's code, the ``way`` in which it was broken (the page's own word), and where: channel,
lease, receipt.

``read_signed`` is the part that needs no ledger; ``Signed.bill`` puts the ledger's facts beside it.
Money is lovelace, time ms. A job that went on elsewhere has several channels and one invoice.

Long, because a verifier of another author reads the rules in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.money.evidence import ChannelEvidence, Evidence, LedgerFacts, told
from marketplace.domain.money.receipt import (
    Receipt,
    ReceiptRefused,
    SignedReceipt,
    check_next,
    check_terms,
    check_time,
)
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import VoucherRefused
from marketplace.domain.units import Resource


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
    """I6: the consumer signed the voucher, for this channel."""

    code, rule = "INVOICE_VOUCHER", "I6"


class ClaimWrong(InvoiceRefused):
    """I7: no more was claimed than was delivered and signed for, and all of that once the channel
    ended.
    """

    code, rule = "INVOICE_CLAIM", "I7"


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


@dataclass(frozen=True)
class LostTime:
    """Time of a lease that was not billed, with its cause; always 0 lovelace."""

    cause: str
    ms: int


@dataclass(frozen=True)
class Line:
    """One lease: what was delivered, at which rate, and what that makes."""

    lease: str
    provider: str
    channel: bytes
    resource: Resource
    units_milli: int
    rate_micro: int
    ticks: int
    started_wall_ms: int
    ended_wall_ms: int
    lease_ms: int
    unit_ms: int
    owed: int
    ceiling: int
    final: bool
    lost: tuple[LostTime, ...]


@dataclass(frozen=True)
class Total:
    """One channel: what its leases owe, what was signed for, claimed, sent home and is still held.

    *signed* is the greatest voucher. What it holds beyond *owed* is *ahead*: an allowance for later
    ticks, no word about what was delivered, and nobody's due.
    """

    channel: bytes
    owed: int
    signed: int
    ahead: int
    claimed: int | None
    refunded: int | None
    held: int | None
    funded: int | None
    ended: bool | None


@dataclass(frozen=True)
class Invoice:
    """A bill that holds: *owed* is this job's share of its channels."""

    job: str
    lines: tuple[Line, ...]
    channels: tuple[Total, ...]

    @property
    def owed(self) -> int:
        """What the job cost."""
        return sum(line.owed for line in self.lines)

    @property
    def unsigned(self) -> int:
        """Delivered and never paid for: the provider's loss, two ticks a lease at most."""
        return sum(max(total.owed - total.signed, 0) for total in self.channels)

    @property
    def ahead(self) -> int:
        """Signed for beyond what was delivered; none of it may be claimed."""
        return sum(total.ahead for total in self.channels)

    @property
    def reconciled(self) -> bool:
        """Whether every channel has ended on the ledger, with its due to the lovelace."""
        return bool(self.channels) and all(
            t.ended and t.claimed == min(t.signed, t.owed) for t in self.channels
        )

    def to_json(self) -> dict[str, Any]:
        """For programs; bytes as hex."""
        return {
            "job": self.job,
            "owed": self.owed,
            "unsigned": self.unsigned,
            "ahead": self.ahead,
            "reconciled": self.reconciled,
            "lines": [_plain(line) for line in self.lines],
            "channels": [_plain(total) for total in self.channels],
        }


@dataclass
class _Book:
    """One channel as it is read: its leases' terms, its receipts so far by lease."""

    evidence: ChannelEvidence
    whole: Evidence
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
        where = f"{_channel(self.evidence.session_vk)}, {_leases(leases)}, {at}"
        known = {"channel": self.evidence.session_vk.hex(), "lease": ", ".join(leases)}
        seq = receipt if receipt is not None else last
        return kind(f"{where}: {why}", way=way, **known, receipt=seq, **fields)


@dataclass(frozen=True)
class Signed:
    """Evidence whose signatures and sums hold; what the ledger says of it is still to be
    compared.
    """

    job: str
    books: tuple[_Book, ...]

    def bill(self, ledger: Sequence[LedgerFacts | None] = ()) -> Invoice:
        """The invoice; *ledger* has one entry for each channel, None where the chain was not
        asked.
        """
        facts = [*ledger, *[None] * (len(self.books) - len(ledger))]
        for book, found in zip(self.books, facts, strict=True):
            if found is not None:
                _compare(book, found)
        lines = [
            _line(terms, receipts)
            for book in self.books
            for lease, receipts in book.by_lease.items()
            if (terms := book.terms[lease]).job == self.job
        ]
        totals = [_total(book, found) for book, found in zip(self.books, facts, strict=True)]
        return Invoice(self.job, tuple(lines), tuple(totals))

    @property
    def assets(self) -> tuple[str, ...]:
        """Each channel's asset, by its terms: "" for ADA, else hex of policy and name."""
        return tuple(next(iter(book.terms.values())).asset for book in self.books)


def reconcile(evidence: Evidence, ledger: Sequence[LedgerFacts | None] = ()) -> Invoice:
    """The invoice of *evidence*; :class:`InvoiceRefused` names the first rule that fails."""
    return read_signed(evidence).bill(ledger)


def asked(evidence: Evidence, job: str) -> Evidence:
    """*evidence*, if it is of *job*; :class:`JobDiffers` if a market answered with another's."""
    if evidence.job != job:
        raise JobDiffers(
            f"the evidence is of job {_name(evidence.job)}, and {_name(job)} was asked for",
            way="asked", job=evidence.job,
        )  # fmt: skip
    return evidence


def read_signed(evidence: Evidence) -> Signed:
    """Every rule that needs no ledger, in the page's order."""
    agreed = _terms(evidence)
    books = _channels(evidence, agreed)
    for book in books.values():
        for signed in book.evidence.receipts:
            _receipt(book, signed)
        _voucher(book)
    return Signed(evidence.job, tuple(books.values()))


def _terms(evidence: Evidence) -> list[Terms]:
    """I1 and I10: each row of ``leases`` in turn, then whether the job is among them."""
    found: dict[str, Terms] = {}
    for row, one in enumerate(evidence.leases):
        at = f"{_channel(one.channel)}, lease in row {row}, {told(evidence, one.channel)}"
        fields: dict[str, object] = {"channel": one.channel.hex(), "lease": ""}
        try:
            terms = decode_terms(one.signed.body)
        except Refusal as error:
            raise TermsNotSigned(f"{at}: {error.message}", way="terms", **fields) from error
        fields["lease"] = terms.lease
        for way, why in _unsigned(one.signed, terms, found):
            hang = told(evidence, one.channel, terms.lease)
            at = f"{_channel(one.channel)}, lease {_name(terms.lease)}, {hang}"
            raise TermsNotSigned(f"{at}: {why}", way=way, **fields)
        found[terms.lease] = terms
    jobs = {terms.job for terms in found.values()}
    if found and evidence.job not in jobs:
        named = ", ".join(
            f"{_name(t.lease)} ({_channel(t.session_vk)}, {told(evidence, t.session_vk, t.lease)})"
            for t in found.values()
        )
        raise JobDiffers(
            f"no lease is of job {_name(evidence.job)}: the terms of lease {named} name job"
            f" {', '.join(map(_name, sorted(jobs)))}",
            way="job", lease=", ".join(found), channel=evidence.leases[0].channel.hex(),
        )  # fmt: skip
    return list(found.values())


def decode_terms(body: bytes) -> Terms:
    """The terms of *body*, each field within the page's limits; a :class:`Refusal` if not."""
    terms = Terms.decode(body)
    if terms.asset and not re.fullmatch(r"[0-9a-f]{56}(?:[0-9a-f]{2}){0,32}", terms.asset):
        raise Malformed("asset is neither empty nor hex of a policy and a name")
    return terms


def _unsigned(
    signed: SignedTerms, terms: Terms, found: dict[str, Terms]
) -> Iterator[tuple[str, str]]:
    if not verifies(terms.adapter_vk, signed.body, signed.adapter_signature):
        yield "adapter", "the adapter did not sign these terms"
    if not verifies(terms.session_vk, signed.body, signed.session_signature or b""):
        yield "session", "the session key did not sign these terms"
    if terms.lease in found:
        yield "twice", "the lease has two terms"


def _channels(evidence: Evidence, agreed: list[Terms]) -> dict[bytes, _Book]:
    """I2, as far as no ledger is needed: each channel once, each lease on a channel that is
    here.
    """
    books: dict[bytes, _Book] = {}
    for channel in evidence.channels:
        again = channel.session_vk in books
        books.setdefault(channel.session_vk, _Book(channel, evidence))
        if again:
            for terms in agreed:  # so that the refusal can name them
                if terms.session_vk == channel.session_vk:
                    books[channel.session_vk].terms[terms.lease] = terms
            raise books[channel.session_vk].refuse(
                ChannelDiffers, "twice", "the channel stands twice in the evidence"
            )
    for row, terms in zip(evidence.leases, agreed, strict=True):
        way = why = ""
        if terms.session_vk != row.channel:
            way, why = "named", f"its terms are of {_channel(terms.session_vk)}"
        elif row.channel not in books:
            way, why = "absent", "the channel is not in the evidence, so none of its receipts is"
        if way:
            hang = told(evidence, row.channel, terms.lease)
            raise ChannelDiffers(
                f"{_channel(row.channel)}, lease {_name(terms.lease)}, {hang}: {why}",
                way=way, channel=row.channel.hex(), lease=terms.lease,
            )  # fmt: skip
        books[row.channel].terms[terms.lease] = terms
    for book in books.values():
        if not book.terms:
            raise book.refuse(ChannelDiffers, "bare", "no terms name this channel")
        if len({(t.magic, t.asset, t.consts()) for t in book.terms.values()}) > 1:
            raise book.refuse(
                ChannelDiffers, "agree", "its leases name different networks, assets or payouts"
            )
    return books


def _receipt(book: _Book, signed: SignedReceipt) -> None:
    """I3, I4, I5 and I9 of the channel's next receipt; it is in *book* afterwards."""
    channel, last = book.evidence, book.last
    position = sum(map(len, book.by_lease.values())) + 1
    try:
        receipt = signed.receipt
    except Malformed as error:
        raise book.refuse(ReceiptNotSigned, "receipt", error.message, receipt=position) from error
    before = book.by_lease.get(receipt.lease, [])
    agreed = book.terms.get(receipt.lease)
    mine = before[-1] if before else None

    def refuse(kind: type[InvoiceRefused], way: str, why: str) -> InvoiceRefused:
        return book.refuse(kind, way, why, receipt.lease, receipt.seq)

    if receipt.session_vk != channel.session_vk:
        why = f"the receipt is of {_channel(receipt.session_vk)}"
        raise refuse(ReceiptNotSigned, "channel", why)
    if agreed is None:
        raise refuse(ReceiptNotSigned, "lease", "the receipt is for a lease without terms")
    if not verifies(agreed.adapter_vk, signed.body, signed.signature):
        raise refuse(ReceiptNotSigned, "signature", "the adapter of the terms did not sign it")
    try:
        check_next(receipt, last, mine, agreed.rate_micro)
    except ReceiptRefused as error:
        raise refuse(ChainBroken, str(error.fields["way"]), error.message) from error
    try:
        check_terms(receipt, agreed)
    except ReceiptRefused as error:
        raise refuse(UsageDiffers, str(error.fields["way"]), error.message) from error
    try:
        check_time(receipt, mine, agreed.units_milli)
    except ReceiptRefused as error:
        raise refuse(TimeExceeded, str(error.fields["way"]), error.message) from error
    book.by_lease.setdefault(receipt.lease, []).append(receipt)
    book.last = receipt


def _voucher(book: _Book) -> None:
    """I6: the consumer signed for it."""
    voucher = book.evidence.voucher
    if voucher is None:
        return
    try:
        voucher.verify()
    except VoucherRefused as error:
        raise book.refuse(VoucherWrong, "signature", error.message) from error


def _compare(book: _Book, facts: LedgerFacts) -> None:
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


def _channel(session_vk: bytes) -> str:
    return f"channel {session_vk.hex()[:16]}"


def _leases(names: list[str]) -> str:
    if not names:
        return "no lease"
    return ("lease " if len(names) == 1 else "leases ") + " and ".join(map(_name, names))


def _name(text: str) -> str:
    """A name that somebody else chose, fit for a terminal."""
    return text if re.fullmatch(r"[A-Za-z0-9_.:-]{1,80}", text) else ascii(text)[:80]


def _total(book: _Book, facts: LedgerFacts | None) -> Total:
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


def _line(terms: Terms, receipts: list[Receipt]) -> Line:
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


def _plain(value: Line | Total) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, part in vars(value).items():
        if isinstance(part, bytes):
            row[name] = part.hex()
        elif isinstance(part, tuple):
            lost = cast("tuple[LostTime, ...]", part)
            row[name] = [{"cause": item.cause, "ms": item.ms} for item in lost]
        else:
            row[name] = part
    return row
