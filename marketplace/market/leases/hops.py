"""What passes over a router's hops, between payers, the router and adapters: who may say it is
asked here, what it is worth the router decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.market.base.errors import NoRouter
from marketplace.market.base.records import Lease
from marketplace.market.base.routing import Router
from marketplace.market.context import Market
from marketplace.market.money import settle


def router_of(market: Market) -> Router:
    """The market's router; NoRouter."""
    if market.router is None:
        raise NoRouter("this market passes on no payments")
    return market.router


async def take_payment(market: Market, message: wire.HopPaid) -> None:
    """From a payer that speaks for the hop. A lease that it pays the last of ends."""
    for lease_id in await router_of(market).hop_paid(message):
        lease = await market.store.get(Lease, lease_id)
        if lease is None:
            continue
        market.paying.note(lease.session_vk)
        if market.book.may_be_over(lease.session_vk, lease_id):
            await settle.end_if_settled(market, lease_id)


async def take_end(market: Market, end: End) -> bool:
    """A consumer wants its hop ended; False if it is none."""
    return market.router is not None and await market.router.end(end)


def at_welcome(market: Market, provider: str) -> Sequence[wire.Message]:
    """What an adapter that just connected, and can serve over routes, is told of its hops."""
    return market.router.welcome(provider) if market.router is not None else ()


def at_subscription(market: Market, session_vk: bytes) -> Sequence[wire.Message]:
    """What a payer that just subscribed is told, if it is a hop that it speaks for."""
    said = market.router.resume(session_vk) if market.router is not None else ()
    for one in said:
        if isinstance(one, wire.PaidSent):
            market.told.note(one.lease, one.amount, market.now)
    return said


async def heard(
    market: Market,
    provider: str,
    message: wire.PaidSent | wire.HopRefused,
    owner: Callable[[str, str], Awaitable[object]],
) -> None:
    """What the adapter says of a hop. *owner* refuses a lease of another provider's."""
    router = router_of(market)
    if isinstance(message, wire.HopRefused):
        await router.hop_refused(provider, message)
        return
    await owner(provider, message.lease)
    await router.paid(provider, message)
