"""What the pages draw over days, from the leases that are kept: bounded in days and in rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median_low
from typing import Any, Final, TypeVar, cast

from fastapi import FastAPI

from marketplace.domain.supply.lines import CORES
from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.records import Lease
from marketplace.market.context import Market

DAYS_SHOWN: Final = 14
MOST_LEASES: Final = 20_000
MOST_MODELS: Final = 40
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
T = TypeVar("T")
RUNNING: Final = (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED, LeaseState.ENDING)


async def minutely(app: FastAPI, name: str, now: int, make: Callable[[], Awaitable[T]]) -> T:
    """What *make* answers, reckoned once a minute for all readers of *app*'s pages."""
    kept = cast("tuple[int, T] | None", getattr(app.state, name, None))
    if kept is None or now - kept[0] > MINUTE_MS:
        kept = (now, await make())
        setattr(app.state, name, kept)
    return kept[1]


async def owed_now(market: Market, **whose: Any) -> dict[str, int]:
    """What each running lease owes so far: until its end, its last receipt says it."""
    running = await market.store.find(Lease, state=RUNNING, limit=1000, **whose)
    return {x.id: r.lease_owed for x in running if (r := await market.last_receipt(x.id))}


async def since(market: Market, **whose: Any) -> list[Lease]:
    """Leases of the days that are shown; the newest of them, where there are very many."""
    begun = market.now - DAYS_SHOWN * DAY_MS
    return await market.store.find(
        Lease, created_ms__ge=begun, order=("-id",), limit=MOST_LEASES, **whose
    )


def by_day(owed: Iterable[tuple[int, int]], now: int) -> list[dict[str, Any]]:
    """Lovelace of (when a lease began, what it owes) for each of the last days, the oldest
    first.
    """
    days = dict.fromkeys(_days(now), 0)
    for at_ms, amount in owed:
        if (day := _day(at_ms)) in days:
            days[day] += amount
    return [{"name": f"{day:%d %b}", "owed": amount} for day, amount in days.items()]


def prices(leases: Sequence[Lease], now: int) -> list[dict[str, Any]]:
    """For each model that was agreed upon, the median of each day's rates in micro-lovelace a
    second, the oldest first: ``{model, simulated, days: [(name, rate or None)], least, most}``.
    Several devices of one model count as that model.
    """
    found: dict[str, dict[date, list[int]]] = {}
    simulated: dict[str, bool] = {}
    for lease in leases:
        if not lease.session_signature:
            continue
        words = lease.device.partition(" x ")
        model = words[2] if words[0].isdigit() else lease.device
        model = CORES if lease.resource == "core" else model
        found.setdefault(model, {}).setdefault(_day(lease.created_ms), []).append(lease.rate_micro)
        simulated[model] = lease.simulated
    rows: list[dict[str, Any]] = []
    for model in sorted(found, key=lambda name: (name == CORES, name)):
        days = found[model]
        line = [(f"{d:%d %b}", median_low(days[d]) if d in days else None) for d in _days(now)]
        known = [rate for _, rate in line if rate is not None]
        if known:
            rows.append(
                {"model": model, "simulated": simulated[model], "days": line,
                 "least": min(known), "most": max(known), "latest": known[-1]}
            )  # fmt: skip
    return rows[:MOST_MODELS]


def in_use(means: Sequence[Mapping[str, Any]], now: int) -> dict[str, Any]:
    """How much of the market's GPUs and cores was in use on each of the last days, the oldest
    first: ``{gpu, core: [(name, per-mille or None)], gpus, cores}``, the last two the mean of the
    days that had some, or None. *means*: a day's row each (`upkeep.series.utilisation`).
    """
    known = {_day(one["at_ms"]): one for one in means}
    found: dict[str, Any] = {}
    for kind in ("gpu", "core"):
        shares = [_share(known.get(day), kind) for day in _days(now)]
        there = [one for one in shares if one is not None]
        found[kind] = [(f"{d:%d %b}", one) for d, one in zip(_days(now), shares, strict=True)]
        found[f"{kind}s"] = sum(there) // len(there) if there else None
    return found


def _share(day: Mapping[str, Any] | None, kind: str) -> int | None:
    """Per-mille of what there was of *kind*; None where there was nothing of it."""
    if day is None or not day[f"{kind}_milli"]:
        return None
    return int(day[f"{kind}_milli_held"]) * 1000 // int(day[f"{kind}_milli"])


def presence(days: Sequence[Mapping[str, Any]], now: int) -> list[tuple[str, int | None]]:
    """How much of each of the last days a provider was connected, the oldest first: (name,
    per-mille, or None where nobody looked). *days*: of `upkeep.series.presence`.
    """
    known = {_day(one["at_ms"]): int(one["uptime_milli"]) for one in days}
    return [(f"{day:%d %b}", known.get(day)) for day in _days(now)]


def _days(now: int) -> list[date]:
    return [_day(now) - timedelta(days=n) for n in reversed(range(DAYS_SHOWN))]


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()
