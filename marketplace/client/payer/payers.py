"""The payer's shell: one book for each channel, one link to the market.

``Payers`` holds the locks of the channels that this process signs for. It runs inside the SDK, and
as ``tally payer run`` for jobs that outlive their client; a channel that another process holds is
left to it. What one channel does with a receipt is in ``channel_payer.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.to_thread
import structlog

from marketplace.client.net.link import Link
from marketplace.client.payer import handing_on
from marketplace.client.payer import journal as rows
from marketplace.client.payer.channel_payer import ChannelPayer, Listener, Paid
from marketplace.client.payer.handing_on import HandedOn
from marketplace.client.payer.hop_payer import HopPayer
from marketplace.client.payer.journal import ChannelFacts, ChannelHeld, Journal, Loaded
from marketplace.client.payer.missed_receipts import Receipts
from marketplace.client.payer.ordered import NothingToOrder
from marketplace.client.payer.routed_payer import RoutedPayer
from marketplace.client.payer.shelf import Shelf
from marketplace.disk import JournalDamaged
from marketplace.domain.errors import Fault, Halt, Refusal
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.protocol import wire
from marketplace.domain.work.cluster_order import SignedOrder, Verb
from marketplace.domain.work.mesh import MeshPeer

log = structlog.get_logger("tally.payer")
_CATCH_UP_S: Final = 0.5
OBTAIN_S: Final = 30.0


class Payers:
    """Every channel of one purse at one market that this process signs for."""

    def __init__(self, folder: Any, market: str, magic: int, receipts: Receipts) -> None:
        self._folder = folder
        self._shelf = Shelf(folder, market, magic)
        self.market = market
        self.magic = magic
        self._receipts = receipts
        self._held: dict[bytes, ChannelPayer] = {}
        self._taken_up: set[bytes] = set()
        self.pins: Counter[bytes] = Counter()  # by :meth:`pinned`
        self._lent: dict[bytes, Signer] = {}
        self._stuck: set[bytes] = set()
        self.others: set[bytes] = set()
        """Kept channels of the purse that other processes held when it was last looked."""
        self.taken_again: Callable[[ChannelPayer], Awaitable[object]] | None = None
        """What is done first with a channel that was handed on and comes back."""
        self._listeners: list[Listener] = []
        self.link = Link(market, magic, self)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* for everything that happens; returns how to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        """Serve until cancelled; every lock is given back at the end."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._catch_up)
                tasks.start_soon(self._share)
                await self.link.run(self._rejected)
        finally:
            with anyio.CancelScope(shield=True):
                for held in list(self._held.values()):
                    await held.let_go()
            self._held.clear()

    async def last_words(self) -> None:
        """Until the market has every End that was sent: nobody else may say it again."""
        if any(one.end_sent and one.facts.state is not ChannelStage.ENDED for one in self.all):
            await self.link.heard_out()

    # ---- shared with other processes -----------------------------------------------------------

    async def _share(self) -> None:
        """Hand on what another process asks for, take up again what nobody signs for."""
        while True:
            await anyio.sleep(handing_on.LOOK_S)
            for session_vk, held in list(self._held.items()):
                wanted = not self.pins[session_vk] and not held.end_sent and not _stays(held)
                if wanted and handing_on.asked_for(self._folder, session_vk):
                    await self._hand_on(held)
            for session_vk, session in list(self._lent.items()):
                if not handing_on.asked_for(self._folder, session_vk):
                    await self._take_again(session_vk, session)

    async def _hand_on(self, held: ChannelPayer) -> None:
        self._held.pop(held.session_vk, None)  # first: who agrees now asks for it again
        self._taken_up.discard(held.session_vk)
        self.others.add(held.session_vk)
        await held.let_go()
        self.link.unwatch(held.session_vk)
        if not set(held.terms) <= held.final:
            self._lent[held.session_vk] = held.session
        log.info("channel_handed_on", channel=held.session_vk.hex()[:16])

    async def _take_again(self, session_vk: bytes, session: Signer) -> None:
        """Whoever signed for it is gone, or had no use for it any more."""
        try:
            held = await self.take(session_vk, session)
        except ChannelHeld:
            return
        except JournalDamaged as damaged:  # the others are paid
            log.error("book_damaged", channel=session_vk.hex(), why=damaged.message)
            self._lent.pop(session_vk, None)
            return
        self._lent.pop(session_vk, None)
        log.info("channel_taken_again", channel=session_vk.hex()[:16])
        with self.pinned(session_vk):
            try:
                if self.taken_again is not None:
                    await self.taken_again(held)
            except Halt:
                raise
            except (Fault, Refusal) as error:  # its receipts are answered all the same
                log.info("not_looked_at", channel=session_vk.hex()[:16], why=error.message)
        if set(held.terms) <= held.final or held.facts.state is ChannelStage.ENDED:
            await self.release(session_vk)

    @contextmanager
    def pinned(self, session_vk: bytes) -> Generator[None]:
        """Meanwhile the channel is not handed on: something is agreed to, or looked up."""
        self.pins[session_vk] += 1
        try:
            yield
        finally:
            self.pins[session_vk] -= 1

    async def waits(self, why: str) -> None:
        """Tell that something of this process waits, and for whom."""
        await self.tell(Paid("wait", b"", "", 0, "WAITING", why))

    async def obtain(self, session_vk: bytes, session: Signer) -> ChannelPayer:
        """:meth:`take`, from a process that hands it on; :class:`ChannelHeld` after
        :data:`OBTAIN_S`, and from then on it is none of :attr:`others`. What it pays for is paid
        for by this process from then on.
        """
        if self._held.get(session_vk) is None:
            by = rows.holder(self._folder, session_vk)
            await self.waits(f"for its channel, which process {by} of this purse signs for")
        deadline = anyio.current_time() + OBTAIN_S
        async with handing_on.in_line(self._folder, session_vk, OBTAIN_S):
            while True:
                try:
                    held = await self.take(session_vk, session)
                except ChannelHeld:
                    if anyio.current_time() > deadline:
                        self._stuck.add(session_vk)
                        self.others.discard(session_vk)
                        raise
                    await anyio.sleep(handing_on.LOOK_S / 2)
                else:
                    self._lent.pop(session_vk, None)
                    return held

    @property
    def lent(self) -> list[Loaded]:
        """The books, as they are now, of channels that were handed on and that a lease of this
        process may still be on. Reads them.
        """
        return [rows.peek(self._folder, session_vk) for session_vk in self._lent]

    async def _catch_up(self) -> None:
        while True:
            await anyio.sleep(_CATCH_UP_S)
            for session_vk in list(self._held):
                held = self._held.get(session_vk)
                if held is not None:  # it may have been released meanwhile
                    with suppress(HandedOn):
                        await held.catch_up_clock()

    def held(self, session_vk: bytes) -> ChannelPayer | None:
        """The channel, if this process holds it."""
        return self._held.get(session_vk)

    def known(self, session_vk: bytes) -> bool:
        """Whether that key has a book here, whoever holds it: a session key is for one channel
        only.
        """
        return session_vk in rows.channels_in(self._folder)

    def spent_before(self, job: str) -> int:
        """What *job*'s leases were approved for on channels that this process does not hold: ended
        ones, or another process's. Blocking: it reads their books.
        """
        return self._shelf.spent(job, self._held.keys())

    @property
    def all(self) -> tuple[ChannelPayer, ...]:
        """Every channel that this process holds."""
        return tuple(self._held.values())

    async def create(self, facts: ChannelFacts, session: Signer) -> ChannelPayer:
        """The book of a channel that is about to be opened; the lock is held from here on."""
        journal, loaded = Journal.hold(self._folder, facts.session_vk)
        if loaded.facts is None:
            await anyio.to_thread.run_sync(journal.write, rows.channel_row(facts))
            loaded.facts = facts
        return await self._serve(journal, loaded, session)

    async def take(self, session_vk: bytes, session: Signer) -> ChannelPayer:
        """Sign for a channel that has a book. :class:`ChannelHeld` if another process does."""
        known = self._held.get(session_vk)
        if known is not None:
            return known
        journal, loaded = Journal.hold(self._folder, session_vk)  # the lock first, then the book
        if loaded.facts is None:
            journal.close()
            raise rows.ChannelNotMine(f"the book of {session_vk.hex()[:16]} is empty")
        return await self._serve(journal, loaded, session)

    async def take_all(self, session: Callable[[bytes], Signer]) -> list[ChannelPayer]:
        """Every living channel of this market that nobody else holds."""
        taken: list[ChannelPayer] = []
        for session_vk in rows.channels_in(self._folder):
            if session_vk in self._held:
                continue
            try:
                journal, loaded = Journal.hold(self._folder, session_vk)
            except ChannelHeld:
                continue
            except JournalDamaged as damaged:  # the others are paid; this one is said again
                log.error("book_damaged", channel=session_vk.hex(), why=damaged.message)
                await self.tell(Paid("refused", session_vk, "", 0, damaged.code, damaged.message))
                continue
            facts = loaded.facts
            if facts is None or facts.state is ChannelStage.ENDED or not self._shelf.ours(facts):
                journal.close()
                continue
            taken.append(await self._serve(journal, loaded, session(session_vk)))
        return taken

    async def take_kept(self, session: Callable[[bytes], Signer]) -> list[ChannelPayer]:
        """The open channels and hops of this market that are kept for further jobs and that nobody
        else holds; :attr:`taken_up` until they are released.
        """
        taken: list[ChannelPayer] = []
        for session_vk in rows.channels_in(self._folder):
            if session_vk in self._held or not self._shelf.kept(session_vk):
                continue
            self.others.discard(session_vk)
            try:
                taken.append(await self.take(session_vk, session(session_vk)))
            except ChannelHeld:
                if session_vk not in self._stuck and not self._shelf.stays(session_vk):
                    self.others.add(session_vk)
        self._taken_up |= {held.session_vk for held in taken}
        return taken

    async def take_routed(
        self, hop: HopPayer, session: Callable[[bytes], Signer]
    ) -> list[ChannelPayer]:
        """The leases over *hop* that a killed process left, unless another one holds them."""
        taken: list[ChannelPayer] = []
        for session_vk in set(rows.channels_in(self._folder)) - self._held.keys():
            facts = self._shelf.facts(session_vk)
            if facts is None or facts.state is ChannelStage.ENDED:
                continue
            if facts.hop == hop.session_vk.hex():
                with suppress(ChannelHeld):
                    taken.append(await self.take(session_vk, session(session_vk)))
        return taken

    @property
    def hops(self) -> list[HopPayer]:
        """The hops that this process holds."""
        return [held for held in self._held.values() if isinstance(held, HopPayer)]

    @property
    def taken_up(self) -> list[ChannelPayer]:
        """What :meth:`take_kept` took and this process still holds."""
        return [held for vk, held in self._held.items() if vk in self._taken_up]

    async def _serve(self, journal: Journal, loaded: Loaded, session: Signer) -> ChannelPayer:
        given = (journal, loaded, session, self.link, self._receipts, self.tell)
        held = self._payer(loaded, given)
        self._held[held.session_vk] = held
        await self.link.watch(session)
        return held

    def _payer(self, loaded: Loaded, given: tuple[Any, ...]) -> ChannelPayer:
        """By what the book is of: a hop, a lease over one, or a provider's channel."""
        facts = loaded.facts
        if facts is not None and facts.router:
            return HopPayer(*given)
        if facts is not None and facts.hop:
            return RoutedPayer(*given, find=self._hop)
        return ChannelPayer(*given)

    def _hop(self, session_vk: bytes) -> HopPayer | None:
        held = self._held.get(session_vk)
        return held if isinstance(held, HopPayer) else None

    async def release(self, session_vk: bytes) -> None:
        """Stop signing for it, once what is just being written is on the disk; then another process
        may.
        """
        held = self._held.pop(session_vk, None)
        self._taken_up.discard(session_vk)
        self.link.unwatch(session_vk)
        if held is not None:
            await held.let_go()

    async def order(
        self,
        lease: str,
        verb: Verb,
        peers: Sequence[MeshPeer] = (),
        shown: SignedOrder | None = None,
    ) -> SignedOrder:
        """Order a cluster's member, by its lease's session key: see :meth:`ChannelPayer.order`."""
        held = self._of_lease(lease)
        if held is None:
            raise NothingToOrder(f"no channel of lease {lease} is held by this process")
        return await held.order(lease, verb, peers, shown)

    def ordered(self, lease: str) -> SignedOrder | None:
        """The newest order that was signed for *lease*; None before the first."""
        held = self._of_lease(lease)
        known = held.book.leases[lease].orders if held is not None else None
        return known.newest if known is not None else None

    def _of_lease(self, lease: str) -> ChannelPayer | None:
        return next((held for held in self._held.values() if lease in held.terms), None)

    async def handle(self, message: wire.Message) -> None:
        """One message of the market; durable when it returns. What is for a channel that was handed
        on is answered by whoever has it now.
        """
        with suppress(HandedOn):
            await self._handle(message)

    async def _handle(self, message: wire.Message) -> None:
        match message:
            case wire.ReceiptSent(_, signed):
                held = self._of_receipt(signed)
                if held is not None:
                    await held.receipt(signed)
            case wire.LeaseProgress(lease):
                held = self._of_lease(lease)
                if held is not None:
                    await held.progress(message)
            case wire.PaidSent():
                for hop in self.hops:
                    await hop.said(message)
            case wire.HopRefused(session_vk):
                hop = self._hop(session_vk)
                if hop is not None:
                    await hop.refused(message)
            case wire.Rejected(code, text):
                log.info("market_rejected", code=code, message=text)
            case _:
                log.debug("market_said", what=type(message).__name__)

    def _of_receipt(self, signed: SignedReceipt) -> ChannelPayer | None:
        try:
            return self._held.get(signed.receipt.session_vk)
        except Refusal as refusal:
            log.warning("receipt_unreadable", code=refusal.code, why=refusal.message)
            return None

    async def opened(self) -> None:
        """A connection stands: what may have been lost is said again."""
        for held in self.all:
            with suppress(HandedOn):
                await held.say_again()

    async def tell(self, paid: Paid) -> None:
        """To everybody who listens."""
        for listener in list(self._listeners):
            await listener(paid)

    async def _rejected(self, refusal: Refusal) -> None:
        log.warning("payer_rejected", code=refusal.code, why=refusal.message)
        await self.tell(Paid("refused", b"", "", 0, refusal.code, refusal.message))


def _stays(held: ChannelPayer) -> bool:
    """A lease over a hop, or a hop with some: they stay together, in one process. So does a
    cluster's member, with whoever gives it its orders.
    """
    if isinstance(held, HopPayer):
        return held.busy
    return isinstance(held, RoutedPayer) or held.has_member
