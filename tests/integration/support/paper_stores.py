"""A server of stores on paper, where no test asks what one does: each store is there, and goes."""

from __future__ import annotations

from marketplace.domain.work.cluster_store import StorePlace
from marketplace.market.base.ports import Change, StoreHeld
from marketplace.market.base.records import KeptStore
from marketplace.market.context import Market


class PaperStores:
    """As ``OwnStores`` has it."""

    async def held(self, store: str) -> StoreHeld | None:
        return StoreHeld(5_000_000, 3, 1_700_000_000_000)

    async def remove(self, store: str) -> bool:
        return True


def on_paper(market: Market) -> None:
    """*market* keeps stores."""
    market.stores = StorePlace("https://stores.example", b"s" * 32)
    market.own_stores = PaperStores()


async def named(market: Market, account: str, name: str) -> None:
    """A cluster of the account's used one that is called so, a minute ago."""
    await market.store.apply(Change(raises=[KeptStore(account, name, market.now - 60_000)]))
