"""What an account spent: by day, by job or by API key, from the receipts that are kept.

One set of pieces, a lease's share of a day, is added up in each of the three ways: their sums
agree. Network fees are not in it; they are on each job's invoice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, Final

from marketplace.domain.work.lease import LeaseState
from marketplace.market.base.errors import TooLarge
from marketplace.market.base.records import ApiKey, Job, Lease, ReceiptRecord
from marketplace.market.context import Market

DAY_MS: Final = 86_400_000
MOST_LEASES: Final = 50_000
PAGE: Final = 1000
SIGNED_IN: Final = "signed in"
_RUNNING: Final = (LeaseState.FUNDED, LeaseState.ACTIVE, LeaseState.PAUSED, LeaseState.ENDING)


@dataclass(frozen=True)
class Piece:
    """What a lease owed on one *day* (since 1970, UTC), lovelace."""

    job: str
    lease: str
    day: int
    owed: int


async def pieces(market: Market, account: str, first: int, last: int) -> list[Piece]:
    """All of *account*'s, of the days from *first* to *last*; TooLarge where that are too many."""
    found: list[Piece] = []
    seen = 0
    async for lease, owed in _leases(market, account, first, last):
        seen += 1
        if seen > MOST_LEASES:
            raise TooLarge(f"more than {MOST_LEASES} leases: ask for fewer days")
        if owed:
            found += await _by_day(market, lease, owed, first, last)
    return found


async def _leases(
    market: Market, account: str, first: int, last: int
) -> AsyncGenerator[tuple[Lease, int]]:
    """The leases that may have owed something on these days, and what they owe in all."""
    until, ran = (last + 1) * DAY_MS, set[str]()
    # Those that run first: one that ends meanwhile is among the others too, and counted once.
    for where in ({"state": _RUNNING}, {"ended_ms__ge": first * DAY_MS}):
        after: tuple[object, ...] | None = None
        while True:
            page = await market.store.find(
                Lease, account=account, created_ms__lt=until, order=("id",), after=after,
                limit=PAGE, **where,
            )  # fmt: skip
            running = [x.id for x in page if x.state in _RUNNING]
            last_of = await market.store.newest(ReceiptRecord, "lease", "tick", running)
            for lease in page:
                receipt = last_of.get(lease.id)
                if lease.id not in ran:
                    yield lease, receipt.lease_owed if receipt is not None else lease.owed
            ran.update(running)
            if len(page) < PAGE:
                break
            after = (page[-1].id,)


async def _by_day(market: Market, lease: Lease, owed: int, first: int, last: int) -> list[Piece]:
    """*owed* on the days on which it fell due, as the receipts say; of one day without a look."""
    begun = (lease.started_ms or lease.created_ms) // DAY_MS
    over = (lease.finished_ms or lease.ended_ms or market.now) // DAY_MS
    days = range(max(begun, first), min(over, last) + 1)
    found: list[Piece] = []
    before = await _owed_by(market, lease, days[0], begun) if days else 0
    for day in days:
        after = owed if day == over else await _owed_by(market, lease, day + 1, begun)
        if after > before:
            found.append(Piece(lease.job, lease.id, day, after - before))
        before = max(after, before)
    return found


async def _owed_by(market: Market, lease: Lease, day: int, begun: int) -> int:
    """What it owed when *day* began: its last receipt before, found by halves, since receipts are
    in the order of their times and a long lease has millions.
    """
    if day <= begun:
        return 0
    newest = await market.last_receipt(lease.id)
    low, high, owed = 0, newest.tick if newest is not None else 0, 0
    while low < high:
        middle = (low + high + 1) // 2
        some = await market.store.find(
            ReceiptRecord, lease=lease.id, tick__le=middle, order=("-tick",), limit=1
        )
        if some and some[0].at_ms >= day * DAY_MS:
            high = middle - 1
        else:
            low, owed = middle, some[0].lease_owed if some else 0
    return owed


async def rows(
    market: Market, account: str, by: str, first: int, last: int
) -> list[dict[str, Any]]:
    """One for each day, job or key that spent something: newest days and jobs first, keys by id."""
    found = await pieces(market, account, first, last)
    jobs = await _jobs(market, {one.job for one in found}) if by != "day" else {}
    groups: dict[str, list[Piece]] = {}
    for one in found:
        of = {"day": f"{one.day:07d}", "job": one.job}.get(by) or jobs[one.job].api_key
        groups.setdefault(of, []).append(one)
    names = await _key_names(market, account) if by == "key" else {}
    return [
        _row(by, of, groups[of], names.get(of, "") if by == "key" else _job_name(jobs, of))
        for of in sorted(groups, reverse=by != "key")
    ]


def _row(by: str, of: str, some: Iterable[Piece], name: str) -> dict[str, Any]:
    parts = list(some)
    return {
        "of": "" if by == "day" else of,
        "name": name,
        "from_ms": min(one.day for one in parts) * DAY_MS,
        "to_ms": (max(one.day for one in parts) + 1) * DAY_MS,
        "jobs": len({one.job for one in parts}),
        "leases": len({one.lease for one in parts}),
        "owed": sum(one.owed for one in parts),
    }


def _job_name(jobs: dict[str, Job], of: str) -> str:
    return jobs[of].name if of in jobs else ""


async def _jobs(market: Market, ids: set[str]) -> dict[str, Job]:
    ordered, found = sorted(ids), dict[str, Job]()
    for at in range(0, len(ordered), PAGE):
        some = await market.store.find(Job, id=ordered[at : at + PAGE], limit=PAGE)
        found.update({job.id: job for job in some})
    return found


async def _key_names(market: Market, account: str) -> dict[str, str]:
    keys = await market.store.find(ApiKey, account=account, limit=MOST_LEASES)
    return {"": SIGNED_IN, **{key.id: key.name for key in keys}}
