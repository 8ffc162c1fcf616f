"""A lease that a router pays: what is signed for it, what it owes, and what its hop keeps for it.

Two ticks are risked with each, by itself: its leaf is its own, and no other lease's money pays for
it. ``money/route/payee`` decides, over the hop as the adapter's own door to the chain shows it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from adapter.core.draft import Draft
from adapter.core.state import Channel, Lease, State
from marketplace.domain.money.route import payee
from marketplace.domain.money.route.messages import Send
from marketplace.domain.money.route.paid import Paid
from marketplace.domain.money.route.payee import PayeeBook
from marketplace.domain.protocol import wire


def signed(lease: Lease, channel: Channel) -> int:
    """Lovelace that are signed for: in the lease's leaf, or in the voucher of its channel."""
    if lease.routed is None or channel.hop is None:
        return channel.paid
    return channel.hop.leaf(lease.routed.terms) or 0


def unpaid(lease: Lease, channel: Channel) -> int:
    """Lovelace that are owed and not signed for, by the lease or by all of its channel."""
    owed = channel.owed if lease.routed is None else lease.owed
    return max(0, owed - signed(lease, channel))


def room(lease: Lease, channel: Channel, amount: int) -> int:
    """The most that *lease* may owe in all on a channel that may pay *amount* in all."""
    if lease.routed is None:
        return min(lease.terms.ceiling, amount - (channel.owed - lease.owed))
    others = channel.relied - max(lease.owed, signed(lease, channel))
    return min(lease.terms.ceiling, lease.routed.reserve, amount - others)


def committed(lease: Lease, channel: Channel) -> bool:
    """Whether the router has signed for the lease, be it for nothing yet."""
    if lease.routed is None or channel.hop is None:
        return False
    return channel.hop.leaf(lease.routed.terms) is not None


def payer(state: State, lease: Lease) -> bytes:
    """Hash of the key that answers for the lease's payment: its consumer's, or its router's."""
    channel = state.channels.get(lease.channel)
    if lease.routed is None or channel is None or channel.hop is None:
        return lease.terms.consumer_vkh
    return channel.hop.owner


def named(state: State, key: bytes) -> bool:
    """Whether *key* is that of any lease's receipts here."""
    return key in keys(state) or any(one.terms.session_vk == key for one in state.leases.values())


def keys(state: State) -> Iterator[bytes]:
    """The keys of routed leases, over or not: each names one chain of receipts."""
    for lease in state.leases.values():
        if lease.routed is not None:
            yield lease.terms.session_vk
    for channel in state.channels.values():
        if channel.hop is not None:
            yield from (one.lease_vk for one in channel.hop.leases.values())


# ---- what changes --------------------------------------------------------------------------------


def owes(draft: Draft, lease: Lease, owed: int) -> None:
    """A receipt over *owed* was signed: the hop's book has it in the same breath."""
    channel = draft.channel_of(lease)
    if lease.routed is None or channel is None or channel.hop is None:
        return
    book = channel.hop.book(channel.capacity)
    done = payee.owes(book, lease.routed.terms, owed, draft.own.signer)
    kept(draft, channel, done.state)
    say(draft, done.effects)


def release(draft: Draft, lease: Lease) -> None:
    """The lease is over, or came to nothing: its hop keeps for it what it owes, no more."""
    channel = draft.state.channels.get(lease.channel)
    if lease.routed is None or channel is None or channel.hop is None:
        return
    if lease.routed.terms in channel.hop.leases:
        kept(draft, channel, payee.over(channel.hop.book(channel.capacity), lease.routed.terms))


def kept(draft: Draft, channel: Channel, book: PayeeBook) -> Channel:
    """The channel with what was decided of its hop."""
    assert channel.hop is not None
    last = book.earning.last
    voucher = channel.voucher if last is None else last.voucher
    return draft.put_channel(replace(channel, hop=channel.hop.after(book), voucher=voucher))


def say(draft: Draft, effects: tuple[Send, ...], *, durable: bool = True) -> None:
    """Tell the market what was paid; it is on disk before."""
    for effect in effects:
        if isinstance(effect.message, Paid):
            one = effect.message
            draft.send(wire.PaidSent(one.lease, one.amount, one.signature), durable)
