"""Open transactions that payers handed over: judged, sent through our own door, and followed.

Each is in the journal before it leaves, so that the same bytes are sent until a block holds them,
also after a rollback, and over a kill. What may be served on one is decided by
``core.before_block``; here is only looked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog

from adapter.core.events import Event, OpenNotTaken, OpenTaken, OpenVoid, Sighted
from adapter.core.state import Channel
from adapter.money.journal_log import JournalLog
from marketplace.chain.actions.handed_open import (
    HandedOpen,
    Known,
    OpenRefused,
    check,
    to_resolve,
)
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import TxRefused
from marketplace.chain.node.at_once import at_once
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import HANDED, TxRecord
from marketplace.chain.transaction.snapshot import Scripts
from marketplace.domain.errors import Halt, TallyError
from marketplace.domain.money.channel_stage import ChannelStage
from marketplace.domain.money.terms import Terms
from marketplace.domain.money.transaction import TxEvent, TxState, depth

QUEUE: Final = 16
"""Further ones displace the oldest: their leases wait for a block."""

_log = structlog.get_logger("adapter.opens")


class HandedOpens:
    """Those of one adapter. *channel* reads the daemon's state, *handle* is its door."""

    def __init__(
        self,
        chain: ChainReader,
        scripts: Scripts,
        log: JournalLog,
        channel: Callable[[bytes], Channel | None],
        handle: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._chain = chain
        self._scripts = scripts
        self._log = log
        self._channel = channel
        self._handle = handle
        self._waiting: deque[tuple[bytes, bytes]] = deque(maxlen=QUEUE)
        self._stir = anyio.Event()

    def hand(self, session_vk: bytes, tx: bytes) -> None:
        """One more to be looked at."""
        self._waiting.append((session_vk, tx))
        self._stir.set()

    async def run(self) -> None:
        """One after the other, until cancelled."""
        while True:
            await self._stir.wait()
            self._stir = anyio.Event()
            while self._waiting:
                await self.examine(*self._waiting.popleft())

    async def examine(self, session_vk: bytes, tx: bytes) -> None:
        """Judge and send one, and tell the daemon what came of it."""
        known = self._channel(session_vk)
        if known is None or known.stage is not ChannelStage.OPENING:
            return
        try:
            found = await self._take(known, tx)
        except Halt:
            raise
        except TallyError as error:
            code = str(error.fields.get("rule", error.code))
            _log.warning("open_not_taken", code=code, cause=error.message[:200])
            await self._handle(OpenNotTaken(session_vk, code, error.message[:200]))
            return
        _log.info("open_taken", tx=found.tx_id.hex(), capacity=found.capacity)
        await self._handle(OpenTaken(session_vk, found.capacity, found.marks))

    async def _take(self, known: Channel, tx: bytes) -> HandedOpen:
        refs = to_resolve(tx)
        resolved, depths = await self._inputs(refs)
        snapshot = await self._chain.snapshot(self._scripts)
        terms = Terms.decode(known.terms)
        found = check(tx, Known(terms, known.origin, snapshot, resolved, depths))
        record = await self._log.find(found.tx_id)
        if record is None or record.state is TxState.EXPIRED:  # refused once: it begins anew
            record = TxRecord(found.tx_id, tx, HANDED)
        await self._log.put(record)
        try:
            await self._chain.submit(tx, strictly=True)
        except TxRefused as refused:
            await self._is_there(record, refused)
            return found
        if record.state is TxState.BUILT:
            await self._log.put(record.step(TxEvent.SENT))
        return found

    async def _is_there(self, record: TxRecord, refused: TxRefused) -> None:
        """A door refuses what it has: it is there, if that door shows it, waiting or, by now, in a
        block. Whatever else it was refused for, another transaction may have its inputs.
        """
        if await self._chain.waits(record.tx_id):
            return
        if await self._chain.transaction(record.tx_id) is not None:
            return
        if record.state is TxState.BUILT:
            await self._log.put(record.step(TxEvent.IMPOSSIBLE))
        raise OpenRefused(
            f"our door does not take it: {refused.message[:150]}", rule="OPEN_CONFLICT"
        ) from refused

    async def _inputs(
        self, refs: frozenset[OutRef]
    ) -> tuple[dict[OutRef, Utxo], dict[OutRef, int]]:
        """Those that our own door shows unspent in blocks, and how deep each lies."""
        resolved: dict[OutRef, Utxo] = {}
        depths: dict[OutRef, int] = {}
        tip = await self._chain.tip()

        async def look(ref: OutRef) -> None:
            output = await self._chain.output(ref)
            if output is None or output.spent_by is not None:
                return
            resolved[ref] = output.utxo
            included = await self._chain.transaction(ref.tx_id)
            depths[ref] = 0 if included is None else depth(tip.height, included.height)

        await at_once(look, refs)
        return resolved, depths

    async def missing(self, known: Channel) -> None:
        """No block holds the open of a channel that was served on it: it waits for one (again), or
        none ever will.
        """
        if known.stage is ChannelStage.ENDED:
            return
        record = await self._log.find(bytes.fromhex(known.origin))
        if record is None or record.state is not TxState.EXPIRED:
            await self._handle(
                Sighted(known.session_vk, known.stage, known.claimed, known.capacity, 0)
            )
            return
        late = record.until is not None and (await self._chain.tip()).slot >= record.until
        why = "its time to live passed" if late else "another transaction spent its inputs"
        await self._handle(OpenVoid(known.session_vk, f"no block can hold the open: {why}"))
