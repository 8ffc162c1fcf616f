"""Series that are kept: how much of the market is in use, and which providers are there.

The matcher alone looks, once a minute; sums over looks are kept, so that a market that stood still
blames nobody for it. An hour's row each for the market, a day's row each for a provider; what is
older than :data:`KEPT_DAYS` is dropped.
"""

from __future__ import annotations

from typing import Any, Final

from marketplace.domain.errors import Conflict
from marketplace.domain.supply.offer import OfferState
from marketplace.domain.work.job_machine import JobState
from marketplace.market.base.ports import Change
from marketplace.market.base.records import InUseHour, Job, OfferRecord, PresenceDay
from marketplace.market.context import Market, log
from marketplace.market.state.in_use import in_use
from marketplace.market.state.reputes import DAY_MS

HOUR_MS: Final = 3_600_000
EVERY_S: Final = 60.0
KEPT_DAYS: Final = 90
GONE_MS: Final = 7 * DAY_MS  # away for longer is gone, and no longer looked for
MOST_PROVIDERS: Final = 10_000  # one look is one transaction
EXPECTED: Final = (OfferState.LISTED, OfferState.DRAINING, OfferState.AWAY)
"""Whose adapter should be there: who took its offer back, or was suspended, is not missed."""


async def look(market: Market) -> None:
    """One look, added to this hour's and this day's sums; nothing where another process matches."""
    if not market.epoch:
        return
    change = Change(fence=market.fence)
    await _count_use(market, change)
    await _count_presence(market, change)
    await _forget(market, change)
    try:
        await market.store.apply(change)
    except Conflict:  # another process matches by now, and looks
        log.info("sweep", what="a look was another's")


async def _count_use(market: Market, change: Change) -> None:
    now, store = market.now, market.store
    hour = now // HOUR_MS * HOUR_MS
    known = await store.get(InUseHour, hour)
    use = in_use(market.directory)
    running = await store.count(Job, state=(JobState.RUNNING, JobState.PAUSED))
    waiting = await store.count(Job, state=(JobState.POSTED, JobState.QUEUED))
    sums = known or InUseHour(hour)
    new = sums.but(
        looks=sums.looks + 1,
        offers=sums.offers + use.offers,
        gpu_milli=sums.gpu_milli + use.gpu_milli,
        gpu_milli_held=sums.gpu_milli_held + use.gpu_milli_held,
        core_milli=sums.core_milli + use.core_milli,
        core_milli_held=sums.core_milli_held + use.core_milli_held,
        running=sums.running + running,
        waiting=sums.waiting + waiting,
    )
    (change.puts if known is None else change.sets).append(new)


async def _count_presence(market: Market, change: Change) -> None:
    day, store = market.now // DAY_MS, market.store
    known = {p.provider: p for p in await store.find(PresenceDay, day=day, limit=MOST_PROVIDERS)}
    for offer in await store.find(OfferRecord, state=EXPECTED, limit=MOST_PROVIDERS):
        if offer.away_ms and market.now - offer.away_ms > GONE_MS:
            continue
        sums = known.get(offer.provider)
        there = 0 if offer.away_ms or not offer.process else 1
        if sums is None:
            change.puts.append(PresenceDay(offer.provider, day, 1, there))
        else:
            change.sets.append(sums.but(looks=sums.looks + 1, there=sums.there + there))


async def _forget(market: Market, change: Change) -> None:
    before = market.now // DAY_MS - KEPT_DAYS
    store = market.store
    change.drops += await store.find(PresenceDay, day__lt=before, limit=1000)
    change.drops += await store.find(InUseHour, at_ms__lt=before * DAY_MS, limit=1000)


async def utilisation(market: Market, days: int, width_ms: int) -> list[dict[str, Any]]:
    """The mean of each stretch of *width_ms* of the last *days* that had a look, the oldest
    first; thousandths, rounded down.
    """
    since = (market.now // DAY_MS - days + 1) * DAY_MS
    found: dict[int, InUseHour] = {}
    for hour in await market.store.find(InUseHour, at_ms__ge=since, order=("at_ms",), limit=10_000):
        at = hour.at_ms // width_ms * width_ms
        sums = found.get(at) or InUseHour(at)
        found[at] = sums.but(**{name: getattr(sums, name) + getattr(hour, name) for name in _SUMS})
    return [_means(one) for one in found.values()]


_SUMS: Final = (
    "looks", "offers", "gpu_milli", "gpu_milli_held", "core_milli", "core_milli_held", "running",
    "waiting",
)  # fmt: skip


def _means(sums: InUseHour) -> dict[str, Any]:
    looks = sums.looks
    return {
        "at_ms": sums.at_ms,
        "looks": looks,
        "offers_milli": sums.offers * 1000 // looks,
        "gpu_milli": sums.gpu_milli // looks,
        "gpu_milli_held": sums.gpu_milli_held // looks,
        "core_milli": sums.core_milli // looks,
        "core_milli_held": sums.core_milli_held // looks,
        "jobs_running_milli": sums.running * 1000 // looks,
        "jobs_waiting_milli": sums.waiting * 1000 // looks,
    }


async def presence(market: Market, provider: str, days: int = 30) -> list[dict[str, Any]]:
    """The days that had a look at *provider*, the oldest first: how often it was connected."""
    since = market.now // DAY_MS - days
    found = await market.store.find(
        PresenceDay, provider=provider, day__gt=since, order=("day",), limit=days
    )
    return [
        {"at_ms": one.day * DAY_MS, "looks": one.looks,
         "uptime_milli": one.there * 1000 // one.looks}
        for one in found
    ]  # fmt: skip
