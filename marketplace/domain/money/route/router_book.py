"""What a router writes down: its hops, its leases, and how much of each hop is spoken for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marketplace.domain.money.route.fee import with_fee
from marketplace.domain.money.route.hop import Earning, Paying
from marketplace.domain.money.route.leaves import MOST_LEAVES, Leaf
from marketplace.domain.money.route.messages import HeadroomShort, LeaseUnknown
from marketplace.domain.money.route.paid import Paid


@dataclass(frozen=True)
class Carried:
    """One lease: its two hops (session keys), its fee, its *reserve*; *owed* by its last receipt,
    *paid* by the provider's last word.
    """

    lease: str
    lease_vk: bytes
    adapter_vk: bytes
    hop_in: bytes
    hop_out: bytes
    route_bps: int
    reserve: int
    owed: int = 0
    paid: Paid | None = None


@dataclass(frozen=True)
class RouterBook:
    """A router's hops by session key, its leases by the hash of their terms.

    *offer*: hash of what it offers; *first*: the leaf with which a hop in begins (its offer's hash,
    its fee), where that is another than *offer* for nothing. *room*: lovelace that each hop out can
    pay. *forked*: hops in that contradicted themselves: nothing more rests on them. *stopped*: hops
    in of which vouchers are taken, and nothing is passed on.
    """

    offer: bytes
    hops_in: Mapping[bytes, Earning]
    hops_out: Mapping[bytes, Paying]
    room: Mapping[bytes, int]
    leases: Mapping[bytes, Carried] = field(default_factory=dict[bytes, Carried])
    forked: frozenset[bytes] = frozenset()
    stopped: frozenset[bytes] = frozenset()
    first: Mapping[bytes, Leaf] = field(default_factory=dict[bytes, Leaf])

    def begins(self, hop: bytes) -> Leaf:
        """The leaf with which the payments of a hop in begin."""
        return self.first.get(hop, Leaf(self.offer, 0))

    def spoken_for(self, hop: bytes) -> int:
        """Lovelace of a hop in that were paid, or that its leases may still put on it."""
        into = self.hops_in[hop]
        rest = [
            max(_most(one) - into.amount(key), 0)
            for key, one in self.leases.items()
            if one.hop_in == hop
        ]
        return into.total + sum(rest) + (0 if into.last else self.begins(hop).amount)

    def reserved(self, hop: bytes) -> int:
        """The same of a hop out."""
        out = self.hops_out[hop]
        rest = [
            max(one.reserve - out.amount(key), 0)
            for key, one in self.leases.items()
            if one.hop_out == hop
        ]
        return out.total + sum(rest)

    def due(self, hop: bytes) -> int:
        """What of a hop in may be claimed: of each leaf no more than its lease owes with the fee,
        and of the first what the router's offer asks.
        """
        found, last = 0, self.hops_in[hop].last
        for leaf in last.leaves if last is not None else ():
            lease = self.leases.get(leaf.terms)
            most = self.begins(hop).amount if lease is None else _due(lease)
            found += min(leaf.amount, most)
        return found


def room_for(book: RouterBook, lease: Carried) -> None:
    """:class:`HeadroomShort` if either hop cannot pay the reserve of *lease* beside those of the
    others, or has as many leaves as a hop may have; :class:`LeaseUnknown` for a hop that cannot be
    relied on.
    """
    into, out = book.hops_in.get(lease.hop_in), book.hops_out.get(lease.hop_out)
    if into is None or out is None or lease.hop_in in book.forked | book.stopped:
        raise LeaseUnknown("a lease over a hop that this router does not have, or that stopped")
    _fits(into.capacity - book.spoken_for(lease.hop_in), _most(lease))
    _fits(book.room[lease.hop_out] - book.reserved(lease.hop_out), lease.reserve)
    over_in = sum(one.hop_in == lease.hop_in for one in book.leases.values())
    over_out = sum(one.hop_out == lease.hop_out for one in book.leases.values())
    if max(over_in + 1, over_out) >= MOST_LEAVES:
        raise HeadroomShort(f"a hop has at most {MOST_LEAVES} leaves", free=0)


def _due(lease: Carried) -> int:
    return with_fee(lease.owed, lease.route_bps)


def _most(lease: Carried) -> int:
    """What a lease may put on its hop in."""
    return with_fee(lease.reserve, lease.route_bps)


def _fits(free: int, needed: int) -> None:
    if free < needed:
        raise HeadroomShort(f"{free} are free, the lease reserves {needed}", free=free)
