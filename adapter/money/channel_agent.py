"""The adapter's own eye and hand on the chain: it believes no market about money.

It looks at every channel that pays it, through its own chain URL, at least every 30 s: finds it
from its open transaction, checks it against the terms, tells how far it may be relied upon, and
sees a Close.  It finishes channels with transactions that it built and signed itself; their bytes
lie in the journal before they are sent, and the same bytes are sent until a block holds them.

Over 400 lines: one look at a channel is read here from what stands on the chain to the step that is
taken, and every step first asks what the one before it left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import anyio
import structlog

from adapter.core.events import ChannelUnfit, Event, Expected, Settled, Sighted, Unread
from adapter.core.state import Channel, Rules
from adapter.daemon.earnings import Fees
from adapter.journal.journal import Journal
from adapter.journal.payments import Payments
from adapter.money.accounts import Accounts
from adapter.money.fee_key import FeeKey
from adapter.money.handed_opens import HandedOpens
from adapter.money.journal_log import JournalLog
from adapter.money.shared_ends import Door, SharedEnds
from marketplace.chain.actions.session import Desk, claim, finish_channels
from marketplace.chain.actions.session import Settled as Sent
from marketplace.chain.build.wallet import Wallet
from marketplace.chain.channels.finder import (
    ChannelEnded,
    ChannelFinder,
    ChannelView,
    channel_capacity,
    check_channel,
    takeable,
)
from marketplace.chain.channels.mempool import Mempool, drop_lost
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChannelUnknown, FundsShort, TxRefused
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import in_flight
from marketplace.chain.settlement.next_step import UNREAD_LOOKS, Due, Policy, Why, alarms, next_step
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.errors import Fault, Halt, Refusal, TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import Claim, Closing, Finish
from marketplace.domain.money.channel_refusals import ChannelUnfit as Unfit
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.transaction import FINAL_DEPTH, depth
from marketplace.domain.protocol import wire
from marketplace.domain.supply.offer import DEVNET_MAGIC

WATCH_MOST_S: Final = 30.0
OPENING_S: Final = 5.0
DEVNET_S: Final = 0.5
"""Between looks while somebody waits for a transaction: a block of mainnet takes 20 s on average.
"""
RESCUED_AT_ONCE: Final = 8
BATCH_WAIT_MS: Final = 900_000
"""An end waits so long for others' where the owner says nothing; on a devnet it does not."""
PROPOSALS: Final = 4
ATTEMPTS: Final = 3
"""In one look: between reading the mempool and sending, another transaction may come first."""

_log = structlog.get_logger("adapter.channels")


class ChannelAgent:
    """One per daemon. *end* is the key that ends channels, *fee* the one that pays for what is
    sent. *handle* is the daemon's door, *channel* reads its state, *waited_for* says whether a
    signed lease waits for a channel's money; *told* hears what the fee key holds and what ending a
    channel alone costs; *payments* are the books; *market* is offered ends, to be put together with
    others'.
    """

    def __init__(
        self,
        chain: ChainReader,
        end: Signer,
        fee: Signer,
        payout_address: str,
        journal: Journal,
        handle: Callable[[Event], Awaitable[None]],
        channel: Callable[[bytes], Channel | None],
        alarm: Callable[[str, str], None],
        *,
        asset: str = "",
        rules: Rules | None = None,
        draining: Callable[[], bool] = lambda: False,
        waited_for: Callable[[bytes], bool] = lambda _vk: False,
        told: Callable[[Fees], None] = lambda _fees: None,
        payments: Payments | None = None,
        market: Door | None = None,
    ) -> None:
        payout = self._payout = addresses.from_text(payout_address)
        bare = addresses.key_address(end.key_hash, None, chain.mainnet)  # a devnet's, of before
        self._payouts = {addresses.payout_hash(a): a for a in (bare, payout)}
        self._end = end
        self._log = JournalLog(journal)
        self._desk = Desk(chain, Wallet(fee, chain.mainnet), asset, self._log)
        self._chain = chain
        self._finder = ChannelFinder(chain, self._desk.scripts, self._desk.unit)
        self._follower = Follower(chain, self._log)
        self._mempool = Mempool(chain)
        self._handle = handle
        self._channel = channel
        self._alarm = alarm
        self._rules = rules or Rules()
        wait = self._rules.batch_wait_ms
        if wait is None:
            wait = 0 if chain.magic == DEVNET_MAGIC else BATCH_WAIT_MS
        self._policy = Policy(
            batch_ms=wait,
            claim_above=self._rules.claim_above,
            claim_drained=self._rules.claim_drained,
            finish_expired=False,  # a channel ends when its leases have, not before
        )
        self._draining = draining
        self._waited_for = waited_for
        self._fees = FeeKey(self._desk, end, payout, handle, alarm, told)
        ours = frozenset((bare, self._desk.wallet.address))
        books = payments or Payments(journal)
        self._accounts = Accounts(chain, books, payout, ours, self._desk.unit)
        self._begun = False
        self._watched: set[bytes] = set()
        self._finishing: set[bytes] = set()
        self._origins: dict[bytes, OutRef] = {}
        self._alarmed: set[tuple[bytes, int]] = set()
        self._stir = anyio.Event()
        self._unread: dict[bytes, int] = {}  # looks in a row
        self._signing = anyio.Lock()
        self._shared = SharedEnds(
            chain, self._desk.scripts, asset, end, self._log, market, self._signing, channel
        )
        self._handed = HandedOpens(chain, self._desk.scripts, self._log, channel, handle)
        self._proposed: deque[wire.EndsProposed] = deque(maxlen=PROPOSALS)
        self._proposals = anyio.Event()

    @property
    def fee_address(self) -> str:
        """Where a little ADA must lie for the fees of Finish."""
        return self._fees.address

    def watch(self, session_vk: bytes) -> None:
        """Look at this channel now, and again and again."""
        self._watched.add(session_vk)
        self._stir.set()

    def examine(self, session_vk: bytes, tx: bytes) -> None:
        """Judge the open transaction that was handed over for this channel, and send it."""
        self._handed.hand(session_vk, tx)

    def settle(self, session_vk: bytes) -> None:
        """Finish this channel; repeated until the chain shows it."""
        self._watched.add(session_vk)
        self._finishing.add(session_vk)
        self._stir.set()

    def heard(self, message: wire.EndsProposed | wire.EndDeclined) -> None:
        """What the market says to an end that was offered."""
        if isinstance(message, wire.EndsProposed):
            self._proposed.append(message)
            self._proposals.set()
        else:
            self._shared.declined(message)
            self._stir.set()

    async def run(self) -> None:
        """Watch until cancelled; the chain's failures are waited out."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._answer)
            group.start_soon(self._handed.run)
            await self._watch()

    async def _answer(self) -> None:
        """Proposals, one after the other, whatever is being looked at."""
        while True:
            await self._proposals.wait()
            self._proposals = anyio.Event()
            while self._proposed:
                await self._shared.answer(self._proposed.popleft())

    async def _watch(self) -> None:
        while True:
            self._stir = anyio.Event()
            try:
                await self.look()
            except Halt:
                raise
            except Fault as fault:
                self._alarm(fault.code, f"the chain cannot be read: {fault.message}")
            with anyio.move_on_after(self._pause_s()):
                await self._stir.wait()

    def _pause_s(self) -> float:
        watch = min(self._rules.watch_s, WATCH_MOST_S)
        ending = any(not self._shared.waits(vk) for vk in self._finishing)
        eager = (
            ending
            or bool(self._fees.short)
            or any(self._waited_for(vk) or self._urgent(self._channel(vk)) for vk in self._watched)
        )
        soon = DEVNET_S if self._chain.magic == DEVNET_MAGIC else OPENING_S
        return min(watch, soon) if eager else watch

    def _urgent(self, known: Channel | None) -> bool:
        """Whether a block is waited for: to see the channel open, or a claim land; or those that
        let a router's hop carry all that it holds, for which proposals come at any time.
        """
        if known is None or known.stage is ChannelStage.ENDED:
            return False
        waits = known.stage is ChannelStage.OPENING or (known.young and known.young.waits)
        ripens = known.hop is not None and known.limit < known.capacity
        return bool(waits) or ripens or known.unclaimed >= self._rules.claim_above

    async def look(self) -> None:
        """One pass over our transactions and every watched channel."""
        if not self._begun:
            self._accounts.sent(await self._log.known())
            self._begun = True
        # A rolled-back Finish is sent again, its channel watched or not.
        self._accounts.sent([change.record for change in await self._follower.look()])
        await self._fees.look()
        self._policy = replace(self._policy, end_cost=self._fees.end_cost)
        if not (self._watched or self._accounts.waiting):
            return
        snapshot = await self._chain.snapshot(self._desk.scripts)
        await self._accounts.settle_up(snapshot)
        height = snapshot.tip.height
        for session_vk in sorted(self._watched):
            known = self._channel(session_vk)
            if known is None or known.final:
                self._watched.discard(session_vk)
            if known is None or known.stage is ChannelStage.ENDED:
                self._finishing.discard(session_vk)
                await self._shared.forget(session_vk)
            if known is None or known.final:
                continue
            try:
                await self._look_at(known, height, snapshot)
                self._unread.pop(session_vk, None)
            except Halt:
                raise
            except TallyError as error:  # whatever stands there, the other channels are looked at
                _log.warning("channel not read", code=error.code, cause=error.message)
                await self._handle(Unread(session_vk, error.code, error.message))
                await self._rescued(known, snapshot)

    async def _look_at(self, known: Channel, height: int, snapshot: Snapshot) -> None:
        vk = known.session_vk
        try:
            view = await self._find(known, height)
        except ChannelUnknown as unknown:
            await self._missing(known, unknown)
            return
        await self._account(view, snapshot)
        if isinstance(view, ChannelEnded):
            final = bool(view.height) and depth(height, view.height) >= FINAL_DEPTH
            await self._handle(Settled(vk, view.finished_by.hex(), view.claimed, final))
            return
        if known.stage is ChannelStage.ENDED:  # a rollback undid its end: end it again
            await self._take_step(self._due(known, view, end=True), snapshot)
            return
        try:
            await self._report(known, view, snapshot)
        except Unfit as unfit:
            await self._handle(ChannelUnfit(vk, unfit.code, unfit.message))
            return
        due = self._due(
            self._channel(vk) or known, view, end=vk in self._finishing, drain=self._draining()
        )
        if due.end:
            until = await self._shared.offer(due, snapshot, self._policy)
            due = replace(due, batch_until_ms=until)
            if next_step(due, snapshot, self._policy, self._end.key_hash) is Why.BATCH:
                return
        if due.end or due.unclaimed >= self._policy.least(due):
            await self._take_step(due, snapshot)

    async def _account(self, view: ChannelView | ChannelEnded, snapshot: Snapshot) -> None:
        """The books wait for a chain that does not tell all yet; serving and claiming do not."""
        try:
            await self._accounts.seen(view, snapshot)
        except Halt:
            raise
        except Fault as fault:
            _log.warning("not booked yet", code=fault.code, cause=fault.message)

    async def _find(self, known: Channel, height: int) -> ChannelView | ChannelEnded:
        """The channel behind its open transaction, whichever output of it it is."""
        vk = known.session_vk
        if vk in self._origins:
            return await self._finder.find(vk, self._origins[vk], height)
        tx_id = bytes.fromhex(known.origin)
        if known.hop is not None:  # its router said which
            return await self._finder.find(vk, OutRef(tx_id, known.hop.index), height)
        moves = await self._chain.moves(tx_id)
        for output in moves.outputs if moves is not None else ():
            try:
                view = await self._finder.find(vk, output.utxo.ref, height)
            except ChannelUnknown:
                continue
            self._origins[vk] = output.utxo.ref
            return view
        raise ChannelUnknown(f"no output of {known.origin} is this channel yet")

    async def _missing(self, known: Channel, unknown: ChannelUnknown) -> None:
        """Not there yet; or gone again by a rollback: then nothing more is relied upon."""
        if known.stage is ChannelStage.OPENING and not known.expected:
            if await self._chain.waits(bytes.fromhex(known.origin)):
                await self._handle(Expected(known.session_vk))
        young = known.young
        gone = known.limit > 0 if young is None else young.in_block
        if known.stage is ChannelStage.OPEN and gone:
            self._alarm(unknown.code, f"{unknown.message} (rolled back?)")
        if young is not None:
            await self._handed.missing(known)
        elif known.stage is ChannelStage.OPEN and gone:
            await self._handle(
                Sighted(known.session_vk, known.stage, known.claimed, known.capacity, 0)
            )

    async def _report(self, known: Channel, view: ChannelView, snapshot: Snapshot) -> None:
        """Tell what stands there, after every check."""
        if isinstance(view.stage, Closing):
            can = channel_capacity(snapshot, view)
            expire = view.stage.expire_at_ms
            self._shout(
                known, alarms(view.stage, view.consts.close_period_ms, snapshot.tip.time_ms)
            )
            stage = ChannelStage.CLOSING
        else:
            can, expire = check_channel(known.agreed, view, snapshot), 0
            stage = ChannelStage.OPEN
        await self._handle(
            Sighted(known.session_vk, stage, view.claimed, can.most, can.now, expire)
        )

    def _shout(self, known: Channel, levels: Sequence[int]) -> None:
        for bps in levels:
            key = (known.session_vk, bps)
            if key not in self._alarmed:
                self._alarmed.add(key)
                self._alarm(
                    "CLOSE_PERIOD",
                    f"channel {known.session_vk.hex()[:16]} is closing, {bps // 100} % of the close"
                    f" period is over and {known.unclaimed} lovelace are not claimed",
                )

    def _due(
        self, known: Channel, view: ChannelView, *, end: bool = False, drain: bool = False
    ) -> Due:
        """What a voucher was signed ahead over is no due yet."""
        return Due(view, known.voucher, self._payout, end, drain, known.owed)

    async def _take_step(self, due: Due, snapshot: Snapshot) -> None:
        """Take the channel's next step in a transaction of ours, if one is worth it."""

        def worth(at: ChannelView) -> int:
            return takeable(snapshot, at, due.signed)

        async def send(at: ChannelView, waiting: Sequence[Utxo]) -> Sent | None:
            now = replace(due, view=at, owed=at.claimed + worth(at))
            busy = await in_flight(self._log)
            step = next_step(now, snapshot, self._policy, self._end.key_hash, busy)
            if isinstance(step, Claim) and due.voucher is not None:
                claims = [(at, due.voucher)]
                return await claim(self._desk, claims, self._payouts, step.take_to, waiting)
            if isinstance(step, Finish) and (worth(at) or not waiting):
                finishes = [(at, due.voucher)]
                return await finish_channels(
                    self._desk, finishes, self._payouts, self._end, due.owed, waiting
                )
            return None  # what waits takes it; or a block tells the channel from its copies

        try:
            async with self._signing:
                await self._build_on_tip(due.view, worth, send)
        except Refusal as refusal:
            self._refused(due, refusal)

    def _refused(self, due: Due, refusal: Refusal) -> None:
        """A refused end alarms; a refused claim is left to the market's settler, or the next
        look.
        """
        if not due.end:
            _log.warning("claim refused", code=refusal.code, cause=refusal.message)
        elif isinstance(refusal, FundsShort):
            self._alarm(refusal.code, f"send ADA to {self.fee_address}: {refusal.message}")
        else:
            origin = due.view.first.ref.tx_id.hex()
            self._alarm(refusal.code, f"finish of {origin[:16]}: {refusal.message}")

    async def _rescued(self, known: Channel, snapshot: Snapshot) -> None:
        """:meth:`_rescue`, whose own trouble delays no other channel."""
        try:
            await self._rescue(known, snapshot)
        except Halt:
            raise
        except TallyError as error:
            _log.warning("not claimed unread", code=error.code, cause=error.message)

    async def _rescue(self, known: Channel, snapshot: Snapshot) -> None:
        """Claim from a channel that cannot be read, wherever its constants stand: whoever finds one
        more way to hide a channel's history from us keeps no claim out by it.
        """
        vk, least = known.session_vk, self._policy.claim_drained
        self._unread[vk] = self._unread.get(vk, 0) + 1
        if self._unread[vk] < UNREAD_LOOKS or _signed(known) - known.claimed < least:
            return
        consts = known.agreed.consts()

        def worth(view: ChannelView) -> int:
            return takeable(snapshot, view, _signed(known))

        found = await self._finder.claimable(vk, consts.payout)
        good = [view for view in found if view.consts == consts and worth(view) >= least]
        for view in sorted(good, key=worth, reverse=True)[:RESCUED_AT_ONCE]:
            try:
                await self._take_step(self._due(known, view, drain=True), snapshot)
            except Fault as fault:  # the next one, or the next look, may do better
                _log.warning("not claimed unread", code=fault.code, cause=fault.message)

    async def _build_on_tip(
        self,
        view: ChannelView,
        worth: Callable[[ChannelView], int],
        send: Callable[[ChannelView, Sequence[Utxo]], Awaitable[Sent | None]],
    ) -> None:
        """*send* a settlement behind whatever of this channel waits in the mempool.  When another
        transaction comes first, once more behind that one.
        """
        for attempt in range(ATTEMPTS):
            ahead = await self._mempool.ahead(view, worth)
            await drop_lost(self._chain, self._log, [ahead])
            if ahead.over:
                return
            try:
                done = await send(ahead.view, ahead.waiting)
            except TxRefused:
                moved = (await self._mempool.ahead(view, worth)).view.utxo != ahead.view.utxo
                if attempt + 1 == ATTEMPTS or not moved:
                    raise
                continue
            if done is not None:
                self._fees.spent()
                _log.info(
                    "sent", tx=done.sent.tx_id.hex(), fee=done.sent.fee, behind=len(ahead.spenders)
                )
            return


def _signed(known: Channel) -> int:
    """What was paid for and delivered; what a voucher was signed ahead over is no due yet."""
    return min(known.paid, known.owed)
