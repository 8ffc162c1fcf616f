"""The settlement loop: idempotent, indifferent to restarts, and never stopped by one bad channel.

Each round looks after what is in flight, finds every channel anew, plans, and sends. A channel
whose output one of our own unfinished transactions spends is left alone, so a round repeated (after
a crash, a rollback or an indexer's lag) sends nothing twice. When a transaction is refused, the
channel that is in the way is taken out and the rest goes on; one of which somebody's transaction
waits is settled behind that one, last and by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

import anyio
import structlog

from marketplace.chain.actions.session import Desk, Settled, behind
from marketplace.chain.build import plans
from marketplace.chain.build.plans import Batch, Settlement
from marketplace.chain.build.wallet import Funds
from marketplace.chain.channels.finder import ChannelEnded, ChannelFinder, takeable
from marketplace.chain.channels.mempool import Mempool, drop_lost
from marketplace.chain.encoding import address as addresses
from marketplace.chain.encoding import txbytes
from marketplace.chain.encoding.datum import read_stage
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import FundsShort, ScriptRefused, TxRefused
from marketplace.chain.node.follow import Follower
from marketplace.chain.node.submit import MemoryLog, TxRecord, in_flight
from marketplace.chain.settlement import planner
from marketplace.chain.settlement.fitting import fit
from marketplace.chain.settlement.next_step import UNREAD_LOOKS, Due, Policy, Why
from marketplace.chain.settlement.planner import Plan
from marketplace.chain.settlement.wanted import Round, Wanted
from marketplace.chain.transaction.signing import Unsigned
from marketplace.chain.transaction.snapshot import Snapshot
from marketplace.domain.errors import Fault, TallyError
from marketplace.domain.keys import Signer
from marketplace.domain.money.channel import Claim, Finish, Step
from marketplace.domain.money.channel_refusals import ChannelRefused, ChannelUnfit
from marketplace.domain.money.transaction import FINAL_DEPTH, TxState

_log = structlog.get_logger(__name__)
_BULK: Final = 4  # from so many channels on, all of the instance are asked for at once


class Settler:
    """Settles with the money of *desk*'s wallet; *adapter*'s key lets it finish that adapter's
    channels.

    The desk's log decides what survives a restart: a store's, or a
    :class:`~marketplace.chain.node.submit.FileLog`.
    """

    def __init__(
        self,
        desk: Desk,
        policy: Policy | None = None,
        *,
        adapter: Signer | None = None,
        final_depth: int = FINAL_DEPTH,
    ) -> None:
        self._log = desk.log or MemoryLog()
        self._desk = replace(desk, log=self._log)
        self._policy = policy or Policy()
        self._adapter = adapter
        self._finder = ChannelFinder(desk.chain, desk.scripts, desk.unit)
        self._follower = Follower(desk.chain, self._log, final_depth=final_depth)
        self._mempool = Mempool(desk.chain)
        self._unread: dict[bytes, int] = {}  # session key: rounds in a row
        self._chained: dict[bytes, bytes] = {}  # session key: our transaction behind a waiting one

    async def run(
        self,
        source: Callable[[], Awaitable[Sequence[Wanted]]],
        *,
        every_s: float = 20.0,
        seen: Callable[[Round], Awaitable[None]] | None = None,
    ) -> None:
        """Rounds until cancelled. A round that fails is logged and the next one tries again."""
        while True:
            try:
                done = await self.round(await source())
                if seen is not None:
                    await seen(done)
            except TallyError as error:
                _log.warning("settlement_round_failed", code=error.code, cause=str(error))
            await anyio.sleep(every_s)

    async def round(self, wanted: Sequence[Wanted]) -> Round:
        """One pass. :class:`ChainFault` only when the chain cannot be asked at all."""
        done = Round()
        done.changes = await self._follower.look()
        await drop_lost(self._desk.chain, self._log)
        snapshot = await self._desk.chain.snapshot(self._desk.scripts)
        busy = await in_flight(self._log)
        dues = await self._find(wanted, snapshot, busy, done)
        if not dues:
            return done
        key = self._adapter.key_hash if self._adapter else None
        wish = planner.plan(dues, snapshot, self._policy, key, busy)
        self._note(wish, done)
        if wish.batches:
            snapshot = await self._after_pending(snapshot)
        for batch in wish.batches:
            snapshot = await self._send_all(batch, snapshot, done)
        for due in dues:
            if due.view.session_vk in done.behind:
                await self._send_behind(due, snapshot, done, key)
        return done

    async def _send_behind(
        self, due: Due, snapshot: Snapshot, done: Round, key: bytes | None
    ) -> None:
        """Settle a channel behind what of it waits: last in its round and in a transaction of its
        own, so that one that is dropped takes no other along.
        """
        session_vk = due.view.session_vk
        ahead = done.behind[session_vk]
        after = behind(snapshot, ahead.waiting)
        wish = planner.plan([replace(due, view=ahead.view)], after, self._policy, key)
        before = len(done.sent)
        for batch in () if ahead.over else wish.batches:
            await self._send_all(batch, after, done, ahead.waiting)
        if len(done.sent) > before:
            self._chained[session_vk] = done.sent[-1].sent.tx_id
            done.refused.pop(session_vk, None)

    async def _find(
        self, wanted: Sequence[Wanted], snapshot: Snapshot, busy: set[OutRef], done: Round
    ) -> list[Due]:
        """Views of every channel that stands; one that cannot be read is noted and left."""
        dues: list[Due] = []
        standing = await self._finder.standing() if len(wanted) >= _BULK else {}

        async def look(want: Wanted) -> None:
            due = await self._find_one(want, snapshot, busy, standing, done)
            if due is not None:
                dues.append(due)

        async with anyio.create_task_group() as group:  # the chain's door limits how many at once
            for want in wanted:
                group.start_soon(look, want)
        return dues

    async def _find_one(
        self,
        want: Wanted,
        snapshot: Snapshot,
        busy: set[OutRef],
        standing: Mapping[OutRef, Utxo],
        done: Round,
    ) -> Due | None:
        try:
            if want.voucher is not None:
                want.voucher.verify()
            height = snapshot.tip.height
            found = await self._finder.find(want.session_vk, want.origin, height, standing)
            self._unread.pop(want.session_vk, None)
        except TallyError as error:
            done.refused[want.session_vk] = error
            unread = isinstance(error, Fault)
            return await self._unread_due(want, snapshot, busy) if unread else None
        if isinstance(found, ChannelEnded):
            done.ended[want.session_vk] = found
            return None
        if want.consts is not None and found.consts != want.consts:
            unfit = ChannelUnfit("its constants are not those of the terms")
            done.refused[want.session_vk] = unfit
            _log.warning("channel_refused", channel=want.session_vk.hex(), code=unfit.code)
            return None
        done.views[want.session_vk] = found
        if await self._behind_already(want.session_vk):
            done.in_flight.add(want.session_vk)
            return None
        return Due(found, want.voucher, want.payout_address, want.end, want.drain, want.owed)

    async def _unread_due(self, want: Wanted, snapshot: Snapshot, busy: set[OutRef]) -> Due | None:
        """A channel that could not be read some times in a row is claimed from wherever its key
        stands: the voucher is good for each output, and pays the provider that it names.
        """
        self._unread[want.session_vk] = self._unread.get(want.session_vk, 0) + 1
        if want.voucher is None or self._unread[want.session_vk] < UNREAD_LOOKS:
            return None
        signed = (
            want.voucher.cumulative
            if want.owed is None
            else min(want.voucher.cumulative, want.owed)
        )
        payout = addresses.payout_hash(want.payout_address)
        found = [
            view
            for view in await self._finder.claimable(want.session_vk, payout)
            if view.utxo.ref not in busy
            and want.consts in (None, view.consts)
            and takeable(snapshot, view, signed)
        ]
        if not found:
            return None
        found.sort(key=lambda view: -takeable(snapshot, view, signed))
        turn = self._unread[want.session_vk] - UNREAD_LOOKS  # one a round: one may be refused
        best = found[turn % len(found)]
        upto = best.claimed + takeable(snapshot, best, signed)
        return Due(best, want.voucher, want.payout_address, drain=True, owed=upto)

    async def _behind_already(self, session_vk: bytes) -> bool:
        """Whether a transaction of ours waits behind somebody's of this channel."""
        tx_id = self._chained.get(session_vk)
        if tx_id is None:
            return False
        pending = await self._log.pending()
        if any(r.tx_id == tx_id and r.state is not TxState.SEEN for r in pending):
            return True
        del self._chained[session_vk]
        return False

    def _note(self, wish: Plan, done: Round) -> None:
        done.in_flight |= {vk for vk, why in wish.waiting.items() if why is Why.IN_FLIGHT}
        done.waiting |= {vk: why for vk, why in wish.waiting.items() if why is not Why.IN_FLIGHT}
        done.refused |= wish.refused
        for session_vk, error in wish.refused.items():
            _log.warning("channel_refused", channel=session_vk.hex(), code=error.code)

    async def _after_pending(self, snapshot: Snapshot) -> Snapshot:
        """Settle's rewards are taken by the first of a chain; the rest withdraw 0."""
        pending = await self._log.pending()
        taken = any(r.state is not TxState.SEEN and _withdraws(r) for r in pending)
        return replace(snapshot, rewards=0) if taken and snapshot.rewards else snapshot

    async def _send_all(
        self, batch: Batch, snapshot: Snapshot, done: Round, waiting: Sequence[Utxo] = ()
    ) -> Snapshot:
        """*batch* in as many transactions as its size needs. Money short ends the round quietly.
        *waiting*: channels of it that only the mempool holds yet."""
        rest = batch
        while rest.moves:
            try:
                settled = await self._send_some(rest, snapshot, done, waiting)
            except FundsShort as short:
                _log.warning("settler_short_of_funds", missing=short.missing)
                done.refused |= {_id_of(m.utxo): short for m in rest.moves}
                break
            if settled is None:
                break
            rest = rest.without([m.utxo.ref for m in settled.moves])
            snapshot = replace(snapshot, rewards=0)
        return snapshot

    async def _send_some(
        self, batch: Batch, snapshot: Snapshot, done: Round, waiting: Sequence[Utxo]
    ) -> Settled | None:
        """The first transaction's worth of *batch*, without whatever is in its way; None if nothing
        is left. What is taken out is noted and comes back, read anew, in the next round.
        """
        while batch.moves:
            funds, fresh = await self._desk.funds()
            fresh |= {u.ref: u for u in waiting}
            planned = fit(snapshot, funds, batch)
            dust = self._too_dear(planned)
            if dust:
                done.waiting |= {_id_of(u): Why.BELOW_LEAST for u in dust}
                batch = batch.without([u.ref for u in dust])
                continue
            try:
                unsigned = await self._desk.finish(planned.draft, fresh)
                sent = await self._desk.send(unsigned, "settle", *self._keys(unsigned))
            except (ScriptRefused, TxRefused, ChannelRefused) as no:
                blocked = await self._in_the_way(planned, funds, fresh, snapshot, batch, done)
                if not blocked:
                    done.refused |= {_id_of(m.utxo): no for m in planned.moves}
                    _log.warning("settlement_refused", channels=len(planned.moves), cause=str(no))
                    return None
                done.refused |= {_id_of(u): no for u in blocked}
                _log.info("channels_left_out", count=len(blocked), cause=str(no)[:200])
                batch = batch.without([u.ref for u in blocked])
                continue
            settled = Settled(sent, planned.moves, planned.wills, planned.subsidy)
            done.sent.append(settled)
            return settled
        return None

    def _too_dear(self, planned: Settlement) -> list[Utxo]:
        """Channels of strangers' payouts that this transaction would top up by more than it may."""
        gifts = [(p, n) for p, n in planned.topped_up if p not in self._policy.own_payouts]
        allowed = self._policy.gift_most * len(gifts) + sum(w.bounty for w in planned.wills)
        if sum(n for _, n in gifts) <= allowed:
            return []
        strangers = {p for p, _ in gifts}
        return [
            m.utxo
            for m, w in zip(planned.moves, planned.wills, strict=True)
            if w.payout in strangers and w.pay
        ]

    def _keys(self, unsigned: Unsigned) -> tuple[Signer, ...]:
        ours = self._adapter is not None and self._adapter.key_hash in unsigned.signers
        return (self._adapter,) if ours and self._adapter else ()

    async def _in_the_way(
        self,
        planned: Settlement,
        funds: Funds,
        fresh: Mapping[OutRef, Utxo],
        snapshot: Snapshot,
        batch: Batch,
        done: Round,
    ) -> list[Utxo]:
        """Channels of *planned* that another transaction has spent, or that one which waits spends,
        or else that a script refuses.
        """
        spent: list[Utxo] = []
        for move in planned.moves:
            output = await self._desk.chain.output(move.utxo.ref)
            if output is None or output.spent_by is not None:
                spent.append(move.utxo)
        if spent := spent or await self._waited_for(planned, snapshot, done):
            return spent
        return await self._refused_among(list(planned.moves), funds, fresh, snapshot, batch)

    async def _waited_for(self, planned: Settlement, snapshot: Snapshot, done: Round) -> list[Utxo]:
        """Channels of *planned* that a waiting transaction spends; the round settles them behind
        it.
        """
        found: list[Utxo] = []
        for move in planned.moves:
            view = done.views.get(_id_of(move.utxo))
            if view is None or view.utxo.ref != move.utxo.ref:
                continue
            upto = _signed(move.step)
            ahead = await self._mempool.ahead(view, lambda at, n=upto: takeable(snapshot, at, n))
            if ahead.spenders:
                done.behind[view.session_vk] = ahead
                found.append(move.utxo)
        await drop_lost(self._desk.chain, self._log, list(done.behind.values()))
        return found

    async def _refused_among(
        self,
        moves: list[plans.Move],
        funds: Funds,
        fresh: Mapping[OutRef, Utxo],
        snapshot: Snapshot,
        batch: Batch,
    ) -> list[Utxo]:
        """By halves: the channels without which the others would be accepted."""
        part = replace(batch, moves=tuple(moves))
        try:
            await self._desk.finish(plans.settle(snapshot, funds, part).draft, fresh)
        except (ScriptRefused, TxRefused, ChannelRefused):
            if len(moves) == 1:
                return [moves[0].utxo]
            half = len(moves) // 2
            first = await self._refused_among(moves[:half], funds, fresh, snapshot, batch)
            return first + await self._refused_among(moves[half:], funds, fresh, snapshot, batch)
        return []


def _signed(step: Step) -> int:
    """What a step takes, cumulatively; 0 for one that takes nothing."""
    taken = step.claim if isinstance(step, Finish) else step
    return taken.take_to if isinstance(taken, Claim) else 0


def _withdraws(record: TxRecord) -> bool:
    withdrawals = cast("dict[bytes, int]", txbytes.body_of(record.cbor).get(5) or {})
    return any(withdrawals.values())


def _id_of(utxo: Utxo) -> bytes:
    return read_stage(utxo.datum or b"").consts.session_vk
