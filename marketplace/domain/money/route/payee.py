"""The provider's book over a router: it serves two ticks beyond what is signed for, and says what
it was paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.hop import Earning, Payment
from marketplace.domain.money.route.messages import (
    HeadroomShort,
    LeaseUnknown,
    Message,
    Outcome,
    Owes,
    Send,
)
from marketplace.domain.money.route.paid import Paid

TICKS_UNPAID = 2
"""What a provider risks with each lease."""


@dataclass(frozen=True)
class Served:
    """One lease: *tick*: lovelace of one; *reserve*: what the hop keeps for it; *owed*: by the last
    receipt; *paid*: what the last Paid said.
    """

    lease: str
    lease_vk: bytes
    tick: int
    reserve: int
    owed: int = 0
    paid: int = 0


@dataclass(frozen=True)
class PayeeBook:
    """A router's hop to this provider, and the leases that it pays by the hash of their terms."""

    earning: Earning
    leases: Mapping[bytes, Served] = field(default_factory=dict[bytes, Served])


def admit(book: PayeeBook, terms: bytes, lease: Served) -> PayeeBook:
    """With *lease*; :class:`HeadroomShort` if the hop, by the provider's own look at its channel,
    cannot pay it beside what it reserves for others: a router's word is not asked.
    """
    leaves = _leaves(book)
    rest = sum(max(one.reserve - leaves.get(known, 0), 0) for known, one in book.leases.items())
    free = book.earning.capacity - book.earning.total - rest
    if free < lease.reserve:
        raise HeadroomShort(f"{free} are free, the lease reserves {lease.reserve}", free=free)
    return replace(book, leases={**book.leases, terms: lease})


def over(book: PayeeBook, terms: bytes) -> PayeeBook:
    """The lease has its last receipt: of its reserve only what it owes is kept. It stays known, as
    its leaf does.
    """
    lease = book.leases[terms]
    return replace(book, leases={**book.leases, terms: replace(lease, reserve=lease.owed)})


def due(book: PayeeBook) -> int:
    """Lovelace of the hop that are the provider's: of each lease what is signed and owed."""
    leaves = _leaves(book)
    return sum(min(leaves.get(terms, 0), one.owed) for terms, one in book.leases.items())


def may_serve(book: PayeeBook, terms: bytes) -> bool:
    """Whether one more tick of the lease stays within its reserve and two ticks of what is signed
    for.
    """
    lease = book.leases[terms]
    after = lease.owed + lease.tick
    return after <= lease.reserve and after - book.earning.amount(terms) <= (
        TICKS_UNPAID * lease.tick
    )


def meter(book: PayeeBook, terms: bytes) -> Outcome[PayeeBook]:
    """One tick was served, if :func:`may_serve`: its receipt; else it is paused, unbilled."""
    if not may_serve(book, terms):
        return Outcome(book)
    lease = book.leases[terms]
    new = replace(lease, owed=lease.owed + lease.tick)
    state = replace(book, leases={**book.leases, terms: new})
    return Outcome(state, (Send(book.earning.session_vk, Owes(terms, new.owed)),))


def owes(book: PayeeBook, terms: bytes, owed: int, adapter: Signer) -> Outcome[PayeeBook]:
    """A receipt says that the lease owes *owed* in all: what was signed beyond its last one may
    count now.
    """
    lease = replace(book.leases[terms], owed=owed)
    return _counted(replace(book, leases={**book.leases, terms: lease}), adapter)


def decide(book: PayeeBook, message: Message, adapter: Signer) -> Outcome[PayeeBook]:
    """What follows from the router's payment; its refusals change nothing."""
    if not isinstance(message, Payment):
        raise LeaseUnknown("a provider takes payments and nothing else from a router")
    message.check_leaves(book.leases.keys())
    return _counted(replace(book, earning=book.earning.take(message)), adapter)


def resume(book: PayeeBook, adapter: Signer) -> tuple[Send, ...]:
    """After a crash or a lost connection: each lease's last receipt and Paid, the same bytes."""
    hop = book.earning.session_vk
    owed = [Send(hop, Owes(terms, one.owed)) for terms, one in book.leases.items() if one.owed]
    paid = [_said(book, terms, adapter) for terms, one in book.leases.items() if one.paid]
    return (*owed, *paid)


def _counted(book: PayeeBook, adapter: Signer) -> Outcome[PayeeBook]:
    """A Paid for each lease of which more is signed and owed than its last one says."""
    leaves, more = _leaves(book), dict[bytes, Served]()
    for terms, lease in book.leases.items():
        paid = min(leaves.get(terms, 0), lease.owed)
        if paid > lease.paid:
            more[terms] = replace(lease, paid=paid)
    if not more:
        return Outcome(book)
    state = replace(book, leases={**book.leases, **more})
    return Outcome(state, tuple(_said(state, terms, adapter) for terms in more))


def _leaves(book: PayeeBook) -> Mapping[bytes, int]:
    last = book.earning.last
    return {} if last is None else {leaf.terms: leaf.amount for leaf in last.leaves}


def _said(book: PayeeBook, terms: bytes, adapter: Signer) -> Send:
    lease = book.leases[terms]
    said = Paid.sign(adapter, lease.lease_vk, lease.lease, lease.paid)
    return Send(book.earning.session_vk, said)
