"""``tally bench route``: what each party of a routed lease can lose, in ticks, by who lies.

Worlds of :mod:`benchmarks.route_world`: the books of consumer, router and provider with real
signatures, crashes and lost connections. Every world is checked in every state; the first in which
something does not hold ends the run and is named, so that it can be run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.route_world import LIARS, Broken, outcome_of


@dataclass
class Losses:
    """The worst over the worlds of one liar. Ticks x 1000, as ticks differ by lease; *router*:
    lovelace.
    """

    liar: str
    worlds: int = 0
    ticks_served: int = 0
    provider_milliticks: int = 0
    consumer_milliticks: int = 0
    router: int = 0
    refused: int = 0


def measure(liar: str, worlds: int, seed: str = "route") -> Losses:
    """The losses over *worlds* worlds in which *liar* lies; :class:`Broken` names a world."""
    found = Losses(liar)
    for number in range(worlds):
        name = f"{seed} {number}"
        try:
            world = outcome_of(name, liar)
        except Broken as broken:
            raise Broken(f"{broken} (world {name!r}, {liar})") from broken
        found.worlds += 1
        found.router = max(found.router, world.lost())
        found.refused += sum(world.refused.values())
        for one in world.leases:
            found.ticks_served += world.served(one).owed // one.tick
            unpaid = world.unpaid(one) * 1000 // one.tick
            found.provider_milliticks = max(found.provider_milliticks, unpaid)
            if world.honest(one.consumer):
                signed = world.unconfirmed(one) * 1000 // one.tick
                found.consumer_milliticks = max(found.consumer_milliticks, signed)
    return found


def main(argv: Sequence[str]) -> int:
    """0; 1 if an invariant did not hold in some world."""
    parser = argparse.ArgumentParser(prog="tally bench route", description=__doc__)
    parser.add_argument("--worlds", type=int, default=20, help="for each liar")
    parser.add_argument("--seed", default="route")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    began = time.monotonic()
    try:
        rows = [measure(liar, given.worlds, given.seed) for liar in LIARS]
    except Broken as broken:
        print(broken)
        return 1
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    print(f"{'who lies':26}{'worlds':>8}{'ticks':>8}{'provider':>10}{'consumer':>10}{'router':>8}")
    for row in rows:
        provider, consumer = row.provider_milliticks / 1000, row.consumer_milliticks / 1000
        print(
            f"{row.liar:26}{row.worlds:8}{row.ticks_served:8}{provider:10.1f}{consumer:10.1f}"
            f"{row.router:8}"
        )
    print(f"lost at most, in ticks (router: lovelace); {time.monotonic() - began:.1f} s")
    return 0
