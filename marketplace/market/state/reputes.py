"""What a market's book says of its providers: leases, losses and how often they were there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.market.base.ports import Store
from marketplace.market.base.records import Lease, PresenceDay

DAY_MS: Final = 86_400_000
UPTIME_DAYS: Final = 30
FRESH_MS: Final = 60_000
MOST: Final = 10_000
LOST: Final = "PROVIDER_LOST"


@dataclass(frozen=True)
class Repute:
    """*uptime_milli*: how often it was connected of all looks of the last days, in thousandths;
    None before the first look.
    """

    leases: int
    lost: int
    uptime_milli: int | None


class Reputes:
    """Read anew once a minute at most, for whoever asks: pages show many providers at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[int, Repute]] = {}

    async def of(self, provider: str, now: int) -> Repute:
        """The repute of *provider*, at most a minute old."""
        known = self._kept.get(provider)
        if known is not None and now - known[0] < FRESH_MS:
            return known[1]
        store, since = self._store, now // DAY_MS - UPTIME_DAYS
        looks = await store.total(PresenceDay, "looks", provider=provider, day__gt=since)
        there = await store.total(PresenceDay, "there", provider=provider, day__gt=since)
        found = Repute(
            await store.count(Lease, provider=provider),
            await store.count(Lease, provider=provider, reason=LOST),
            there * 1000 // looks if looks else None,
        )
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[provider] = (now, found)
        return found
