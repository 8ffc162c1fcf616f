"""What the market's own look at a rented relay found, told to both sides of its lease."""

from __future__ import annotations

from typing import Final

from marketplace.domain.protocol import wire
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Event, Job, Lease
from marketplace.market.context import Market

_SAID: Final = ("AT_TIP", "OFF_TIP")
_NEWEST: Final = 50


async def tell(market: Market, lease: Lease, job: Job, standing: str, why: str) -> None:
    """A line of the job's story, beside what the provider said last, and a word to the provider.
    Nothing is billed by it.
    """
    detail = {"standing": standing, "why": why, "provider_says": await _said(market, job)}
    event = market.event(job, "LOOKED", detail, lease.id)
    await market.store.apply(Change(puts=[event], topics=[f"job:{job.id}"]))
    market.providers.tell(lease.provider, wire.RelayLooked(lease.id, market.now, standing, why))


async def _said(market: Market, job: Job) -> str:
    """The provider's last word of it; empty where it gave none."""
    story = await market.store.find(Event, job=job.id, order=("-id",), limit=_NEWEST)
    return next((one.kind for one in story if one.kind in _SAID), "")
