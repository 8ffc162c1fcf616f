"""What time alone brings about: lapsed quotes, lost providers, dead processes, the matcher's lock.

Every sweep is safe to run in several processes at once: each change is a compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from marketplace.domain.errors import Conflict, IllegalTransition, NotFound
from marketplace.domain.metering.kinds import DISK
from marketplace.domain.money.terms import Terms
from marketplace.domain.supply.offer import OFFER, OfferEvent, OfferState
from marketplace.domain.work.lease import LeaseState
from marketplace.market.accounts import standing, webhooks
from marketplace.market.base.ports import Change
from marketplace.market.base.records import (
    ImageRecord,
    Job,
    Lease,
    Lock,
    Login,
    OfferRecord,
    PortLink,
    Process,
    Remembered,
    ServiceLoad,
    StockRecord,
)
from marketplace.market.context import MATCHER, Market, log
from marketplace.market.core.ending import HOLDING, LIVE
from marketplace.market.core.inputs import Passed, ProviderLost
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.money import settle
from marketplace.market.placement import starts
from marketplace.market.state.open_quotes import unfunded
from marketplace.market.upkeep import peers

KEPT_ANSWERS_MS: Final = 86_400_000
KEPT_IMAGES_MS: Final = 90 * 86_400_000
LOADS_KEPT_MS: Final = 3_600_000


async def quotes(market: Market) -> None:
    """Proposals without an answer go elsewhere; quotes without a signature end; what nobody starts
    fails.
    """
    now, rules = market.now, market.settings
    for lease in await market.store.find(
        Lease, state=LeaseState.PROPOSED, created_ms__lt=now - rules.propose_ttl_ms, limit=500
    ):
        await _passed(market, lease)
    for lease in await market.store.find(
        Lease, state=LeaseState.OFFERED, expires_ms__lt=now, limit=500
    ):
        await _passed(market, lease)
    await standing.turns(market)
    first = min(rules.start_ttl_ms, rules.start_ttl_new_ms)
    for lease in await market.store.find(
        Lease, state=LeaseState.FUNDED, created_ms__lt=now - first, limit=500
    ):
        await _passed(market, lease)


async def _passed(market: Market, lease: Lease) -> None:
    """Let the lease see what time it is; what somebody else decided meanwhile is as well."""
    asked = Passed(market.settings, starts.time_to_start_ms(market, lease.provider))
    try:
        await change_lease(market, lease.id, asked)
    except (Conflict, IllegalTransition, NotFound) as error:
        log.info("sweep", lease=lease.id, error=error.line())


async def providers(market: Market) -> None:
    """Offers of dead processes go away; leases of providers gone too long are lost."""
    now = market.now
    alive = {
        p.id
        for p in await market.store.find(
            Process, beat_ms__gt=now - market.settings.process_lease_ms
        )
    } | {market.process}
    for offer in await market.store.find(OfferRecord, away_ms=0, limit=100_000):
        if offer.process not in alive and OFFER.accepts(offer.state, OfferEvent.GONE):
            state = OFFER.step(offer.state, OfferEvent.GONE)
            gone = replace(offer, state=state, process="", away_ms=now)
            await _quietly(market, Change(sets=[gone], topics=[f"offer:{offer.id}"]))
    since = now - market.settings.resume_window_ms
    for offer in await market.store.find(OfferRecord, away_ms__gt=0, away_ms__le=since, limit=1000):
        await lose(market, offer.provider, now - offer.away_ms)


async def lose(market: Market, provider: str, away_ms: int) -> None:
    """End every lease of a provider that is gone; its volumes once it is gone for as long as it
    keeps one unpaid.
    """
    for lease in await market.store.find(Lease, provider=provider, state=HOLDING):
        if lease.resource == DISK.name and away_ms < Terms.decode(lease.terms).pause_limit_ms:
            continue
        await change_lease(market, lease.id, ProviderLost(await market.owed_by(lease.id)))


async def clusters(market: Market) -> None:
    """Members of clusters are lost sooner than other leases: the others wait for them. A market
    that was away itself first gives adapters the time to come back.
    """
    now, settings = market.now, market.settings
    mine = await market.store.get(Process, market.process)
    if mine is None or now - mine.started_ms < settings.redial_ms:
        return
    recent = max(0, now - settings.resume_window_ms)
    for offer in await market.store.find(
        OfferRecord, away_ms__gt=recent, away_ms__le=now - settings.cluster_lost_ms, limit=1000
    ):
        for lease in await market.store.find(Lease, provider=offer.provider, state=LIVE):
            job = await market.store.get(Job, lease.job)
            if job is not None and job.gang and job.parsed.cluster is not None:
                owed = await market.owed_by(lease.id)
                await change_lease(market, lease.id, ProviderLost(owed))


async def endings(market: Market) -> None:
    """Leases whose last word has been said end."""
    for lease in await market.store.find(
        Lease, state=LeaseState.ENDING, finished_ms__gt=0, limit=1000
    ):
        await settle.end_if_settled(market, lease.id)


async def refresh(market: Market) -> None:
    """Bring this process's view of offers and holdings in line with the store."""
    for record in await market.store.find(OfferRecord, limit=100_000):
        market.directory.set_offer(record)
    for stock in await market.store.find(StockRecord, limit=100_000):
        market.directory.images.tell(stock)
    live = await market.store.find(Lease, state=HOLDING, limit=100_000)
    for lease in live:
        market.directory.adopt(lease)
    waiting = [lease.account for lease in live if unfunded(lease)]
    market.open_quotes.sync(live, await standing.addresses(market, waiting))
    await starts.refresh(market)
    ids = {lease.id for lease in live}
    for lease_id in market.directory.holders() - ids:
        lease = await market.store.get(Lease, lease_id)
        if lease is not None and lease.state not in HOLDING:
            market.directory.release(lease_id, market.now)


async def beat(market: Market) -> None:
    """This process lives."""
    now = market.now
    mine = await market.store.get(Process, market.process)
    if mine is None:
        await market.store.apply(Change(puts=[Process(market.process, now, now)]))
    else:
        await market.store.apply(Change(sets=[replace(mine, beat_ms=now)]))


async def forget(market: Market) -> None:
    """Drop what has served: old challenges, sessions, answers, deliveries and processes."""
    now = market.now
    old: Change = Change()
    old.drops += await market.store.find(Login, expires_ms__lt=now, limit=1000)
    old.drops += await market.store.find(PortLink, expires_ms__lt=now, limit=1000)
    old.drops += await market.store.find(
        ImageRecord, at_ms__lt=now - KEPT_IMAGES_MS, order=("at_ms",), limit=1000
    )
    old.drops += await market.store.find(
        Remembered, at_ms__lt=now - KEPT_ANSWERS_MS, order=("at_ms",), limit=1000
    )
    old.drops += await market.store.find(
        ServiceLoad, at_ms__lt=now - LOADS_KEPT_MS, order=("at_ms",), limit=1000
    )
    old.drops += await webhooks.old(market)
    dead = await market.store.find(Process, beat_ms__lt=now - 3_600_000, limit=100)
    old.drops += dead
    await peers.withdraw(market, *(process.id for process in dead))
    if old.drops:
        await market.store.apply(old)


async def _quietly(market: Market, change: Change) -> None:
    try:
        await market.store.apply(change)
    except Conflict:
        log.info("sweep", what="somebody was faster")


@dataclass
class LeaderElection:
    """Takes the matcher's lock when its holder's beat stands still; no clocks are compared.

    *patience_ms* of this process's own monotonic time without a new beat mean that the holder died.
    """

    market: Market
    patience_ms: int = 4000
    seen: tuple[int, int] = (-1, -1)
    since_ms: int = 0

    async def turn(self, monotonic_ms: int) -> None:
        """Hold on, take over, or watch."""
        market = self.market
        lock = await market.store.get(Lock, MATCHER)
        if lock is None:
            await self._take(Change(puts=[Lock(MATCHER, market.process, 1, 0)]), 1)
            return
        if lock.holder == market.process and lock.epoch == market.epoch:
            await self._hold(lock)
            return
        market.epoch = 0
        if (lock.epoch, lock.beat) != self.seen:
            self.seen, self.since_ms = (lock.epoch, lock.beat), monotonic_ms
        elif monotonic_ms - self.since_ms >= self.patience_ms or lock.holder == "":
            mine = replace(lock, holder=market.process, epoch=lock.epoch + 1, beat=0)
            await self._take(Change(sets=[mine]), mine.epoch)

    async def _hold(self, lock: Lock) -> None:
        try:
            await self.market.store.apply(Change(sets=[replace(lock, beat=lock.beat + 1)]))
        except Conflict:
            log.info("lock", what="watched again")

    async def _take(self, change: Change, epoch: int) -> None:
        try:
            await self.market.store.apply(change)
        except Conflict:
            return
        await refresh(self.market)
        self.market.epoch = epoch
        log.info("lock", what="this process matches", epoch=epoch)

    async def leave(self) -> None:
        """Let another process take over at once."""
        lock = await self.market.store.get(Lock, MATCHER)
        if lock is not None and lock.epoch == self.market.epoch:
            await _quietly(self.market, Change(sets=[replace(lock, holder="")]))
        self.market.epoch = 0


def listed(record: OfferRecord) -> bool:
    """True while new jobs may be matched to it."""
    return record.state is OfferState.LISTED and not record.away_ms
