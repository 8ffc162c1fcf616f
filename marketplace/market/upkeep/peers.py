"""Where the other processes of this market answer.

A provider's connection ends at one process. What needs it (a command in the workload, a port, an
output, live samples) is passed on to that process; everything else crosses by the store.
"""

from __future__ import annotations

from typing import Final

from marketplace.domain.errors import Conflict
from marketplace.market.base.ports import Change
from marketplace.market.base.records import OfferRecord, Setting
from marketplace.market.context import Market

_PREFIX: Final = "process."


async def announce(market: Market, url: str) -> None:
    """The other processes reach this one at *url* (no slash at its end)."""
    try:
        await market.store.apply(Change(puts=[Setting(_PREFIX + market.process, url)]))
    except Conflict:
        return  # said already


async def withdraw(market: Market, *processes: str) -> None:
    """These processes are gone."""
    drops = [Setting(_PREFIX + name, "") for name in processes]
    if drops:
        await market.store.apply(Change(drops=[*drops]))


async def holder(market: Market, provider: str) -> tuple[str, str]:
    """(process, URL) of another process that holds *provider*'s connection; empty when none does,
    and an empty URL when it told none.
    """
    found = await market.store.find(OfferRecord, provider=provider, limit=1)
    if not found or found[0].away_ms or found[0].process in ("", market.process):
        return "", ""
    told = await market.store.get(Setting, _PREFIX + found[0].process)
    return found[0].process, told.value if told is not None else ""
