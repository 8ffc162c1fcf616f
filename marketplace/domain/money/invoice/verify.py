"""The bill, recomputed by anyone from what both sides signed and from the ledger: pure and offline.

``reconcile(evidence, ledger) -> Invoice`` trusts nobody: it takes the terms, every receipt of the
channels, the greatest vouchers and what the ledger says, and applies the rules of
``docs/invoice.md`` in that page's order. The first that fails ends as :class:`InvoiceRefused` with
that rule's code, the ``way`` in which it was broken (the page's own word), and where: channel,
lease, receipt.

``read_signed`` is the part that needs no ledger; ``Signed.bill`` puts the ledger's facts beside it.
Money is lovelace, time ms. A job that went on elsewhere has several channels and one invoice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.keys import verifies
from marketplace.domain.money.evidence import ChannelEvidence, Evidence, LedgerFacts, told
from marketplace.domain.money.invoice.bill import Invoice
from marketplace.domain.money.invoice.book import Book, channel_name, line_of, plain_name, total_of
from marketplace.domain.money.invoice.hops import HopBook, read_hops
from marketplace.domain.money.invoice.ledger import compare, compare_hop
from marketplace.domain.money.invoice.refusals import (
    ChainBroken,
    ChannelDiffers,
    InvoiceRefused,
    JobDiffers,
    ReceiptNotSigned,
    RouteDiffers,
    TermsNotSigned,
    TimeExceeded,
    UsageDiffers,
    VoucherWrong,
)
from marketplace.domain.money.invoice.routed_bill import hop_total, route_line
from marketplace.domain.money.invoice.routes import Passage, read_route
from marketplace.domain.money.receipt import (
    ReceiptRefused,
    SignedReceipt,
    check_next,
    check_terms,
    check_time,
)
from marketplace.domain.money.route.evidence import HopEvidence
from marketplace.domain.money.route.route import RouteRefused
from marketplace.domain.money.route.terms import RoutedTerms, is_routed
from marketplace.domain.money.terms import SignedTerms, Terms
from marketplace.domain.money.voucher import VoucherRefused


@dataclass(frozen=True)
class Signed:
    """Evidence whose signatures and sums hold; what the ledger says of it is still to be
    compared.
    """

    job: str
    books: tuple[Book, ...]
    hops: tuple[HopBook, ...] = ()
    passages: tuple[Passage, ...] = ()

    def bill(self, ledger: Sequence[LedgerFacts | None] = ()) -> Invoice:
        """The invoice; *ledger* has one entry for each channel, then one for each hop, None where
        the chain was not asked.
        """
        count = len(self.books)
        facts = [*ledger, *[None] * (count + len(self.hops) - len(ledger))]
        of_channels = list(zip(self.books, facts[:count], strict=True))
        of_hops = list(zip(self.hops, facts[count:], strict=True))
        for book, found in of_channels:
            if found is not None and not book.routed:
                compare(book, found)
        for hop, found in of_hops:
            if found is not None:
                compare_hop(hop, found)
        lines = [
            line_of(terms, receipts)
            for book in self.books
            for lease, receipts in book.by_lease.items()
            if (terms := book.terms[lease]).job == self.job
        ]
        owed = _owed(self.books)
        return Invoice(
            job=self.job,
            lines=tuple(lines),
            channels=tuple(total_of(book, found) for book, found in of_channels if not book.routed),
            routes=tuple(
                route_line(one, owed[one.terms.lease], self.hops)
                for one in self.passages
                if one.terms.job == self.job
            ),
            hops=tuple(hop_total(hop, found) for hop, found in of_hops),
        )

    @property
    def asked(self) -> tuple[tuple[ChannelEvidence | HopEvidence, str] | None, ...]:
        """What to ask the ledger for, in the order of :meth:`bill`: a channel or hop with its asset
        ("" for ADA, else hex of policy and name); None for receipts without a channel of their own.
        """
        channels = [
            None if book.routed else (book.evidence, next(iter(book.terms.values())).asset)
            for book in self.books
        ]
        return (*channels, *((hop.evidence, hop.members[0].terms.asset) for hop in self.hops))


def reconcile(evidence: Evidence, ledger: Sequence[LedgerFacts | None] = ()) -> Invoice:
    """The invoice of *evidence*; :class:`InvoiceRefused` names the first rule that fails."""
    return read_signed(evidence).bill(ledger)


def asked(evidence: Evidence, job: str) -> Evidence:
    """*evidence*, if it is of *job*; :class:`JobDiffers` if a market answered with another's."""
    if evidence.job != job:
        raise JobDiffers(
            f"the evidence is of job {plain_name(evidence.job)},"
            f" and {plain_name(job)} was asked for",
            way="asked", job=evidence.job,
        )  # fmt: skip
    return evidence


def read_signed(evidence: Evidence) -> Signed:
    """Every rule that needs no ledger, in the page's order."""
    agreed, passages = _terms(evidence)
    books = _channels(evidence, agreed, {one.terms.lease for one in passages})
    for book in books.values():
        for signed in book.evidence.receipts:
            _receipt(book, signed)
        _voucher(book)
    every = tuple(books.values())
    return Signed(evidence.job, every, read_hops(evidence, passages, _owed(every)), passages)


def _owed(books: Sequence[Book]) -> dict[str, int]:
    """What each routed lease owes by its last receipt, lovelace."""
    return {lease: book.owed for book in books if book.routed for lease in book.terms}


def _terms(evidence: Evidence) -> tuple[list[Terms], tuple[Passage, ...]]:
    """I1, I11 and I10: each row of ``leases`` in turn, then whether the job is among them."""
    found: dict[str, Terms] = {}
    passages: list[Passage] = []
    for row, one in enumerate(evidence.leases):
        at = f"{channel_name(one.channel)}, lease in row {row}, {told(evidence, one.channel)}"
        fields: dict[str, object] = {"channel": one.channel.hex(), "lease": ""}
        try:
            terms, routed = decode_terms(one.signed.body)
        except Refusal as error:
            raise TermsNotSigned(f"{at}: {error.message}", way="terms", **fields) from error
        fields["lease"] = terms.lease
        for way, why in _unsigned(one.signed, terms, found):
            hang = told(evidence, one.channel, terms.lease)
            at = f"{channel_name(one.channel)}, lease {plain_name(terms.lease)}, {hang}"
            raise TermsNotSigned(f"{at}: {why}", way=way, **fields)
        try:
            passage = read_route(one, routed)
        except RouteRefused as error:
            hang = told(evidence, one.channel, terms.lease)
            at = f"{channel_name(one.channel)}, lease {plain_name(terms.lease)}, {hang}"
            way = str(error.fields["way"])
            raise RouteDiffers(f"{at}: {error.message}", way=way, **fields) from error
        passages += [passage] if passage else []
        found[terms.lease] = terms
    jobs = {terms.job for terms in found.values()}
    if found and evidence.job not in jobs:
        named = ", ".join(
            f"{plain_name(t.lease)} ({channel_name(t.session_vk)},"
            f" {told(evidence, t.session_vk, t.lease)})"
            for t in found.values()
        )
        raise JobDiffers(
            f"no lease is of job {plain_name(evidence.job)}: the terms of lease {named} name job"
            f" {', '.join(map(plain_name, sorted(jobs)))}",
            way="job", lease=", ".join(found), channel=evidence.leases[0].channel.hex(),
        )  # fmt: skip
    return list(found.values()), tuple(passages)


def decode_terms(body: bytes) -> tuple[Terms, RoutedTerms | None]:
    """The terms of *body*, direct or routed, each field within the page's limits; a
    :class:`Refusal` if not.
    """
    routed = RoutedTerms.decode(body) if is_routed(body) else None
    terms = Terms.decode(body) if routed is None else routed.terms
    if terms.asset and not re.fullmatch(r"[0-9a-f]{56}(?:[0-9a-f]{2}){0,32}", terms.asset):
        raise Malformed("asset is neither empty nor hex of a policy and a name")
    return terms, routed


def _unsigned(
    signed: SignedTerms, terms: Terms, found: dict[str, Terms]
) -> Iterator[tuple[str, str]]:
    if not verifies(terms.adapter_vk, signed.body, signed.adapter_signature):
        yield "adapter", "the adapter did not sign these terms"
    if not verifies(terms.session_vk, signed.body, signed.session_signature or b""):
        yield "session", "the session key did not sign these terms"
    if terms.lease in found:
        yield "twice", "the lease has two terms"


def _channels(evidence: Evidence, agreed: list[Terms], routed: set[str]) -> dict[bytes, Book]:
    """I2, as far as no ledger is needed: each channel once, each lease on a channel that is here;
    a *routed* one on no channel that is more than its receipts (I11).
    """
    books: dict[bytes, Book] = {}
    for channel in evidence.channels:
        again = channel.session_vk in books
        books.setdefault(channel.session_vk, Book(channel, evidence))
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
            way, why = "named", f"its terms are of {channel_name(terms.session_vk)}"
        elif row.channel not in books:
            way, why = "absent", "the channel is not in the evidence, so none of its receipts is"
        if way:
            hang = told(evidence, row.channel, terms.lease)
            raise ChannelDiffers(
                f"{channel_name(row.channel)}, lease {plain_name(terms.lease)}, {hang}: {why}",
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
        book.routed = not routed.isdisjoint(book.terms)
        if book.routed and (len(book.terms) > 1 or book.evidence.open_tx or book.evidence.voucher):
            why = "the key of a routed lease has another lease, a channel or a voucher"
            raise book.refuse(RouteDiffers, "own", why)
    return books


def _receipt(book: Book, signed: SignedReceipt) -> None:
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
        why = f"the receipt is of {channel_name(receipt.session_vk)}"
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


def _voucher(book: Book) -> None:
    """I6: the consumer signed for it."""
    voucher = book.evidence.voucher
    if voucher is None:
        return
    try:
        voucher.verify()
    except VoucherRefused as error:
        raise book.refuse(VoucherWrong, "signature", error.message) from error
