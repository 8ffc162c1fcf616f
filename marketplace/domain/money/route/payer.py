"""The consumer's book over a router: it signs at most what the provider has, and one tick.

A router that takes and passes nothing on gets no more than that tick (with its fee) of a lease that
was served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Paying, Payment
from marketplace.domain.money.route.leaves import MOST_LEAVES
from marketplace.domain.money.route.messages import (
    HeadroomShort,
    LeaseUnknown,
    Message,
    Outcome,
    Owes,
    Send,
)
from marketplace.domain.money.route.paid import Paid, PaidRefused


@dataclass(frozen=True)
class Bought:
    """One lease: who serves it, at what fee; *tick*: lovelace of one; *reserve*: the most for it.

    *owed*: by its last receipt that held; *paid*: by the provider's last Paid.
    """

    lease: str
    lease_vk: bytes
    adapter_vk: bytes
    route_bps: int
    tick: int
    reserve: int
    owed: int = 0
    paid: int = 0

    @property
    def wanted(self) -> int:
        """What the hop is to hold for it, the router's fee included."""
        return with_fee(min(self.owed, self.paid + self.tick, self.reserve), self.route_bps)


@dataclass(frozen=True)
class PayerBook:
    """A consumer's hop to a router, and its leases over it by the hash of their terms."""

    paying: Paying
    leases: Mapping[bytes, Bought] = field(default_factory=dict[bytes, Bought])


def admit(
    book: PayerBook, terms: bytes, lease: Bought, offer: bytes, hop_fee: int, session: Signer
) -> Outcome[PayerBook]:
    """With *lease*, and its leaf of 0; a new hop begins with *hop_fee* under the hash of the
    router's *offer*. :class:`HeadroomShort` for more leases than a hop's payment may name.
    """
    if len(book.leases) >= MOST_LEAVES - 1 and terms not in book.leases:
        raise HeadroomShort(f"a hop pays at most {MOST_LEAVES - 1} leases", most=MOST_LEAVES - 1)
    first = {} if book.paying.last else {offer: hop_fee}
    paying = book.paying.pay({**first, terms: 0}, session)
    return _paid(PayerBook(paying, {**book.leases, terms: lease}))


def decide(book: PayerBook, message: Message, session: Signer) -> Outcome[PayerBook]:
    """What follows from *message*: a receipt that held, or the provider's Paid.

    :class:`LeaseUnknown`, :class:`PaidRefused`: nothing changes.
    """
    if isinstance(message, Payment):
        raise LeaseUnknown("a consumer is paid nothing")
    if isinstance(message, Owes):
        terms, lease = message.terms, book.leases.get(message.terms)
        if lease is None:
            raise LeaseUnknown("a receipt of a lease that is not this consumer's")
        new = replace(lease, owed=max(lease.owed, message.owed))
    else:
        terms, lease = _of(book, message)
        message.verify(lease.adapter_vk)
        if message.amount > lease.owed:
            raise PaidRefused(f"{message.amount} were paid, {lease.owed} are owed")
        new = replace(lease, paid=max(lease.paid, message.amount))
    leases = {**book.leases, terms: new}
    paying = book.paying.pay({terms: new.wanted}, session)
    if paying == book.paying:
        return Outcome(PayerBook(paying, leases))
    return _paid(PayerBook(paying, leases))


def over(book: PayerBook, terms: bytes) -> PayerBook:
    """The lease owes nothing more: no more than what it does is kept for it. Changes nothing for
    one that is not here.
    """
    lease = book.leases.get(terms)
    if lease is None:
        return book
    left = replace(lease, reserve=min(lease.reserve, lease.owed))
    return replace(book, leases={**book.leases, terms: left})


def kept(book: PayerBook) -> int:
    """Lovelace that its leases may still put on the hop, fees included, beyond what is signed."""
    return sum(
        max(0, with_fee(one.reserve, one.route_bps) - book.paying.amount(terms))
        for terms, one in book.leases.items()
    )


def resume(book: PayerBook) -> tuple[Send, ...]:
    """After a crash or a lost connection: the last payment, the same bytes."""
    return _paid(book).effects


def _paid(book: PayerBook) -> Outcome[PayerBook]:
    last = book.paying.last
    return Outcome(book, (Send(book.paying.session_vk, last),) if last else ())


def _of(book: PayerBook, paid: Paid) -> tuple[bytes, Bought]:
    for terms, lease in book.leases.items():
        if (lease.lease_vk, lease.lease) == (paid.lease_vk, paid.lease):
            return terms, lease
    raise LeaseUnknown("a Paid of a lease that is not this consumer's")
