"""A router's channel to this provider, and what it pays: the adapter's side of ``money/route``.

Its money is a channel like any other, found, claimed and ended by the same rules. What is special
is that its voucher is made of a leaf for each lease, and that each lease has receipts of its own.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from marketplace.domain.money.channel import Consts
from marketplace.domain.money.route import payee
from marketplace.domain.money.route.hop import Earning, Payment
from marketplace.domain.money.route.leaves import MOST_LEAVES
from marketplace.domain.money.route.payee import PayeeBook, Served

MOST_HOPS: Final = 16
"""At a time: a market cannot fill the journal, or the chain's door, with them."""
MOST_KNOWN: Final = 2 * MOST_LEAVES
"""Leases of one hop: those with a leaf, and as many that were proposed and came to nothing."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What a channel of a router has beside any other.

    *fixed*: its datum's constants, with *magic* and *asset* what it must be on chain; *index*: of
    the output of its open transaction. *leases*, by the hash of their terms: all that were agreed
    upon it, in order of admission; *last*: the payment that stands; *fork*: one that contradicts
    it, signed by the same key, after which nothing more is taken.
    """

    fixed: Consts
    magic: int
    asset: str
    index: int
    leases: Mapping[bytes, Served] = field(default_factory=dict[bytes, Served])
    last: Payment | None = None
    fork: Payment | None = None

    @property
    def session_vk(self) -> bytes:
        """The channel's id."""
        return self.fixed.session_vk

    @property
    def owner(self) -> bytes:
        """Hash of the key that the channel's rest goes home to: the router's."""
        return self.fixed.consumer_vkh

    def consts(self) -> Consts:
        """What its datum must say."""
        return self.fixed

    def book(self, capacity: int) -> PayeeBook:
        """The same for ``money/route/payee``, which decides; *capacity*: what may be signed."""
        return PayeeBook(Earning(self.session_vk, capacity, self.last), self.leases)

    def after(self, book: PayeeBook) -> Hop:
        """With what was decided, less the oldest leases that came to nothing, were there too
        many.
        """
        leases, last = book.leases, book.earning.last
        if len(leases) > MOST_KNOWN:
            paid = {leaf.terms for leaf in last.leaves} if last else set[bytes]()
            idle = [t for t, one in leases.items() if not one.reserve and t not in paid]
            gone = set(idle[: len(leases) - MOST_KNOWN])
            leases = {t: one for t, one in leases.items() if t not in gone}
        return replace(self, leases=leases, last=last)

    @property
    def due(self) -> int:
        """Lovelace that were delivered and signed for: of each lease the lesser."""
        return payee.due(self.book(0))

    @property
    def relied(self) -> int:
        """Lovelace of the channel that are spoken for by receipts or leaves: of each lease the
        greater.
        """
        leaves = {leaf.terms: leaf.amount for leaf in self.last.leaves} if self.last else {}
        return sum(max(leaves.get(t, 0), one.owed) for t, one in self.leases.items())

    def leaf(self, terms: bytes) -> int | None:
        """What is signed for a lease; None while it has no leaf."""
        leaves = () if self.last is None else self.last.leaves
        return next((one.amount for one in leaves if one.terms == terms), None)


@dataclass(frozen=True, slots=True)
class Routed:
    """How a lease is paid over *hop* (its session key). *terms*: the hash that its leaf is under;
    *reserve*: lovelace that the hop keeps for it. For the record: the *route* of its terms, the
    router's *signature* over that, and the *salt* that opens its commitment to the hop.
    """

    hop: bytes
    terms: bytes
    reserve: int
    route: bytes
    signature: bytes
    salt: bytes
