"""Where else a job could run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marketplace.domain.work.job import JobSpec
from marketplace.market.base.records import Lease
from marketplace.market.state.listings import Listings
from marketplace.matching import Matchmaker


def others(
    listings: Listings, matchmaker: Matchmaker, spec: JobSpec, account: str, lease: Lease,
    now: int, limit: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """The cheapest offers that would do for the *lease*'s block beside its own, and how they
    differ.
    """
    blocks = dict(listings.blocks(spec, account, frozenset()))
    plain = replace(blocks[lease.block], gpu_count_max=None)
    if lease.gpus:
        plain = replace(plain, gpu_count=len(lease.gpus))
    found: list[dict[str, Any]] = []
    for rate, offer_id in listings.cheapest(spec, lease):
        if len(found) == limit:
            break
        if not matchmaker.fits_on(offer_id, plain, now):
            continue
        dearer = (rate - lease.rate_micro) * 100 // max(lease.rate_micro, 1)
        why = f"{dearer} % dearer" if dearer > 0 else "fits less tightly"
        provider = listings[offer_id].offer.provider
        found.append({"offer": offer_id, "provider": provider, "rate_micro": rate, "why": why})
    return found
