"""Which Cardano network a market's database belongs to: told once by its chain, remembered for
ever.

Leases, terms and sign-ins name the network. A database that was begun on one must never be served
on another; and a market whose chain is away at its start goes on with what is remembered here.
"""

from __future__ import annotations

from typing import Final

from marketplace.domain.errors import Conflict, Malformed
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Setting
from marketplace.market.context import Market

NETWORK: Final = "network.magic"


class NetworkDiffers(Malformed):
    """The chain that was named is another network than the database's."""

    code = "NETWORK_DIFFERS"
    remedy = "name a chain of the database's own network, or serve from another database (--db)"


async def remembered(market: Market) -> int | None:
    """The magic of this database's network; None before a chain was ever seen."""
    known = await market.store.get(Setting, NETWORK)
    return int(known.value) if known is not None else None


async def bind(market: Market, magic: int) -> None:
    """From now on the database is of network *magic*; :class:`NetworkDiffers` if it is of
    another.
    """
    known = await remembered(market)
    if known is None:
        try:
            await market.store.apply(Change(puts=[Setting(NETWORK, str(magic))]))
            return
        except Conflict:  # another process was first
            known = await remembered(market)
    if known != magic:
        raise NetworkDiffers(f"this database is of network {known}, the chain is network {magic}")
