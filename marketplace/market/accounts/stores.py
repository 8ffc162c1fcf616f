"""An account's stores of the market's own: what is in them, leave to use them, and that they go.

What is in a store is encrypted by its owner's side, and so says nothing to who has leave alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from marketplace.domain.errors import NotFound
from marketplace.domain.work.cluster_store import HEARD_S, StorePass, StorePlace, id_of
from marketplace.market.accounts.access import Caller, audit
from marketplace.market.base.errors import StoreInUse, StoreNone
from marketplace.market.base.ports import Change, OwnStores, StoreHeld
from marketplace.market.base.records import KeptStore, Record
from marketplace.market.context import Market

LENT_MS: Final = 3_600_000
"""Leave is given for so long."""
_UNTOLD_MS: Final = HEARD_S * 1000
"""Of a lease that asked for its store so lately the server may not have been told yet."""


async def known(
    market: Market, who: Caller, after: tuple[object, ...] | None, limit: int
) -> list[KeptStore]:
    """The stores that the account's clusters named, by name; StoreNone."""
    _own(market)
    return await market.store.find(
        KeptStore, account=who.account, order=("name",), after=after, limit=limit
    )


async def held(market: Market, those: Iterable[KeptStore]) -> list[tuple[KeptStore, StoreHeld]]:
    """Those of them that are there, and what is in each. StoreNone, Fault."""
    _, server = _own(market)
    asked = [(one, await server.held(id_of(one.account, one.name))) for one in those]
    return [(one, found) for one, found in asked if found is not None]


async def lend(market: Market, who: Caller, name: str) -> tuple[StorePass, int]:
    """(leave to read and write the account's store *name*, until when in ms). StoreNone, Forbidden,
    NotFound: no cluster named it, so nobody is given room that no lease was paid for.
    """
    place, _ = _own(market)
    who.may("blobs")
    await _named(market, who, name)
    until_s = (market.now + LENT_MS) // 1000
    await market.store.apply(Change(puts=[audit(market, who, "store.lend", name, {})]))
    return place.lend(who.account, name, until_s), until_s * 1000


async def remove(market: Market, who: Caller, name: str) -> None:
    """The account's store *name* goes with all that is in it, if its server has it still.
    StoreNone, Forbidden, NotFound, StoreInUse, Fault.
    """
    _, server = _own(market)
    who.may("blobs")
    known = await _named(market, who, name)
    if market.now - known.used_ms < _UNTOLD_MS:
        raise StoreInUse(f"a member of a cluster asked for {name} within half a minute")
    await server.remove(id_of(who.account, name))
    again = await market.store.get(KeptStore, who.account, name)
    drops: list[Record] = [known] if again == known else []  # else a cluster began to use it
    note = audit(market, who, "store.remove", name, {})
    await market.store.apply(Change(drops=drops, puts=[note]))


async def _named(market: Market, who: Caller, name: str) -> KeptStore:
    known = await market.store.get(KeptStore, who.account, name)
    if known is None:
        raise NotFound(f"no cluster of yours used a store {name} here")
    return known


def _own(market: Market) -> tuple[StorePlace, OwnStores]:
    if market.stores is None or market.own_stores is None:
        raise StoreNone("this market keeps no stores")
    return market.stores, market.own_stores
