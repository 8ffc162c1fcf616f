"""Images that many run and anybody may pull: what a provider may fetch before it is asked.

Of an image that few run, or that is not public, nobody hears here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from marketplace.domain.errors import Malformed
from marketplace.domain.supply.stock import digest_of
from marketplace.domain.work.image_names import PUBLIC, Reference
from marketplace.market.accounts import images
from marketplace.market.base.records import ImageRecord, Job, Lease
from marketplace.market.context import Market

ACCOUNTS: Final = 3
"""So many different ones must have run it."""
LATEST: Final = 2_000
"""Leases that are looked at, the newest."""
MOST: Final = 50
KEPT_MS: Final = 60_000


@dataclass(frozen=True)
class Popular:
    """*accounts* that ran it lately; *bytes*: packed."""

    image: str
    accounts: int
    bytes: int


async def popular(market: Market) -> list[Popular]:
    """The most used first. Worked out once a minute."""
    at, known = market.popular
    if known is not None and market.now < at + KEPT_MS:
        return known
    users: dict[str, set[str]] = {}
    leases = await market.store.find(Lease, order=("-id",), limit=LATEST)
    ran = {lease.job for lease in leases if lease.started_ms}
    for job in await market.store.find(Job, id=sorted(ran), limit=LATEST):
        users.setdefault(job.parsed.image, set()).add(job.account)
    ranked = sorted(users.items(), key=lambda one: (-len(one[1]), one[0]))
    found: list[Popular] = []
    for image, accounts in ranked:
        if len(accounts) < ACCOUNTS or len(found) == MOST:
            break
        record = await market.store.get(ImageRecord, digest_of(image))
        if record is not None and await _anybodys(market, image):
            found.append(Popular(image, len(accounts), sum(size for _, size in record.parts)))
    market.popular = (market.now, found)
    return found


async def _anybodys(market: Market, image: str) -> bool:
    """Whether it is public as far as this market knows."""
    repository = images.ours(market, image)
    if repository:
        return await images.is_public(market, repository)
    try:
        return bool(digest_of(image)) and Reference.parse(image).host in PUBLIC
    except Malformed:
        return False
