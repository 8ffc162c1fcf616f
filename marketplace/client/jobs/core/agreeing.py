"""The steps by which a checked quote is agreed to, told from the own books.  Pure.

First :func:`freezes`: what earlier leases of the job may still be approved for is nothing, so that
their sum stands still. Then :func:`steps`. Whoever dies between any two of them begins again with
both: what the books show as done is not among the steps any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from marketplace.client.jobs.core.effects import (
    Allow,
    BeginRoute,
    ExpectRoute,
    KeepBook,
    KeepOpen,
    OpenChannel,
    Sign,
    Step,
    TellMarket,
    TopUp,
)
from marketplace.client.jobs.core.quotes import CheckedQuote, QuoteRefused
from marketplace.client.jobs.core.state import OwnChannel, OwnLease
from marketplace.client.payer.decide import Book
from marketplace.domain.money.terms import Terms


def freezes(offered: CheckedQuote, channels: Sequence[OwnChannel]) -> tuple[Allow, ...]:
    """Earlier leases of the job get nothing more for now.

    A provider that was given up may come back, or never have gone: what it then asks is not signed
    beyond the budget, however long its lease is said to run.
    """
    return tuple(
        Allow(channel.session_vk, one.lease, 0) for channel, one in _earlier(offered, channels)
    )


def steps(
    offered: CheckedQuote, channels: Sequence[OwnChannel], budget: int, elsewhere: int
) -> tuple[Step, ...]:
    """What is still to be done, once earlier leases stand still. *elsewhere*: lovelace approved for
    the job on channels that this process does not hold. :class:`QuoteRefused` if what was spent
    meanwhile and the ceiling exceed *budget*.
    """
    terms = offered.quote.terms
    todo: list[Step] = []
    earlier = _earlier(offered, channels)
    if earlier:
        left = budget - terms.ceiling - sum(one.approved for _, one in earlier) - elsewhere
        if left < 0:
            raise QuoteRefused("what was spent meanwhile and the ceiling exceed the budget")
        last, lease = earlier[-1]
        todo.append(Allow(last.session_vk, lease.lease, left))
    mine = next((one for one in channels if one.session_vk == terms.session_vk), None)
    todo.append(KeepBook())
    route = offered.quote.route
    cap = terms.ceiling if route is None else route.cap(budget - offered.spent)
    if mine is None or all(one.lease != terms.lease for one in mine.leases):
        todo.append(Sign(cap))
    if route is not None:
        return (*todo, ExpectRoute(), TellMarket(), BeginRoute())
    if offered.fresh and (mine is None or not mine.open_tx):
        todo.append(OpenChannel(offered.amount))
    elif not offered.fresh and offered.amount:
        todo.append(TopUp(offered.amount))
    return (*todo, KeepOpen(offered.keep_ms), TellMarket())


def lacking(book: Book, final: Collection[str], terms: Terms) -> int:
    """Lovelace by which the kept channel of *book* has to be topped up, so that it can pay the new
    ceiling of *terms*: never by more than that, whatever the provider states or the chain's door
    says that the channel holds. *final*: its leases that are over.
    """
    if book.capacity is None:
        return 0
    open_ceilings = sum(
        lease.cap - lease.approved
        for name, lease in book.leases.items()
        if name not in final and name != terms.lease
    )
    last = book.last  # the provider counts what it stated, signed or not
    stated = last.channel_owed if last is not None else 0
    agreed = sum(lease.terms.ceiling for lease in book.leases.values())
    used = max(book.spent, min(stated, agreed))
    mine = book.leases.get(terms.lease)  # one that is renewed had a part of its ceiling
    ahead = terms.ceiling - (mine.approved if mine is not None else 0)
    needed = used + open_ceilings + ahead
    return min(terms.ceiling, max(0, needed - book.capacity))


def _earlier(
    offered: CheckedQuote, channels: Sequence[OwnChannel]
) -> list[tuple[OwnChannel, OwnLease]]:
    now = offered.quote.terms.lease
    return [(channel, one) for channel in channels for one in channel.leases if one.lease != now]
