"""One channel whose vouchers this process signs: decisions made durable first.

The order for every receipt is: decide (pure), journal (fsync), send the voucher, and only then
acknowledge the receipt.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from marketplace.client.net.clock import Stamp
from marketplace.client.payer import decide
from marketplace.client.payer import journal as rows
from marketplace.client.payer.decide import Missing, Note, Outcome
from marketplace.client.payer.held_channel import HeldChannel
from marketplace.client.payer.missed_receipts import in_order
from marketplace.client.payer.ordered import FOLLOWED
from marketplace.client.payer.paid import Listener as Listener
from marketplace.client.payer.paid import Paid as Paid
from marketplace.domain.errors import Refusal
from marketplace.domain.money.channel_stage import ChannelStage, after
from marketplace.domain.money.keep import Keep
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.voucher import End, Voucher, VoucherRefused
from marketplace.domain.protocol import wire

log = structlog.get_logger("tally.payer")


class ChannelPayer(HeldChannel):
    """One channel whose lock this process holds."""

    async def opened(self, open_tx: str, index: int, capacity: int | None) -> None:
        """The channel's output is known; *capacity* once the chain confirmed it."""
        async with self._own_turn():
            shown = ChannelStage.OPENING if capacity is None else ChannelStage.OPEN
            state = after(self.facts.state, shown)
            self.facts = replace(self.facts, open_tx=open_tx, index=index, state=state)
            await self._write(rows.channel_row(self.facts))
            await self._capacity(capacity)

    async def topped_up(self, amount: int, capacity: int) -> None:
        """More money is in it: what was held back for want of it is signed now."""
        async with self._own_turn():
            self.facts = replace(self.facts, amount=self.facts.amount + amount)
            await self._write(rows.channel_row(self.facts))
            await self._capacity(capacity)

    async def _capacity(self, capacity: int | None) -> None:
        if capacity is None:
            return
        self.book = replace(self.book, capacity=capacity)
        await self._approve_more()

    async def catch_up_clock(self) -> None:
        """Sign what the own clock allows by now of receipts that were answered with less.

        A provider that paused for want of it sends no further receipt: nothing else would ask
        again.
        """
        async with self._own_turn():
            await self._approve_more()

    async def _approve_more(self) -> None:
        outcome = decide.approve_more(self.book, Stamp.now().mono_ms)
        if outcome.sign is not None:
            await self._write(rows.signed_row(outcome.book))
            self.book = outcome.book
            await self._send_voucher("", outcome.sign)

    async def receipt(self, signed: SignedReceipt) -> None:
        """One receipt of the market: decided, durable, answered."""
        async with self._own_turn():
            await self._take(signed, gap_allowed=True)

    async def _take(self, signed: SignedReceipt, *, gap_allowed: bool) -> None:
        now = Stamp.now()
        try:
            outcome = decide.decide(self.book, signed, now.mono_ms)
            if isinstance(outcome, Missing):
                if not gap_allowed:
                    raise decide.ReceiptReordered(f"receipt {outcome.first} is missing")
                await self._fill(signed, outcome)
                outcome = decide.decide(self.book, signed, Stamp.now().mono_ms)
                if isinstance(outcome, Missing):
                    raise decide.ReceiptReordered(f"receipt {outcome.first} is missing")
        except Refusal as refusal:
            await self._refused(signed, refusal)
            return
        await self._answer(signed, outcome, now)

    async def _fill(self, signed: SignedReceipt, gap: Missing) -> None:
        """Read what was missed and handle it in order, each as if it had come."""
        job = self.book.leases[signed.receipt.lease].terms.job
        jobs = dict.fromkeys([job, *(lease.terms.job for lease in self.book.leases.values())])
        for missed in await in_order(self._receipts, jobs, gap.first, gap.last):
            await self._take(missed, gap_allowed=False)

    async def _answer(self, signed: SignedReceipt, outcome: Outcome, now: Stamp) -> None:
        receipt = signed.receipt
        fresh = self.book.last is None or receipt.seq > self.book.last.seq
        written = [rows.tick_row(signed, outcome.book, receipt.lease, now)] if fresh else []
        since = outcome.book.leases[receipt.lease].since_ms
        if self.book.leases[receipt.lease].since_ms is None and since is not None:
            begun = now.earlier(now.mono_ms - since)
            written.insert(0, rows.clock_row(receipt.lease, "started", begun))
        ends = receipt.final and receipt.lease not in self.final
        if ends:
            written.append(rows.final_row(receipt.lease))
        if outcome.sign is not None and not written:
            written.append(rows.signed_row(outcome.book))
        await self._write(*written)
        self.book = outcome.book
        # A tick in which nothing was delivered is answered too: the market then asks no more.
        await self._send_voucher(receipt.lease, self.book.signed)
        approved = self.book.leases[receipt.lease].approved
        if fresh:
            await self._tell(Paid("tick", self.session_vk, receipt.lease, approved))
        if outcome.note is not None:
            await self._noted(receipt.lease, approved, outcome.note)
        if ends:
            self.final.add(receipt.lease)
            await self._tell(Paid("final", self.session_vk, receipt.lease, approved))
            await self._end_if_idle()

    async def _send_voucher(self, lease: str, cumulative: int) -> None:
        if not lease and self.book.last is not None:
            lease = self.book.last.lease
        await self._link.send(wire.VoucherSent(lease, Voucher.sign(self.session, cumulative)))

    async def _noted(self, lease: str, approved: int, note: Note) -> None:
        log.warning("not_signed", lease=lease, code=note.code, why=note.message)
        await self._tell(Paid("note", self.session_vk, lease, approved, note.code, note.message))

    async def _refused(self, signed: SignedReceipt, refusal: Refusal) -> None:
        lease = signed.receipt.lease
        if isinstance(refusal, decide.ReceiptReplayed):
            log.debug("receipt_again", lease=lease, why=refusal.message)
            return
        stopped = decide.stop(self.book, refusal)
        if stopped.stopped and not self.book.stopped:
            await self._write(rows.stopped_row(stopped.stopped, signed))
            self.book = stopped
            await self._link.send(wire.StopAsked(lease, refusal.code))
        log.warning("receipt_refused", lease=lease, code=refusal.code, why=refusal.message)
        await self._tell(Paid("refused", self.session_vk, lease, 0, refusal.code, refusal.message))

    async def halt(self, refusal: Refusal) -> None:
        """Nothing more is signed on this channel, and its end is asked for: what the chain shows of
        it is not what this key did.
        """
        async with self._own_turn():
            if self.book.stopped == refusal.code:
                return
            await self._write(rows.stopped_row(refusal.code))
            self.book = replace(self.book, stopped=refusal.code)
            living = [lease for lease in self.terms if lease not in self.final]
            for lease in living:
                await self._link.send(wire.StopAsked(lease, refusal.code))
            channel, why = self.session_vk.hex(), refusal.message
            log.error("channel_halted", channel=channel, code=refusal.code, why=why)
            text = f"{refusal.message}: {refusal.remedy}"
            lease = living[-1] if living else ""
            await self._tell(Paid("refused", self.session_vk, lease, 0, refusal.code, text))
            await self._end()

    async def progress(self, message: wire.LeaseProgress) -> None:
        """A stage of a lease: it moves the own clock, and tells."""
        what = decide.STAGE.get(message.stage)
        async with self._own_turn():
            if message.stage == FOLLOWED and self._follows_newest(message):
                what = "followed"
            if what is not None:
                now = Stamp.now()
                await self._write(rows.clock_row(message.lease, what, now))
                self.book = decide.MOVES[what](self.book, message.lease, now.mono_ms)
            if what == "started":  # whatever becomes of this process: the channel ends by itself
                await self._order_keep()
            tx = str(message.detail.get("tx", ""))
            if message.stage == "SETTLED" and tx:  # says the adapter; who asks looks at the chain
                self.facts = replace(self.facts, settled_tx=tx)
                await self._write(rows.channel_row(self.facts))
        await self._tell(
            Paid("stage", self.session_vk, message.lease, 0, message.stage, "", message.detail)
        )

    def _follows_newest(self, message: wire.LeaseProgress) -> bool:
        """Whether it says so of an order that takes the lease's time from its bill."""
        lease = self.book.leases.get(message.lease)
        orders = lease.orders if lease is not None else None
        return orders is not None and orders.is_held and orders.is_newest(message.detail)

    async def lease_over(self, lease: str, *, lost: bool = False) -> None:
        """No last receipt will come (a lost provider, a declined start): count the lease as over.

        A channel of a *lost* provider is ended even if it was to be kept: nobody else can serve it.
        """
        async with self._own_turn():
            if lease in self.terms and lease not in self.final:
                known = self.book.leases[lease]
                await self._write(rows.final_row(lease, lost=lost and known.orders is not None))
                if lost:
                    self.book = self.book.with_lease(known.lost())
                self.final.add(lease)
                await self._end_if_idle(lost)

    async def end(self) -> None:
        """Ask for the end now: the adapter stops all its leases, claims and finishes."""
        async with self._own_turn():
            await self._end()

    async def keep_for(self, keep_ms: int) -> None:
        """From its next idle moment on the channel stays open for *keep_ms*; 0: it ends then."""
        async with self._own_turn():
            if self.facts.keep_ms != keep_ms:
                self.facts = replace(self.facts, keep_ms=keep_ms)
                await self._write(rows.channel_row(self.facts))

    async def _end_if_idle(self, lost: bool = False) -> None:
        if not set(self.terms) <= self.final:
            return
        if lost or not self.facts.keep_ms:
            await self._end()
        else:
            await self._order_keep()

    async def _order_keep(self) -> None:
        """The order by which the adapter ends an idle channel that nobody asks it to end."""
        if self.facts.keep_ms and not self.end_sent:
            await self._link.send(wire.KeepSent(Keep.sign(self.session, self.facts.keep_ms)))

    async def _end(self) -> None:
        at = Stamp.now()
        if not self.end_sent:
            await self._write(rows.end_row(at))
        await self._link.send(wire.EndSent(End.sign(self.session, self.book.signed)))
        self.end_sent, self.end_ms = True, self.end_ms or at.mono_ms
        await self._tell(Paid("end", self.session_vk, "", self.book.signed))

    async def ended(self, tx: str, *, if_unused: bool = False) -> bool:
        """The chain shows that the channel is finished, or *if_unused* that it never begins: false
        where something was agreed to on it meanwhile.
        """
        async with self._own_turn():
            if if_unused and not set(self.terms) <= self.final:
                return False
            state = after(self.facts.state, ChannelStage.ENDED)
            tx = tx or self.facts.settled_tx
            self.facts = replace(self.facts, state=state, settled_tx=tx)
            await self._write(rows.channel_row(self.facts))
        self._link.unwatch(self.session_vk)
        await self._tell(Paid("settled", self.session_vk, "", self.book.signed, detail={"tx": tx}))
        return True

    async def catch_up(self, voucher: Voucher | None) -> None:
        """After a lost journal: at least what *voucher*, the market's or the chain's, shows was
        signed. One that this key did not sign is ignored: nothing but an own signature raises what
        was signed.
        """
        if voucher is None or voucher.session_vk != self.session_vk:
            return
        try:
            voucher.verify()
        except VoucherRefused:
            log.warning("foreign_voucher", channel=self.session_vk.hex()[:16])
            return
        async with self._own_turn():
            if voucher.cumulative > self.book.signed:
                resumed = decide.resume_from(self.book, voucher.cumulative)
                await self._write(rows.signed_row(resumed))
                self.book = resumed

    async def say_again(self) -> None:
        """After a reconnect: the end, or the order to keep it, that may not have arrived."""
        async with self._own_turn():
            if self.facts.state is ChannelStage.ENDED:
                return
            if self.end_sent:
                await self._link.send(wire.EndSent(End.sign(self.session, self.book.signed)))
            elif self.final:
                await self._order_keep()
