"""What adapters tell of images: what hosts have, what images are made of; and how starts went.

A provider gains by saying that an image is there, or that a start is quick: its offers are chosen
for it. So each of its starts is timed here, and what it tells later is stretched by what its last
ones took beyond what it had told. It says itself when it begins, which is once it sees the channel;
who says that late, to hide a pull, waited longer for the channel than others do, and that counts.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from statistics import median
from typing import Final

from marketplace.domain.errors import Conflict, NotFound
from marketplace.domain.protocol import wire
from marketplace.domain.supply import stock
from marketplace.domain.work import manifest
from marketplace.market.base.ports import Change
from marketplace.market.base.records import Event, Job, Lease, OfferRecord, StockRecord
from marketplace.market.context import TRIES, Market
from marketplace.market.placement import expected
from marketplace.market.state.image_places import MOST_STRETCH, stretch

STARTS: Final = 9
"""Of a provider, the last of them count."""
MOST_BYTES_S: Final = 10**12
MOST_MS: Final = 86_400_000
_MOST_TIMED: Final = 10_000


class Waits:
    """From the signature until a provider says that it begins, in ms, of its last leases that wait
    *for_block* on their channel, and of its others.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[bool, str], deque[int]] = {}

    def note(self, provider: str, for_block: bool, ms: int) -> None:
        """One more."""
        self._last.setdefault((for_block, provider), deque(maxlen=STARTS)).append(ms)

    def usual(self, for_block: bool) -> int:
        """As the provider in the middle has it: no single one says what is usual, but one that is
        alone.
        """
        found = [median(last) for (kind, _), last in self._last.items() if kind is for_block]
        return int(median(found)) if found else 0


class Stocks:
    """Of the providers that are connected to this process."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._begun: OrderedDict[str, tuple[int, int]] = OrderedDict()  # lease: (at, expected ms)
        self._waits = Waits()

    async def heard(self, provider: str, message: wire.StockTold | wire.ManifestTold) -> None:
        """Durable when it returns. Malformed, NotFound."""
        if isinstance(message, wire.StockTold):
            await self._told(provider, message)
        else:
            await self._made_of(provider, message)

    async def _told(self, provider: str, message: wire.StockTold) -> None:
        stock.unpack(message.held)
        for _ in range(TRIES):
            known = await self._market.store.get(StockRecord, provider)
            new = StockRecord(
                provider,
                message.held,
                min(max(message.start_ms, 0), MOST_MS),
                min(max(message.pull_ms, 0), MOST_MS),
                min(max(message.bytes_s, 0), MOST_BYTES_S),
                known.went if known is not None else [],
                self._market.now,
                known.version if known is not None else 0,
            )
            if await self._saved(known, new):
                return
        raise Conflict("what the host has keeps changing")

    async def _made_of(self, provider: str, message: wire.ManifestTold) -> None:
        market = self._market
        lease = await market.store.get(Lease, message.lease)
        if lease is None or lease.provider != provider:
            raise NotFound(f"no lease {message.lease}")
        job = await market.store.get(Job, lease.job)
        digest = stock.digest_of(job.parsed.image) if job is not None else ""
        parts = manifest.layers(digest, message.documents)
        await expected.keep(market, digest, parts)

    async def progressed(self, lease: Lease, stage: str) -> None:
        """A step of a start."""
        if stage == "PULLING" and lease.id not in self._begun and not lease.started_ms:
            self._begun[lease.id] = (self._market.now, await self._expected(lease))
            while len(self._begun) > _MOST_TIMED:
                self._begun.popitem(last=False)
        elif stage == "STARTED" and not lease.started_ms:
            await self._ran(lease)
        elif stage == "FINISHED":
            self._begun.pop(lease.id, None)

    async def _expected(self, lease: Lease) -> int:
        """Ms that its quote would say now; 0 where it would say nothing."""
        job = await self._market.store.get(Job, lease.job)
        start = await expected.of(self._market, job.parsed.image, lease.offer) if job else None
        return start.ms if start is not None else 0

    async def _ran(self, lease: Lease) -> None:
        now, store = self._market.now, self._market.store
        at, ms = self._begun.pop(lease.id, (now, 0))
        ms = ms or await self._expected(lease)
        story = await store.find(Event, job=lease.job, lease=lease.id, order=("id",), limit=100)
        signed = [one.at_ms for one in story if one.kind == "SIGNED"]
        offer = await store.get(OfferRecord, lease.offer)
        if not ms or not signed or offer is None:
            return
        waited = at - signed[0]
        for_block = not (lease.reused or lease.hop or offer.offer.allowance)
        self._waits.note(lease.provider, for_block, waited)
        hidden = max(0, waited - self._waits.usual(for_block))
        await self._went(lease.provider, now - at + hidden, ms)

    async def _went(self, provider: str, took_ms: int, expected_ms: int) -> None:
        for _ in range(TRIES):
            known = await self._market.store.get(StockRecord, provider)
            if known is None:
                return
            told_ms = max(1, expected_ms * 1000 // stretch(known.went))
            went = min(max(took_ms, 1) * 1000 // told_ms, MOST_STRETCH)
            if await self._saved(known, known.but(went=[*known.went, went][-STARTS:])):
                return

    async def _saved(self, known: StockRecord | None, new: StockRecord) -> bool:
        """False where somebody else was faster."""
        if known is not None and known.but(at_ms=new.at_ms) == new:
            return True
        change = Change(topics=[f"stock:{new.provider}"])
        (change.puts if known is None else change.sets).append(new)
        try:
            await self._market.store.apply(change)
        except Conflict:
            return False
        self._market.directory.images.tell(new)
        return True
