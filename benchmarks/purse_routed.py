"""The hundred jobs of ``tally bench purse`` over a router: the consumer has one hop to it, and it
has one to each provider.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.purse_world import JOB, JOBS, ROUTER, Channel, World
from marketplace.chain.actions.session import finish_channels, top_up
from marketplace.chain.encoding import address as addresses
from marketplace.client.jobs.agreements import ROOM
from marketplace.domain.money.route.fee import with_fee
from marketplace.router.limits import Limits
from marketplace.router.supply import KEPT

LIMITS: Final = Limits()
PAID: Final = with_fee(JOB, LIMITS.route_bps)
"""A job with the router's fee."""
OTHERS: Final = LIMITS.end_together - 1
"""Consumers whose hops wait for their end when this one's does: then all go."""


async def _hop(world: World, whose: str = "consumer") -> Channel:
    """As a client opens one: for a job, the router's fees, and room."""
    hop = await world.open(ROUTER, PAID - JOB + LIMITS.hop_fee + ROOM, by=whose)
    hop.pay(LIMITS.hop_fee)
    world.route_fee += LIMITS.hop_fee
    return hop


async def _hops_out(world: World) -> None:
    """As the router opens those that are wanted within a minute: together."""
    await world.open_all(world.providers, LIMITS.hop_out + KEPT - JOB - world.reserve, "router")


async def _jobs(world: World, hop: Channel) -> None:
    """A hundred; the hop is filled up, with room, when it is short of one."""
    out = {one.provider: one for one in world.open_now if one.by == "router"}
    for number in range(JOBS):
        free = hop.amount - world.reserve - hop.signed
        if free < PAID:
            await _fill(world, hop, PAID - free + ROOM)
        hop.pay(PAID)
        out[world.provider_of(number)].pay(JOB)
        world.route_fee += PAID - JOB


async def _fill(world: World, hop: Channel, more: int) -> None:
    done = await top_up(world.consumer, await world.view(hop), more)
    world.paid("consumer", done.sent.fee)
    hop.amount += more
    hop.ref = replace(hop.ref, tx_id=done.sent.tx_id, index=0)
    world.look_locked()


async def _end(world: World, hops: Sequence[Channel]) -> None:
    """All in one transaction of the router's, as it sends it once so many wait or the first of them
    waited for long; the first one's share of its fee is counted.
    """
    finishes = [(await world.view(hop), hop.voucher) for hop in hops]
    payouts = {addresses.payout_hash(ROUTER.payout): ROUTER.payout}
    done = await finish_channels(world.till, finishes, payouts, ROUTER.end)
    share = -(-done.sent.fee // len(hops))
    world.paid("router", share)
    world.router_had -= done.sent.fee - share  # what the others' ends cost is theirs
    world.open_now = [one for one in world.open_now if one not in hops]


async def _begin(world: World) -> None:
    world.begin_counting()
    world.router_had = await world.router_worth()


async def cold(world: World) -> None:
    """A new consumer at a router that serves others: its hop is opened, and ended at its word."""
    await _hops_out(world)
    await _begin(world)
    hop = await _hop(world)
    await _jobs(world, hop)
    await _end(world, [hop])


async def cold_throughout(world: World) -> None:
    """The router has no hop either, opens one to each provider, and all end after these jobs, those
    to providers by the policy of every adapter.
    """
    await _hops_out(world)
    hop = await _hop(world)
    await _jobs(world, hop)
    await _end(world, [hop])
    await world.end_by_policy()


async def warm(world: World) -> None:
    """A second hundred over the same hops; the consumer's ends with others'."""
    await _hops_out(world)
    hop = await _hop(world)
    await _jobs(world, hop)
    others = [await _hop(world, "others") for _ in range(OTHERS)]
    await _begin(world)
    await _jobs(world, hop)
    await _end(world, [hop, *others])


async def warm_and_alone(world: World) -> None:
    """The same, and nobody else's hop came to its end while this one's waited."""
    await _hops_out(world)
    hop = await _hop(world)
    await _jobs(world, hop)
    await _begin(world)
    await _jobs(world, hop)
    await _end(world, [hop])


ROUTED: Final[Mapping[str, Callable[[World], Awaitable[None]]]] = {
    "routed, cold throughout": cold_throughout,
    "routed, cold": cold,
    "routed, warm, ended alone": warm_and_alone,
    "routed, warm": warm,
}
