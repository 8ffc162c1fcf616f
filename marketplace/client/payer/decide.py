"""What a payer answers to a receipt: pure, with its own clock as an argument.

``decide(book, receipt, now_ms) -> Outcome(book, sign, note)``. The shell makes the outcome durable
and only then sends the voucher. The rules, in the order in which they are looked at:

1. forged, foreign, replayed, forked or reordered receipts are refused, each with its own code;
2. the receipt must follow from the one before: hash chain, totals, owed = floor(ms x rate / 10^9),
   and usage that fits into its time: what it calls paused is not billed. No lease owes more than
   its ceiling, nor is served for longer than its terms let it run;
3. per lease, never more is signed than *own elapsed time + one tick* at the rate of the terms, than
   the lease's cap (its ceiling, or what is left of the budget), and in all never more than the
   channel holds. What a receipt asks beyond that is simply not signed, and the note says why;
   as the own clock goes on, ``approve_more`` signs what it then allows. A cluster's member is paid
   for while its newest order says RUN (:mod:`.ordered`).

A validly signed receipt that breaks a rule of 1 or 2 is evidence against the provider: the book is
*stopped* and nothing more is signed on this channel. Times are ms of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from marketplace.client.payer.lease_book import UNSEEN_TICKS as UNSEEN_TICKS
from marketplace.client.payer.lease_book import LeaseBook as LeaseBook
from marketplace.client.payer.ordered import OrdersLost, ReceiptUnordered
from marketplace.domain.errors import Refusal
from marketplace.domain.money.receipt import (
    Receipt,
    ReceiptRefused,
    SignedReceipt,
    check,
)
from marketplace.domain.units import show_ada, show_duration

_REMEMBERED: Final = 256
"""Hashes of answered receipts that are kept, to tell a repetition from a fork."""


class ReceiptForged(ReceiptRefused):
    """Not signed by the adapter of the terms."""

    code = "RECEIPT_FORGED"
    remedy = "nothing was paid for it; if it lasts, choose another market or provider"


class ReceiptForeign(ReceiptRefused):
    """For another channel, or for a lease that this payer never agreed to."""

    code = "RECEIPT_FOREIGN"
    remedy = "nothing was paid for it"


class ReceiptReplayed(ReceiptRefused):
    """One that was answered long ago."""

    code = "RECEIPT_REPLAYED"
    remedy = "nothing was paid again"


class ReceiptForked(ReceiptRefused):
    """Two different receipts with one number, both signed: the adapter keeps two books."""

    code = "RECEIPT_FORKED"


class ReceiptReordered(ReceiptRefused):
    """One whose predecessor is missing."""

    code = "RECEIPT_REORDERED"
    remedy = "the ones between are asked for; nothing is paid until they are there"


class ReceiptWrong(ReceiptRefused):
    """Signed and in order, but its figures do not follow from the last one and the terms."""

    code = "RECEIPT_WRONG"


class ClaimUnsigned(Refusal):
    """More was claimed from the channel, says the chain's door, than any own signature allows."""

    code = "CLAIM_UNSIGNED"
    remedy = (
        "nothing more is signed on this channel and its end is asked for; ask a chain of your own"
        " (--chain-url or TALLY_CHAIN_URL): if it shows no such claim, the door lied; if it does,"
        " somebody else has this session key"
    )


class PayerStopped(Refusal):
    """This channel's provider broke the rules; nothing more is signed."""

    code = "PAYER_STOPPED"
    remedy = "end the job; the journal holds the receipts that prove it"


@dataclass(frozen=True)
class Book:
    """One channel as its payer sees it: *signed* is the greatest cumulative amount ever signed, as
    far as a signature of the session key proves it.

    *capacity*: the most that the channel can pay, None while the chain was not asked; *stopped*:
    the code of the broken rule, empty while there is none.
    """

    session_vk: bytes
    leases: Mapping[str, LeaseBook] = field(default_factory=dict[str, LeaseBook])
    last: Receipt | None = None
    signed: int = 0
    capacity: int | None = None
    stopped: str = ""
    answered: tuple[tuple[int, bytes], ...] = ()

    @property
    def spent(self) -> int:
        """What all leases were approved for."""
        return sum(lease.approved for lease in self.leases.values())

    def with_lease(self, lease: LeaseBook) -> Book:
        """The book with *lease* added or replaced."""
        return replace(self, leases={**self.leases, lease.terms.lease: lease})


@dataclass(frozen=True)
class Note:
    """Something that a person should know; *code* is stable."""

    code: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """The next book, the cumulative amount to sign and send (None: nothing), and a note."""

    book: Book
    sign: int | None = None
    note: Note | None = None


@dataclass(frozen=True)
class Missing:
    """Receipts *first* to *last* of the channel must be handled before the one that came."""

    first: int
    last: int


def decide(book: Book, signed: SignedReceipt, now_ms: int) -> Outcome | Missing:
    """What to do about *signed* at *now_ms*. :class:`ReceiptRefused` changes nothing in the book,
    except that one of the rules 2 also stops it: see :func:`stop`.
    """
    if book.stopped:
        raise PayerStopped(f"nothing is signed since {book.stopped}", stopped=book.stopped)
    receipt = _read(book, signed)
    lease = book.leases[receipt.lease]
    if book.last is not None and receipt.seq <= book.last.seq:
        return _again(book, receipt, now_ms)
    seq = book.last.seq if book.last else 0
    if receipt.seq > seq + 1:
        return Missing(seq + 1, receipt.seq - 1)
    _follows(book, lease, receipt)
    if lease.since_ms is None:  # its start was not seen
        lease = replace(lease, since_ms=lease.earliest_ms(now_ms))
    if receipt.final and lease.ended_ms is None:
        lease = replace(lease, ended_ms=now_ms)
    lease = lease.heard(receipt)
    kept = remember(book.answered, receipt)
    return _approve(replace(book, last=receipt, answered=kept), lease, now_ms)


def remember(
    answered: tuple[tuple[int, bytes], ...], receipt: Receipt
) -> tuple[tuple[int, bytes], ...]:
    """The numbers and hashes of the last answered receipts, *receipt* among them."""
    return (*answered, (receipt.seq, receipt.hash))[-_REMEMBERED:]


def approve_more(book: Book, now_ms: int) -> Outcome:
    """What the own clock or a top-up now allows of what was asked already (after a capped
    answer).
    """
    outcome = Outcome(book)
    for lease in book.leases.values():
        if not book.stopped and lease.last is not None and lease.approved < lease.last.lease_owed:
            outcome = _approve(outcome.book, lease, now_ms)
    return outcome


def stop(book: Book, refusal: Refusal) -> Book:
    """The book after *refusal*: stopped if a signed receipt broke a rule, else unchanged."""
    guilty = isinstance(refusal, (ReceiptForked, ReceiptWrong, ReceiptUnordered))
    guilty = guilty and not isinstance(refusal, OrdersLost)
    return replace(book, stopped=refusal.code) if guilty else book


def _read(book: Book, signed: SignedReceipt) -> Receipt:
    receipt = signed.receipt
    if receipt.session_vk != book.session_vk:
        raise ReceiptForeign("the receipt is for another channel", seq=receipt.seq)
    lease = book.leases.get(receipt.lease)
    if lease is None:
        raise ReceiptForeign(f"no terms were signed for lease {receipt.lease}", seq=receipt.seq)
    try:
        return signed.verify(lease.terms.adapter_vk)
    except ReceiptRefused as error:
        raise ReceiptForged(error.message, seq=receipt.seq, lease=receipt.lease) from None


def _again(book: Book, receipt: Receipt, now_ms: int) -> Outcome:
    """A number that was answered: the same receipt gets the same answer, another one is a fork."""
    assert book.last is not None
    known = dict(book.answered).get(receipt.seq)
    if known is not None and known != receipt.hash:
        raise ReceiptForked(f"two receipts are numbered {receipt.seq}", seq=receipt.seq)
    if receipt.seq < book.last.seq:
        raise ReceiptReplayed(
            f"receipt {receipt.seq} came again after {book.last.seq}", seq=receipt.seq
        )
    lease = book.leases[receipt.lease]
    outcome = _approve(book, lease, now_ms)
    return replace(outcome, sign=max(outcome.book.signed, outcome.sign or 0))


def _follows(book: Book, lease: LeaseBook, receipt: Receipt) -> None:
    """Rules 2; :class:`ReceiptWrong` names the first that is broken."""
    terms = lease.terms
    try:
        check(receipt, book.last, lease.last, terms)
    except ReceiptRefused as error:
        raise ReceiptWrong(error.message, seq=receipt.seq, lease=receipt.lease) from None
    if lease.orders is not None:
        lease.orders.check(receipt)
    if lease.heard(receipt).served_ms > lease.longest_ms:
        why = "longer than the terms let it run"
        raise ReceiptWrong(why, seq=receipt.seq, lease=receipt.lease)


def _approve(book: Book, lease: LeaseBook, now_ms: int) -> Outcome:
    """Raise *lease*'s approval as far as the rules 3 allow."""
    assert lease.last is not None
    asked = lease.last.lease_owed
    # What was signed already and is no lease's yet (after a lost book) costs nothing more.
    free = lease.approved + book.signed - book.spent
    allowed = max(lease.allowed(now_ms), free)
    ordered = max(lease.ordered_owed(lease.last), free)
    room = None if book.capacity is None else book.capacity - (book.spent - lease.approved)
    limits = [(asked, ""), (ordered, "ORDER"), (allowed, "CLOCK"), (lease.cap, "BUDGET")]
    if room is not None:
        limits.append((room, "CAPACITY"))
    amount, code = min(limits, key=lambda limit: limit[0])
    approved = max(lease.approved, amount)
    base = lease.base + max(0, approved - lease.allowed(now_ms))
    book = book.with_lease(replace(lease, approved=approved, base=base))
    total = max(book.signed, book.spent)
    note = _note(code, asked, approved, lease, now_ms) if code and approved < asked else None
    grown = total > book.signed
    book = replace(book, signed=total)
    return Outcome(book, total if grown else None, note)


def _note(code: str, asked: int, approved: int, lease: LeaseBook, now_ms: int) -> Note:
    kept = show_ada(asked - approved)
    if lease.is_held and code == "CLOCK":
        code = "ORDER"
    if code == "ORDER":
        why = "it was billed while the member was not ordered to RUN"
    elif code == "CLOCK":
        assert lease.last is not None
        own = show_duration(lease.elapsed_ms(now_ms))
        claimed = show_duration(lease.last.t1_ms)
        why = f"the receipt counts {claimed}, the own clock {own} and one tick"
    elif code == "BUDGET":
        why = f"the limit of this lease is {show_ada(lease.cap)}"
    else:
        why = "the channel holds no more; top it up"
    return Note(f"NOT_SIGNED_{code}", f"{kept} not signed: {why}")


# --- what else moves a book ----------------------------------------------------------------------


def started(book: Book, lease: str, now_ms: int) -> Book:
    """The own clock of *lease* begins: its start was seen (or may have been, see ``LeaseBook``)."""
    known = book.leases.get(lease)
    if known is None or known.since_ms is not None:
        return book
    return book.with_lease(replace(known, since_ms=now_ms))


def paused(book: Book, lease: str, now_ms: int) -> Book:
    """Nothing is delivered from here on."""
    known = book.leases.get(lease)
    if known is None or known.since_ms is None or known.paused_at_ms is not None:
        return book
    return book.with_lease(replace(known, paused_at_ms=now_ms))


def resumed(book: Book, lease: str, now_ms: int) -> Book:
    """Delivered again: the pause is left out of the own time (``LeaseBook.elapsed_ms``)."""
    known = book.leases.get(lease)
    return book if known is None else book.with_lease(known.resumed(now_ms))


def followed(book: Book, lease: str, now_ms: int) -> Book:
    """The adapter acts by the newest order to a cluster's member."""
    known = book.leases.get(lease)
    if known is None or known.orders is None:
        return book
    return book.with_lease(replace(known, orders=known.orders.followed(now_ms)))


def ended(book: Book, lease: str, now_ms: int) -> Book:
    """The workload is gone: the own clock of *lease* stands still."""
    known = book.leases.get(lease)
    if known is None or known.ended_ms is not None:
        return book
    return book.with_lease(replace(known, ended_ms=now_ms))


MOVES: Final = {
    "started": started, "paused": paused, "resumed": resumed, "ended": ended, "followed": followed,
}  # fmt: skip
"""What moves a lease's clock, by the journal's word for it."""
STAGE: Final = {"STARTED": "started", "PAUSED": "paused", "RESUMED": "resumed", "FINISHED": "ended"}
"""That word, by an adapter's for the stage of a lease."""


def resume_from(book: Book, signed: int) -> Book:
    """After a lost journal: *signed* is the cumulative amount of a voucher that the session key has
    signed, verified by the caller. Nothing below it is signed anew as if it were a first payment;
    it counts as justified once, for whichever leases' receipts are read again.
    """
    return replace(book, signed=max(book.signed, signed))
