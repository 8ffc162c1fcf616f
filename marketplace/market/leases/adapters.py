"""What adapters tell the market: offers, answers, progress, receipts, logs, outputs."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

from marketplace.domain import canonical
from marketplace.domain.errors import Conflict, Malformed, NotFound
from marketplace.domain.money.channel_stage import LIVING
from marketplace.domain.money.receipt import ReceiptRefused
from marketplace.domain.money.terms import SignedTerms, check_close_period
from marketplace.domain.money.voucher import End
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import (
    OFFER,
    AdapterOutdated,
    OfferEvent,
    OfferRefused,
    OfferState,
    offer_id,
)
from marketplace.domain.work.job import VERSION
from marketplace.domain.work.lease import EndReason, LeaseState
from marketplace.domain.work.output import SignedOutput, terms_hash
from marketplace.market.base.ports import Change
from marketplace.market.base.records import (
    Channel,
    Event,
    Lease,
    LogRecord,
    OfferRecord,
    Output,
    ReceiptRecord,
    Setting,
    VoucherRecord,
)
from marketplace.market.base.story import is_ours
from marketplace.market.context import FEE, TRIES, Market, log
from marketplace.market.core.ending import HOLDING
from marketplace.market.core.inputs import (
    Accepted,
    Declined,
    Exited,
    Paused,
    Reconnected,
    Resumed,
    StageSeen,
    Started,
)
from marketplace.market.leases import clusters, hops, stocks, ticks
from marketplace.market.lifecycle import routes
from marketplace.market.lifecycle.change import change_lease
from marketplace.market.money import settle
from marketplace.market.state.told import ANSWER_MS

LOG_ROW: Final = 256  # bytes that a chunk of log counts at least
MOST_OUTPUTS: Final = 1_000  # of one job
MOST_EVENTS: Final = (
    2_000  # of one job, that its provider brings about; and no more than that are shown
)
DETAILS: Final = 20  # of one event
WORDS: Final = 500  # characters of each
SAMPLES: Final = 900
MEASURES: Final = 1000  # values in one sample
MOST_HELD: Final = 1000  # leases of one adapter; each that is unknown here is answered
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass
class _Tail:
    """Which log chunks of a lease are kept, oldest first, and how many bytes."""

    chunks: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    size: int = 0


class Adapters:
    """Handles every message of every adapter that is connected here."""

    def __init__(self, market: Market) -> None:
        self.market, self._stocks = market, stocks.Stocks(market)
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self.telemetry: OrderedDict[str, deque[dict[str, Any]]] = OrderedDict()
        self._owners: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._rows: OrderedDict[tuple[type[Event | Output], str], int] = OrderedDict()

    async def handle(self, provider: str, message: wire.Message) -> None:
        """Durable when it returns; a Refusal is sent back and changes nothing."""
        match message:
            case wire.OfferPosted(offer, draining):
                if offer.provider != provider:
                    raise OfferRefused("an adapter offers under its own key only")
                await self._offer(provider, message, draining)
            case wire.StockTold() | wire.ManifestTold():
                await self._stocks.heard(provider, message)
            case wire.LeasesHeld(held):
                await self._held(provider, set(held))
            case wire.LeaseAccepted(lease, terms):
                await self._accepted(provider, lease, terms)
            case wire.LeaseDeclined(lease, code, text, remedy):
                said = f"{text} — {remedy}" if remedy else text
                await self._declined(provider, lease, code, said)
            case wire.LeaseProgress():
                await self._progress(provider, message)
            case wire.ReceiptSent(lease, signed):
                record = await ticks.take_receipt(self.market, provider, lease, signed)
                if record is not None:
                    self.market.payers.tell(record.session_vk, message)
                await routes.owes(self.market, signed.receipt)
            case wire.PaidSent() | wire.HopRefused():
                await hops.heard(self.market, provider, message, self.owner)
            case wire.MeshPlaced() | wire.MeshSeen() | wire.StoreAsked():
                await clusters.heard(self.market, provider, message)
            case wire.LogChunk():
                await self._log(provider, message)
            case wire.Telemetry(lease, at_ms, values):
                await self._sample(provider, lease, {"at_ms": at_ms, **values})
            case wire.OutputReady():
                await self._output(provider, message)
            case _:
                raise NotFound(f"{type(message).__name__} is not for a market to receive")

    async def gone(self, provider: str) -> None:
        """Its connection closed: the offer is away until it comes back."""
        await self._offer_event(provider, OfferEvent.GONE)

    # ---- offers ------------------------------------------------------------------------------

    async def _offer(self, provider: str, message: wire.OfferPosted, draining: bool) -> None:
        market, offer = self.market, message.offer
        if offer.id != offer_id(provider):
            raise OfferRefused(
                f"the id of this adapter's offer follows from its key: {offer_id(provider)}"
            )
        if offer.magic != market.settings.magic:
            raise OfferRefused(f"this market is on network {market.settings.magic}")
        if offer.job_version < VERSION:
            raise AdapterOutdated(
                f"jobs are posted in form {VERSION}; this adapter reads {offer.job_version}"
            )
        check_close_period(offer.magic, offer.close_period_ms)
        least = await market.store.get(Setting, FEE)
        if least is not None and offer.fee_bps < int(least.value):
            raise OfferRefused(f"this market lists offers from fee_bps {least.value} on")
        body, now = canonical.encode(clusters.offered(market, offer).to_wire()), market.now
        for _ in range(TRIES):
            found = await market.store.find(OfferRecord, provider=provider, limit=1)
            if found and found[0].id != offer.id:
                raise OfferRefused(f"this adapter's offer is {found[0].id}; keep its id")
            try:
                await self._save_offer(found[0] if found else None, message, body, draining, now)
                return
            except Conflict:
                continue
        raise Conflict("the offer keeps changing")

    async def _save_offer(
        self,
        old: OfferRecord | None,
        message: wire.OfferPosted,
        body: bytes,
        draining: bool,
        now: int,
    ) -> None:
        market, offer = self.market, message.offer
        if old is None:
            state = OfferState.DRAINING if draining else OfferState.LISTED
            new = OfferRecord(offer.id, offer.provider, state, body, now, now, market.process)
            await market.store.apply(Change(puts=[new], topics=[f"offer:{new.id}"]))
            return
        state = OFFER.step(old.state, OfferEvent.POSTED)
        if draining and state is OfferState.LISTED:
            state = OFFER.step(state, OfferEvent.DRAIN)
        elif not draining and state is OfferState.DRAINING:
            state = OFFER.step(state, OfferEvent.UNDRAIN)
        new = replace(old, state=state, body=body, seen_ms=now, process=market.process, away_ms=0)
        await market.store.apply(Change(sets=[new], topics=[f"offer:{new.id}"]))

    async def _offer_event(self, provider: str, event: OfferEvent) -> None:
        market = self.market
        for _ in range(TRIES):
            found = await market.store.find(OfferRecord, provider=provider, limit=1)
            if not found or found[0].process != market.process:
                return  # it is connected elsewhere by now
            old = found[0]
            new = replace(old, state=OFFER.step(old.state, event), process="", away_ms=market.now)
            try:
                await market.store.apply(Change(sets=[new], topics=[f"offer:{new.id}"]))
                return
            except Conflict:
                continue

    # ---- leases ------------------------------------------------------------------------------

    async def _own(self, provider: str, lease_id: str) -> Lease:
        lease = await self.market.store.get(Lease, lease_id)
        if lease is None or lease.provider != provider:
            raise NotFound(f"no lease {lease_id}")
        return lease

    async def _held(self, provider: str, held: set[str]) -> None:
        """Reconcile after a reconnect: end what only one side holds, and say again what is not
        acknowledged.
        """
        market = self.market
        if len(held) > MOST_HELD:
            raise Malformed(f"an adapter holds at most {MOST_HELD} leases")
        known = await market.store.find(
            Lease, provider=provider, state=(*HOLDING, LeaseState.ENDING)
        )
        for lease in known:
            owed = 0 if lease.id in held else await market.owed_by(lease.id)
            out = await change_lease(market, lease.id, Reconnected(lease.id in held, owed))
            market.runs(out.job)
        sends: list[wire.Message] = [
            wire.LeaseCancelled(lease_id, EndReason.CANCELLED)
            for lease_id in held - {lease.id for lease in known}
        ]
        for channel in await market.store.find(Channel, provider=provider, state=LIVING):
            sends += await self._channel_again(channel)
        for message in sends:
            market.providers.tell(provider, message)

    async def _channel_again(self, channel: Channel) -> list[wire.Message]:
        sends: list[wire.Message] = []
        voucher = await self.market.store.get(VoucherRecord, channel.session_vk)
        if voucher is not None:
            sends.append(wire.VoucherSent(voucher.lease, voucher.voucher))
        if channel.end_signature and not channel.settled_tx:
            end = End(channel.session_vk, channel.end_cumulative, channel.end_signature)
            sends.append(wire.EndSent(end))
        elif channel.keep_signature:
            sends.append(wire.KeepSent(channel.keep))
        return sends

    async def _accepted(self, provider: str, lease_id: str, terms: SignedTerms) -> None:
        await self._own(provider, lease_id)
        asked = Accepted(terms.body, terms.adapter_signature)
        await change_lease(self.market, lease_id, asked)

    async def _declined(self, provider: str, lease_id: str, code: str, text: str) -> None:
        await self._own(provider, lease_id)
        owed = await self.market.owed_by(lease_id)
        await change_lease(self.market, lease_id, Declined(code[:60], text, owed))
        await settle.end_if_settled(self.market, lease_id)

    async def _progress(self, provider: str, told: wire.LeaseProgress) -> None:
        market, lease = self.market, await self._own(provider, told.lease)
        detail = _short(told.detail)
        await self._stocks.progressed(lease, told.stage)
        shown = await self._room(Event, lease.job, MOST_EVENTS)
        self._rows[Event, lease.job] += 1
        match told.stage:
            case "STARTED":
                market.runs((await change_lease(market, lease.id, Started())).job)
            case "PAUSED":
                words = str(detail.get("message") or detail.get("reason") or "paused")
                await change_lease(market, lease.id, Paused(words, shown))
            case "RESUMED":
                await change_lease(market, lease.id, Resumed(shown))
            case "FINISHED":
                await self._finished(lease, detail)
            case "SETTLED":
                await settle.reported(market, lease, str(detail.get("tx") or ""))
            case stage if len(stage) <= 40 and not is_ours(stage):
                await change_lease(market, lease.id, StageSeen(stage, detail, shown))
                if stage == "CHANNEL_SEEN":
                    await settle.seen(market, lease.session_vk)
            case _:
                raise ReceiptRefused("a stage is a short word, and none of the market's own")
        market.payers.tell(lease.session_vk, told)

    async def _finished(self, lease: Lease, detail: dict[str, Any]) -> None:
        market, code = self.market, detail.get("exit_code")
        asked = Exited(
            str(detail.get("reason") or ""),
            str(detail.get("message") or ""),
            code if isinstance(code, int) else None,
            await market.owed_by(lease.id),
            await self._left_unpaid(lease),
        )
        await change_lease(market, lease.id, asked)
        await settle.end_if_settled(market, lease.id)

    async def _left_unpaid(self, lease: Lease) -> bool:
        """Whether a receipt of it was taken here and not answered in time."""
        market = self.market
        if lease.hop and not routes.unpaid(market, lease):
            return False
        voucher = await market.store.get(VoucherRecord, lease.session_vk)
        answered = voucher.cumulative if voucher is not None else 0
        sums = routes.sums(market, lease.id) if lease.hop else None
        unanswered = await market.store.find(
            ReceiptRecord, lease=lease.id, at_ms__le=market.now - ANSWER_MS, limit=1,
            channel_owed__gt=sums.received if sums is not None else answered,
        )  # fmt: skip
        return bool(unanswered)

    # ---- evidence ----------------------------------------------------------------------------

    async def owner(self, provider: str, lease_id: str) -> tuple[str, str]:
        """(job, account) of the provider's lease, remembered."""
        known = self._owners.get(lease_id)
        if known is None:
            lease = await self._own(provider, lease_id)
            known = self._owners[lease_id] = (lease.job, f"{lease.account}/{provider}")
            while len(self._owners) > 10_000:
                self._owners.popitem(last=False)
        if known[1].partition("/")[2] != provider:
            raise NotFound(f"no lease {lease_id}")
        return known[0], known[1].partition("/")[0]

    async def _log(self, provider: str, chunk: wire.LogChunk) -> None:
        job, _ = await self.owner(provider, chunk.lease)
        tail = await self._tail(chunk.lease)
        known = max(0, sum(tail.chunks[-1]) - chunk.offset) if tail.chunks else 0
        if known and known >= len(chunk.data):
            return
        offset, data = chunk.offset + known, chunk.data[known:]
        record = LogRecord(chunk.lease, job, offset, chunk.stream[:10], data, self.market.now)
        change = Change(puts=[record], topics=[f"log:{job}"])
        counted = max(len(data), LOG_ROW)
        size = tail.size + counted
        dropped = 0
        for older, length in tail.chunks:
            if size <= self.market.settings.log_limit:
                break
            change.drops.append(LogRecord(chunk.lease, job, older, "", b""))
            size, dropped = size - max(length, LOG_ROW), dropped + 1
        await self.market.store.apply(change)
        for _ in range(dropped):
            tail.chunks.popleft()
        tail.chunks.append((offset, len(data)))
        tail.size = size

    async def _tail(self, lease: str) -> _Tail:
        tail = self._tails.get(lease)
        if tail is None:
            tail = _Tail()
            for record in await self.market.store.find(LogRecord, lease=lease, limit=100_000):
                tail.chunks.append((record.offset, len(record.data)))
                tail.size += max(len(record.data), LOG_ROW)
            self._tails[lease] = tail
            while len(self._tails) > 2_000:
                self._tails.popitem(last=False)
        return tail

    async def _room(self, kind: type[Event | Output], job: str, most: int) -> bool:
        """Whether a provider may add one more row of *kind* to its job: counted here, read once."""
        if (kind, job) not in self._rows:
            self._rows[kind, job] = await self.market.store.count(kind, job=job)
            while len(self._rows) > 10_000:
                self._rows.popitem(last=False)
        return self._rows[kind, job] < most

    async def _sample(self, provider: str, lease_id: str, sample: dict[str, Any]) -> None:
        job, _ = await self.owner(provider, lease_id)
        if len(sample) > MEASURES or any(len(name) > 60 for name in sample):
            raise ReceiptRefused(f"a sample has at most {MEASURES} values with short names")
        ring = self.telemetry.setdefault(job, deque(maxlen=SAMPLES))
        ring.append(sample)
        self.telemetry.move_to_end(job)
        while len(self.telemetry) > 2_000:
            self.telemetry.popitem(last=False)
        self.market.bus.tell([f"live:{job}"])

    async def _output(self, provider: str, ready: wire.OutputReady) -> None:
        job, _ = await self.owner(provider, ready.lease)
        if not _SHA256.fullmatch(ready.sha256) or not 0 < len(ready.path) <= 1000 or ready.size < 0:
            raise ReceiptRefused("an output is a path, a sha256 in hex and a size")
        if ready.signature:  # an adapter of before signs none
            lease, _ = await self.market.lease(ready.lease)
            said = SignedOutput(
                terms_hash(lease.terms), ready.path, ready.sha256, ready.size, ready.signature
            )
            said.verify(bytes.fromhex(provider))
        if await self.market.store.get(Output, job, ready.path) is not None:
            return
        if not await self._room(Output, job, MOST_OUTPUTS):
            raise ReceiptRefused(f"a job has at most {MOST_OUTPUTS} outputs")
        self._rows[Output, job] += 1
        named = (ready.path, ready.sha256, ready.size)
        output = Output(job, ready.lease, *named, self.market.now, ready.signature.hex())
        await self.market.store.apply(Change(puts=[output], topics=[f"job:{job}", f"output:{job}"]))
        log.info("output", job=job, path=ready.path, size=ready.size)


def _short(detail: dict[str, Any]) -> dict[str, Any]:
    """A provider's words as they are kept."""
    plain = ((k[:WORDS], v) for k, v in list(detail.items())[:DETAILS] if _plain(v))
    return {k: v[:WORDS] if isinstance(v, str) else v for k, v in plain}


def _plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, bool))
