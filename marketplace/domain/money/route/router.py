"""The router's book: of each lease it signs no more to the provider than the consumer signed to it
for the same lease, less its fee, and no more than the lease owes. So it risks nothing.

The rule holds for each lease by itself and is never summed over leases: one consumer's payment can
never pay for another's lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from marketplace.domain.errors import Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.route.fee import reach
from marketplace.domain.money.route.hop import HopForked, Payment
from marketplace.domain.money.route.messages import (
    LeaseUnknown,
    Message,
    Outcome,
    Owes,
    Send,
)
from marketplace.domain.money.route.router_book import Carried, RouterBook, room_for
from marketplace.domain.money.route.statement import StatementRefused


def admit(
    book: RouterBook, terms: bytes, lease: Carried, keys: Mapping[bytes, Signer]
) -> Outcome[RouterBook]:
    """With *lease* and its leaf of 0 on the hop out; *keys*: of the hops out. Refusals of
    :func:`room_for`.
    """
    room_for(book, lease)
    if lease.hop_out not in keys:
        raise LeaseUnknown("a lease over a hop that nothing is signed for now")
    return _pass_on(replace(book, leases={**book.leases, terms: lease}), [terms], keys)


def over(book: RouterBook, terms: bytes) -> RouterBook:
    """The lease will owe no more than by its last receipt: what was reserved beyond is free."""
    lease = book.leases[terms]
    return _with(book, terms, replace(lease, reserve=min(lease.reserve, lease.owed)))


def go_on(
    book: RouterBook, hops: Iterable[bytes], keys: Mapping[bytes, Signer]
) -> Outcome[RouterBook]:
    """Nothing of *hops* (in, or out) is held up any more: what came in for them is passed on."""
    wanted = frozenset(hops)
    book = replace(book, stopped=book.stopped - wanted)
    mine = [key for key, one in book.leases.items() if {one.hop_in, one.hop_out} & wanted]
    return _pass_on(book, mine, keys)


def decide(book: RouterBook, message: Message, keys: Mapping[bytes, Signer]) -> Outcome[RouterBook]:
    """What follows from a provider's receipt or Paid, or a consumer's payment; *keys* as above.

    A payment that contradicts an earlier one marks its hop and nothing more: what rests on it
    stays as it is. Other refusals change nothing.
    """
    state, leases, told = _hear(book, message)
    done = _pass_on(state, leases, keys)
    return replace(done, effects=(*told, *done.effects))


def decide_all(
    book: RouterBook, messages: Sequence[Message], keys: Mapping[bytes, Signer]
) -> tuple[Outcome[RouterBook], dict[int, Refusal]]:
    """The same for many at once, with one statement a hop out; which were refused, by position: a
    refused one holds up no other.
    """
    leases: dict[bytes, None] = {}
    effects: list[Send] = []
    refused: dict[int, Refusal] = {}
    for at, message in enumerate(messages):
        try:
            book, touched, told = _hear(book, message)
        except Refusal as refusal:
            refused[at] = refusal
            continue
        leases |= dict.fromkeys(touched)
        effects += told
    done = _pass_on(book, leases, keys)
    return replace(done, effects=(*effects, *done.effects)), refused


def _hear(book: RouterBook, message: Message) -> tuple[RouterBook, list[bytes], tuple[Send, ...]]:
    """The book with *message*, the leases for which something may be passed on, what is told."""
    if isinstance(message, Payment):
        return _earn(book, message)
    if isinstance(message, Owes):
        lease = book.leases.get(message.terms)
        if lease is None:
            raise LeaseUnknown("a receipt of a lease that this router does not carry")
        new = replace(lease, owed=max(lease.owed, message.owed))
        told = Send(lease.hop_in, Owes(message.terms, new.owed))
        return _with(book, message.terms, new), [message.terms], (told,)
    for terms, lease in book.leases.items():
        if (lease.lease_vk, lease.lease) == (message.lease_vk, message.lease):
            message.verify(lease.adapter_vk)
            if lease.paid is not None and message.amount < lease.paid.amount:
                return book, [], ()
            state = _with(book, terms, replace(lease, paid=message))
            return state, [], (Send(lease.hop_in, message),)
    raise LeaseUnknown("a Paid of a lease that this router does not carry")


def resume(book: RouterBook) -> tuple[Send, ...]:
    """After a crash or a lost connection: every last payment, receipt and Paid, the same bytes."""
    found = [Send(hop, one.last) for hop, one in book.hops_out.items() if one.last]
    for terms, lease in book.leases.items():
        found += [Send(lease.hop_in, Owes(terms, lease.owed))] if lease.owed else []
        found += [Send(lease.hop_in, lease.paid)] if lease.paid else []
    return tuple(found)


def _earn(book: RouterBook, payment: Payment) -> tuple[RouterBook, list[bytes], tuple[Send, ...]]:
    hop = payment.voucher.session_vk
    earning = book.hops_in.get(hop)
    if earning is None or hop in book.forked:
        raise LeaseUnknown("a payment over a hop that this router does not have, or that forked")
    mine = [key for key, one in book.leases.items() if one.hop_in == hop]
    first = book.begins(hop)
    payment.check_leaves({first.terms, *mine})
    try:
        new = earning.take(payment)
    except HopForked:
        return replace(book, forked=book.forked | {hop}), [], ()
    if payment.leaves[0].terms != first.terms or payment.leaves[0].amount < first.amount:
        raise StatementRefused("the first leaf is not the router's offer, or less than its fee")
    return replace(book, hops_in={**book.hops_in, hop: new}), mine, ()


def _pass_on(
    book: RouterBook, leases: Iterable[bytes], keys: Mapping[bytes, Signer]
) -> Outcome[RouterBook]:
    """Each hop out pays what its leases' consumers paid: one statement a hop, for many leases. A
    hop out without a key waits, and so does what a stopped hop in paid.
    """
    wanted: dict[bytes, dict[bytes, int]] = {}
    for terms in leases:
        lease = book.leases[terms]
        if lease.hop_in in book.stopped or lease.hop_out not in keys:
            continue
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


def _with(book: RouterBook, terms: bytes, lease: Carried) -> RouterBook:
    return replace(book, leases={**book.leases, terms: lease})
