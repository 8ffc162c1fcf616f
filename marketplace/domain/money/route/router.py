"""The router's book: of each lease it signs no more to the provider than the consumer signed to it
for the same lease, less its fee, and no more than the lease owes. So it risks nothing.

The rule holds for each lease by itself and is never summed over leases: one consumer's payment can
never pay for another's lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from marketplace.domain.keys import Signer
from marketplace.domain.money.route.fee import reach, with_fee
from marketplace.domain.money.route.hop import Earning, HopForked, Paying, Payment
from marketplace.domain.money.route.messages import (
    HeadroomShort,
    LeaseUnknown,
    Message,
    Outcome,
    Owes,
    Send,
)
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.statement import StatementRefused


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

    *offer*: hash of what it offers: the first leaf of every hop in. *room*: lovelace that each hop
    out can pay. *forked*: hops in that contradicted themselves: nothing more rests on them.
    """

    offer: bytes
    hops_in: Mapping[bytes, Earning]
    hops_out: Mapping[bytes, Paying]
    room: Mapping[bytes, int]
    leases: Mapping[bytes, Carried] = field(default_factory=dict[bytes, Carried])
    forked: frozenset[bytes] = frozenset()


def admit(
    book: RouterBook, terms: bytes, lease: Carried, keys: Mapping[bytes, Signer]
) -> Outcome[RouterBook]:
    """With *lease* and its leaf of 0 on the hop out; *keys*: of the hops out.

    :class:`HeadroomShort` if either hop cannot pay its reserve beside those of the others.
    """
    into, out = book.hops_in.get(lease.hop_in), book.hops_out.get(lease.hop_out)
    if into is None or out is None or lease.hop_in in book.forked:
        raise LeaseUnknown("a lease over a hop that this router does not have, or that forked")
    kept = [(key, one) for key, one in book.leases.items() if one.hop_in == lease.hop_in]
    rest = sum(max(_most(one) - into.amount(key), 0) for key, one in kept)
    _fits(into.capacity - into.total - rest, _most(lease))
    kept = [(key, one) for key, one in book.leases.items() if one.hop_out == lease.hop_out]
    rest = sum(max(one.reserve - out.amount(key), 0) for key, one in kept)
    _fits(book.room[lease.hop_out] - out.total - rest, lease.reserve)
    return _pass_on(replace(book, leases={**book.leases, terms: lease}), [terms], keys)


def decide(book: RouterBook, message: Message, keys: Mapping[bytes, Signer]) -> Outcome[RouterBook]:
    """What follows from a provider's receipt or Paid, or a consumer's payment; *keys* as above.

    A payment that contradicts an earlier one marks its hop and nothing more: what rests on it
    stays as it is. Other refusals change nothing.
    """
    if isinstance(message, Owes):
        lease = book.leases.get(message.terms)
        if lease is None:
            raise LeaseUnknown("a receipt of a lease that this router does not carry")
        new = replace(lease, owed=max(lease.owed, message.owed))
        state = replace(book, leases={**book.leases, message.terms: new})
        done = _pass_on(state, [message.terms], keys)
        told = Send(lease.hop_in, Owes(message.terms, new.owed))
        return replace(done, effects=(told, *done.effects))
    if isinstance(message, Payment):
        return _earn(book, message, keys)
    for terms, lease in book.leases.items():
        if (lease.lease_vk, lease.lease) == (message.lease_vk, message.lease):
            message.verify(lease.adapter_vk)
            if lease.paid is not None and message.amount < lease.paid.amount:
                return Outcome(book)
            state = replace(book, leases={**book.leases, terms: replace(lease, paid=message)})
            return Outcome(state, (Send(lease.hop_in, message),))
    raise LeaseUnknown("a Paid of a lease that this router does not carry")


def resume(book: RouterBook) -> tuple[Send, ...]:
    """After a crash or a lost connection: every last payment, receipt and Paid, the same bytes."""
    found = [Send(hop, one.last) for hop, one in book.hops_out.items() if one.last]
    for terms, lease in book.leases.items():
        found += [Send(lease.hop_in, Owes(terms, lease.owed))] if lease.owed else []
        found += [Send(lease.hop_in, lease.paid)] if lease.paid else []
    return tuple(found)


def _earn(book: RouterBook, payment: Payment, keys: Mapping[bytes, Signer]) -> Outcome[RouterBook]:
    hop = payment.voucher.session_vk
    earning = book.hops_in.get(hop)
    if earning is None or hop in book.forked:
        raise LeaseUnknown("a payment over a hop that this router does not have, or that forked")
    mine = [key for key, one in book.leases.items() if one.hop_in == hop]
    payment.check_leaves({book.offer, *mine})
    try:
        new = earning.take(payment)
    except HopForked:
        return Outcome(replace(book, forked=book.forked | {hop}))
    if payment.leaves[0].terms != book.offer:
        raise StatementRefused("the first leaf is not the router's offer")
    return _pass_on(replace(book, hops_in={**book.hops_in, hop: new}), mine, keys)


def _pass_on(
    book: RouterBook, leases: Iterable[bytes], keys: Mapping[bytes, Signer]
) -> Outcome[RouterBook]:
    """Each hop out pays what its leases' consumers paid: one statement a hop, for many leases."""
    wanted: dict[bytes, dict[bytes, int]] = {}
    for terms in leases:
        lease = book.leases[terms]
        came = book.hops_in[lease.hop_in].amount(terms)
        amount = min(lease.owed, lease.reserve, reach(came, lease.route_bps))
        wanted.setdefault(lease.hop_out, {})[terms] = amount
    effects: list[Send] = []
    for hop, amounts in wanted.items():
        before = book.hops_out[hop]
        after = before.pay(amounts, keys[hop])
        if after != before and after.last is not None:
            book = replace(book, hops_out={**book.hops_out, hop: after})
            effects.append(Send(hop, after.last))
    return Outcome(book, tuple(effects))


def _most(lease: Carried) -> int:
    """What a lease may put on its hop in."""
    return with_fee(lease.reserve, lease.route_bps)


def _fits(free: int, needed: int) -> None:
    if free < needed:
        raise HeadroomShort(f"{free} are free, the lease reserves {needed}", free=free)
