"""Leave to use the market's own stores, for members of clusters whose leases live."""

from __future__ import annotations

from typing import Final

from marketplace.domain.errors import Malformed, NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_store import id_of
from marketplace.market.base.errors import StoreNone
from marketplace.market.base.ports import Change
from marketplace.market.base.records import ClusterWord, Job, KeptStore, Lease
from marketplace.market.context import Market
from marketplace.market.core.ending import LIVE

PAGE: Final = 500
OVERLAP_MS: Final = 60_000
"""So much of what was read is read again: clocks of a market's processes differ."""


async def asked(market: Market, provider: str, message: wire.StoreAsked) -> None:
    """Leave to reach its store, for a lease that lives and names one; NotFound, Malformed,
    StoreNone.
    """
    lease = await market.store.get(Lease, message.lease)
    job = await market.store.get(Job, lease.job) if lease is not None else None
    if lease is None or job is None or lease.provider != provider or lease.state not in LIVE:
        raise NotFound(f"no lease {message.lease}")
    want = job.parsed.store
    if want is None or not want.name:
        raise Malformed(f"{lease.id} has no store of this market's")
    if market.stores is None:
        raise StoreNone("this market keeps no stores")
    store, now = id_of(job.account, want.name), market.now
    change = Change(raises=[KeptStore(job.account, want.name, now)])
    if await market.store.get(ClusterWord, lease.id, "store") is None:
        change.raises.append(ClusterWord(lease.id, "store", now, store.encode(), b"", now))
    await market.store.apply(change)
    given = market.stores.give(job.account, want.name, lease.id)
    market.providers.tell(lease.provider, wire.StoreGiven(lease.id, given))


class InUse:
    """Which stores are in use, and by which leases; what was read once is not read again."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._given: dict[str, str] = {}
        self._over: set[str] = set()
        self._read_ms = 0

    async def look(self) -> dict[str, str]:
        """Store by lease, of all leases that were given leave for one and live."""
        market = self._market
        after: tuple[object, ...] | None = None
        while True:
            words = await market.store.find(
                ClusterWord, word="store", at_ms__ge=self._read_ms - OVERLAP_MS,
                order=("at_ms", "lease"), after=after, limit=PAGE,
            )  # fmt: skip
            fresh = {one.lease: one.body.decode() for one in words if one.lease not in self._over}
            self._given |= fresh
            if len(words) < PAGE:
                break
            after = (words[-1].at_ms, words[-1].lease)
        self._read_ms = market.now
        known, living = list(self._given), set[str]()
        for at in range(0, len(known), PAGE):
            found = await market.store.find(
                Lease, id=known[at : at + PAGE], state=LIVE, limit=PAGE
            )  # fmt: skip
            living |= {lease.id for lease in found}
        self._over |= set(known) - living  # none of these lives again
        self._given = {lease: store for lease, store in self._given.items() if lease in living}
        return dict(self._given)
