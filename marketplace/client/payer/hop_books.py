"""Whether a purse has a hop to a market's router, by its books alone: for whoever only reads."""

from __future__ import annotations

from pathlib import Path

from marketplace.client.net.link import market_of
from marketplace.client.payer.journal import channels_in, peek
from marketplace.client.payer.loaded import Loaded


def has_hop(folder: Path, market: str) -> bool:
    """Whether one of the books in *folder* is of a hop that pays jobs at *market*, an address."""
    return any(_pays(peek(folder, one), market) for one in channels_in(folder))


def _pays(loaded: Loaded, market: str) -> bool:
    facts = loaded.facts
    if facts is None or not facts.router or market_of(facts.market) != market_of(market):
        return False
    return facts.usable and not loaded.end_sent and not loaded.book.stopped
