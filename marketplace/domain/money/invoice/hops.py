"""The hops of routed leases: who is on which (I11), what its voucher is for (I6), and what the
provider says it was paid (I12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from marketplace.domain.errors import Malformed, Refusal
from marketplace.domain.money.evidence import Evidence, told
from marketplace.domain.money.invoice.book import channel_name, plain_name
from marketplace.domain.money.invoice.refusals import (
    InvoiceRefused,
    PaidWrong,
    RouteDiffers,
    VoucherWrong,
)
from marketplace.domain.money.invoice.routes import Passage
from marketplace.domain.money.route.evidence import HopEvidence
from marketplace.domain.money.route.offer import RouterOffer
from marketplace.domain.money.route.paid import Paid, PaidRefused
from marketplace.domain.money.route.statement import StatementRefused
from marketplace.domain.money.voucher import VoucherRefused


@dataclass
class HopBook:
    """One hop as it is read: the leases that name it, the router's offer on a hop *into* it.

    *owed*: what each routed lease of the evidence owes by its last receipt, lovelace.
    """

    evidence: HopEvidence
    whole: Evidence
    owed: Mapping[str, int]
    members: list[Passage] = field(default_factory=list[Passage])
    offer: RouterOffer | None = None

    @property
    def into(self) -> bool:
        """Whether it pays the router; else the router pays a provider over it."""
        return self.evidence.offer is not None

    @property
    def signed(self) -> int:
        """What its voucher holds."""
        return self.evidence.voucher.cumulative if self.evidence.voucher else 0

    @property
    def due(self) -> int:
        """The most that may be claimed: of each lease that is here what it owes, of the others
        their whole leaves.
        """
        most = self._most()
        leaves = self.evidence.leaves
        return sum(min(leaf.amount, most.get(leaf.terms, leaf.amount)) for leaf in leaves)

    @property
    def blind(self) -> int:
        """The leaves of leases that are not in the evidence: nothing says what those owe."""
        most = self._most()
        return sum(leaf.amount for leaf in self.evidence.leaves if leaf.terms not in most)

    def leaf(self, terms: bytes) -> int | None:
        """What was signed here for the lease whose terms hash to *terms*."""
        return next((one.amount for one in self.evidence.leaves if one.terms == terms), None)

    def _most(self) -> dict[bytes, int]:
        fee = {} if self.offer is None else {self.offer.hash: self.offer.hop_fee}
        leases = {
            one.hash: one.due(self.owed.get(one.terms.lease, 0), into=self.into)
            for one in self.members
        }
        return {**fee, **leases}

    def refuse(
        self, kind: type[InvoiceRefused], way: str, why: str, **fields: object
    ) -> InvoiceRefused:
        """*kind*, with where it is: this hop, its leases and their receipts."""
        on = [
            f"lease {plain_name(one.terms.lease)} ({told(self.whole, one.terms.session_vk)})"
            for one in self.members
        ]
        side = "a hop into the router" if self.into else "a hop out of the router"
        where = f"{channel_name(self.evidence.session_vk)}, {side}, " + (
            " and ".join(on) or "no lease, no receipt"
        )
        return kind(
            f"{where}: {why}", way=way, channel=self.evidence.session_vk.hex(),
            lease=", ".join(one.terms.lease for one in self.members), receipt=0, **fields,
        )  # fmt: skip


def read_hops(
    evidence: Evidence, passages: Sequence[Passage], owed: Mapping[str, int]
) -> tuple[HopBook, ...]:
    """Every hop of *evidence*, each rule in the page's order; *passages* are its routed leases."""
    there = {hop.session_vk for hop in evidence.hops}
    for one in passages:
        named = {x.hop for x in (one.shown.hop_in, one.shown.hop_out) if x is not None}
        if not named <= there:
            raise _refuse(evidence, one, RouteDiffers, "absent", "a hop that it names is not here")
    seen = {channel.session_vk for channel in evidence.channels}
    books: list[HopBook] = []
    for hop in evidence.hops:
        book = HopBook(hop, evidence, owed)
        for kind, way, why in _faults(book, passages, seen):
            raise book.refuse(kind, way, why)
        seen.add(hop.session_vk)
        books.append(book)
    for one in passages:
        _paid(evidence, one, owed.get(one.terms.lease, 0))
    return tuple(books)


_Fault = tuple[type[InvoiceRefused], str, str]


def _faults(book: HopBook, passages: Sequence[Passage], seen: set[bytes]) -> Iterator[_Fault]:
    """The first fault of a hop, if it has one; *book* learns its leases and its offer."""
    mine = book.evidence.session_vk
    ways = {True: _on(passages, mine, into=True), False: _on(passages, mine, into=False)}
    book.members = ways[book.into]
    if mine in seen:
        yield RouteDiffers, "twice", "its key is another channel's or hop's too"
    if not ways[True] and not ways[False]:
        yield RouteDiffers, "bare", "no lease names this hop"
    if ways[not book.into]:
        yield RouteDiffers, "side", "a lease names it as the other one of its two hops"
    if book.evidence.offer is not None:
        try:
            book.offer = book.evidence.offer.verify()
        except Refusal as error:
            yield RouteDiffers, "offer", error.message
    if not _agree(book):
        yield RouteDiffers, "agree", "its leases name different routers, networks or payees"
    yield from _unstated(book, passages)


def _on(passages: Sequence[Passage], session_vk: bytes, *, into: bool) -> list[Passage]:
    shown = ((one, one.opening(into=into)) for one in passages)
    return [one for one, opening in shown if opening is not None and opening.hop == session_vk]


def _agree(book: HopBook) -> bool:
    """One router, one network, one asset; out of the router, one payee as well."""
    found: set[tuple[object, ...]] = set()
    for one in book.members:
        terms = one.terms
        payee = (terms.adapter_vkh, terms.payout, terms.close_period_ms, terms.fee_bps)
        found.add((one.route.router_vk, terms.magic, terms.asset, () if book.into else payee))
    offered = book.offer
    return len(found) == 1 and (
        offered is None or {(offered.router_vk, offered.magic)} == {one[:2] for one in found}
    )


def _unstated(book: HopBook, passages: Sequence[Passage]) -> Iterator[_Fault]:
    """I6: what the voucher is for."""
    hop = book.evidence
    try:
        statement = hop.statement.statement
    except Malformed as error:
        yield VoucherWrong, "statement", error.message
        return
    if statement.session_vk != hop.session_vk:
        yield VoucherWrong, "statement", f"of {channel_name(statement.session_vk)}"
    try:
        hop.statement.verify()
    except StatementRefused as error:
        yield VoucherWrong, "stated", error.message
    if not _sums(book):
        yield VoucherWrong, "leaves", "the leaves are not those of the statement"
    if why := _misplaced(book, passages):
        yield VoucherWrong, "leaf", why
    if statement.total != book.signed:
        why = f"the statement sums up to {statement.total}, the voucher holds {book.signed}"
        yield VoucherWrong, "total", why
    try:
        if hop.voucher is not None:
            hop.voucher.verify()
    except VoucherRefused as error:
        yield VoucherWrong, "voucher", error.message


def _sums(book: HopBook) -> bool:
    leaves = book.evidence.leaves
    try:
        whole = book.evidence.statement.statement.states(leaves)
    except Malformed:
        return False
    return whole and len({leaf.terms for leaf in leaves}) == len(leaves)


def _misplaced(book: HopBook, passages: Sequence[Passage]) -> str:
    """Why a leaf is not where its lease is; empty if all are."""
    if book.offer is not None and book.evidence.leaves[0].terms != book.offer.hash:
        return "its first leaf is not the router's offer"
    held = {leaf.terms for leaf in book.evidence.leaves}
    for one in passages:
        opening = one.opening(into=book.into)
        if opening is None:
            continue
        if (opening.hop == book.evidence.session_vk) != (one.hash in held):
            return f"lease {plain_name(one.terms.lease)} has its leaf on another hop, or none"
    return ""


def _paid(evidence: Evidence, one: Passage, owed: int) -> None:
    """I12: what the provider says it was paid."""
    if one.shown.paid is None:
        return
    amount, signature = one.shown.paid
    try:
        Paid(one.terms.session_vk, one.terms.lease, amount, signature).verify(one.terms.adapter_vk)
    except PaidRefused as error:
        raise _refuse(evidence, one, PaidWrong, "paid", error.message) from error
    if amount > owed:
        why = f"{amount} lovelace were paid, {owed} are owed"
        raise _refuse(evidence, one, PaidWrong, "owed", why)


def _refuse(
    evidence: Evidence, one: Passage, kind: type[InvoiceRefused], way: str, why: str
) -> InvoiceRefused:
    terms = one.terms
    where = f"{channel_name(terms.session_vk)}, lease {plain_name(terms.lease)}"
    hang = told(evidence, terms.session_vk, terms.lease)
    return kind(
        f"{where}, {hang}: {why}", way=way, channel=terms.session_vk.hex(), lease=terms.lease
    )
