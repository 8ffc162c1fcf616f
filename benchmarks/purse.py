"""What a hundred small jobs at twenty providers cost one consumer's purse and everybody else.

The jobs' seconds are not waited for: what each delivered is signed for by its session key, as a
payer does. Every transaction is real: built, signed and sent as the product does it, and accepted
by the devnet's ledger. What each party paid and got is read from the ledger's balances.

A way to pay is a function of a :class:`~benchmarks.purse_world.World`; one more row is one more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import anyio

from benchmarks.purse_page import GATES, write
from benchmarks.purse_routed import ROUTED
from benchmarks.purse_world import JOB, JOBS, World, begun

Way = Callable[[World], Awaitable[None]]
_CLOCK_MS: Final = 1_800_000_000_000


@dataclass(frozen=True)
class Row:
    """One way to pay. Money in lovelace: *locked* is the most that stood in channels at a time,
    *least_net* what the provider that fared worst has more than before; *route_fee*: what the
    router asks, apart from the network's fees, *router_net* what it has more than before.
    """

    way: str
    transactions: int
    consumer_fees: int
    provider_fees: int
    market_fees: int
    locked: int
    least_net: int
    net: int
    billed: int
    router_fees: int
    router_net: int
    route_fee: int

    @property
    def fees(self) -> int:
        """All that the network took."""
        return self.consumer_fees + self.provider_fees + self.market_fees + self.router_fees

    @property
    def bps(self) -> int:
        """Hundredths of a per cent that the fees are of what was billed."""
        return self.fees * 10_000 // self.billed


async def a_channel_each(world: World) -> None:
    """As it was: each job opens a channel, and its provider ends it alone."""
    for number in range(JOBS):
        channel = await world.open(world.provider_of(number), room=0)
        channel.pay(JOB)
        await world.end_alone(channel)


async def a_channel_each_by_policy(world: World) -> None:
    """The same, but no end is made at a loss: what it brings is less than it costs."""
    for number in range(JOBS):
        (await world.open(world.provider_of(number), room=0)).pay(JOB)
    await world.end_by_policy()


async def kept_cold(world: World) -> None:
    """The first job at a provider opens; the channel ends once it was idle."""
    await world.jobs()
    await world.end_by_policy()


async def kept_warm(world: World) -> None:
    """A second hundred on the same channels: their ends count, their opens do not."""
    await world.jobs()
    world.begin_counting()
    await world.jobs()
    await world.end_by_policy()


async def kept_warm_and_open(world: World) -> None:
    """The same, and the channels stay for a third."""
    await world.jobs()
    world.begin_counting()
    await world.jobs()


WAYS: Final[Mapping[str, Way]] = {
    "a channel a job, ended alone": a_channel_each,
    "a channel a job, ended by the policy": a_channel_each_by_policy,
    "kept, cold": kept_cold,
    "kept, warm": kept_warm,
    "kept, warm, left open": kept_warm_and_open,
    **ROUTED,
}


async def _measured(served: object, name: str, way: Way) -> Row:
    world = await begun(served)
    await way(world)
    told = await world.told()
    return Row(name, **told)


def run(ways: Sequence[str] = tuple(WAYS)) -> list[Row]:
    """A row for each of *ways*, each on a fresh devnet."""
    from contracts.devnet.server import serve  # only this command and the tests run a ledger

    rows: list[Row] = []
    for name in ways:
        with serve(block_ms=0, clock=lambda: _CLOCK_MS) as served:
            rows.append(anyio.run(_measured, served, name, WAYS[name]))
    return rows


def main(argv: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tally bench purse", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the rows as one JSON list")
    parser.add_argument("--markdown", action="store_true", help="rewrite them in docs/costs.md")
    parser.add_argument("--way", action="append", choices=tuple(WAYS), help="only this one")
    chosen = parser.parse_args(list(argv))
    rows = run(tuple(chosen.way or WAYS))
    told = [{**asdict(row), "bps": row.bps} for row in rows]
    if chosen.markdown:
        write(told)
    if chosen.json:
        print(json.dumps(told))
    else:
        for one in told:
            print(json.dumps(one))
    return 0 if all(row.bps <= GATES.get(row.way, row.bps) for row in rows) else 1
