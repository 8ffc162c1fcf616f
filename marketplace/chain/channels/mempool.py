"""The mempool's tip, for claims alone: a channel as the transactions that wait will leave it.

Whoever always has one more transaction of a channel waiting keeps every claim out that is built on
what the blocks show.  A claim that is built behind what waits cannot be kept out so.  What a
waiting transaction leaves is read from its outputs; its redeemers are not looked at.

Its inputs are not known here, so a copy of the channel beside it cannot be told from it by
position. It need not be: a voucher is good for every output with the channel's constants. All that
wait are followed, and the claim is built on the one that gives most, which is never less than the
channel's.

Nothing here is ever relied upon for serving: a waiting Close or TopUp changes no capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from marketplace.chain.channels.capacity import Funding
from marketplace.chain.channels.finder import ChannelView
from marketplace.chain.encoding import datum
from marketplace.chain.encoding.utxo import OutRef, Utxo
from marketplace.chain.errors import ChainFault
from marketplace.chain.node.answers import WaitingTx
from marketplace.chain.node.blockfrost import ChainReader
from marketplace.chain.node.submit import TransactionLog, TxRecord
from marketplace.domain.errors import Malformed
from marketplace.domain.money.transaction import TxEvent, TxState

OURS: Final = ("claim", "finish", "settle")
"""Purposes of the transactions that are planned anew from the chain when they are lost."""
_KEPT: Final = 1000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Ahead:
    """Where a channel goes before a block says so.

    *view*: as the last waiting transaction leaves it (as in blocks, if none waits), or the copy of
    it that gives more; *spenders*: which waiting transaction spends which output; *over*: none is
    left.
    """

    view: ChannelView
    spenders: tuple[tuple[OutRef, bytes], ...] = ()
    over: bool = False

    @property
    def waiting(self) -> tuple[Utxo, ...]:
        """The channel's output, if no block holds it yet."""
        return (self.view.utxo,) if self.spenders else ()


class Mempool:
    """Reads what waits at one chain's door, each transaction once."""

    def __init__(self, chain: ChainReader) -> None:
        self._chain = chain
        self._known: dict[bytes, WaitingTx] = {}

    async def ahead(self, view: ChannelView, worth: Callable[[ChannelView], int]) -> Ahead:
        """*view* and all that waits behind it; of several ends the one that is *worth* most. A door
        that shows no mempool shows none waiting.
        """
        try:
            spenders = await self._spenders(view.utxo.address)
        except ChainFault as fault:
            _log.info("mempool_not_read", cause=fault.message[:200])
            return Ahead(view)
        path: dict[OutRef, bytes] = {}
        ends: list[ChannelView] = []
        unread, seen = [view], {view.utxo.ref}
        while unread:
            at = unread.pop()
            tx = spenders.get(at.utxo.ref)
            if tx is None:
                ends.append(at)
                continue
            path[at.utxo.ref] = tx.tx_id
            onward = [one for one in _onward(at, tx) if one.utxo.ref not in seen]
            seen |= {one.utxo.ref for one in onward}
            unread += onward
        best = max(ends, key=worth, default=view)
        return Ahead(best, tuple(path.items()), over=not ends)

    async def _spenders(self, address: bytes) -> dict[OutRef, WaitingTx]:
        listed = await self._chain.waiting_at(address)
        found: dict[bytes, WaitingTx] = {}
        for tx_id in listed:
            tx = self._known.get(tx_id) or await self._chain.waiting(tx_id)
            if tx is not None:
                found[tx_id] = tx
        self._known = {k: v for k, v in self._known.items() if k not in listed} | found
        for oldest in list(self._known)[:-_KEPT]:
            del self._known[oldest]
        return {ref: tx for tx in found.values() for ref in tx.inputs}


def _onward(view: ChannelView, tx: WaitingTx) -> list[ChannelView]:
    """Every output of *tx* that can be the channel: at its address, with its constants, holding its
    asset alone (as every output that settle rebuilds).
    """
    found: list[ChannelView] = []
    for out in tx.outputs:
        alone = out.script_hash is None and all(unit == view.unit for unit, _ in out.assets)
        if out.address != view.utxo.address or out.datum is None or not alone:
            continue
        try:
            stage = datum.read_stage(out.datum)
        except Malformed:
            continue
        if stage.consts != view.consts or stage.claimed < view.claimed:
            continue
        added = stage.claimed + out.quantity(view.unit) - sum(f.amount for f in view.fundings)
        fundings = (*view.fundings, Funding(added, 0)) if added else view.fundings
        found.append(replace(view, utxo=out, stage=stage, fundings=fundings))
    return found


async def drop_lost(
    chain: ChainReader, log: TransactionLog, paths: Sequence[Ahead] = ()
) -> list[TxRecord]:
    """Expire our settlements that another waiting transaction displaced (*paths* show which), or
    that were built behind one that is gone: their money is free again, and they are planned anew.

    One that lands all the same does no harm: what is due is read from the chain.
    """
    rivals = {ref: tx_id for path in paths for ref, tx_id in path.spenders}
    alive = [r for r in await log.pending() if r.state is not TxState.SEEN]
    ours = {r.tx_id for r in alive}
    lost: list[TxRecord] = []
    for record in alive:  # oldest first: what was built on a lost one is lost with it
        if record.purpose not in OURS:
            continue
        displaced = any(rivals.get(ref, record.tx_id) != record.tx_id for ref in record.inputs)
        if displaced or await _orphaned(chain, record, ours):
            await log.put(record.step(TxEvent.IMPOSSIBLE))
            ours.discard(record.tx_id)
            lost.append(record)
    return lost


async def _orphaned(chain: ChainReader, record: TxRecord, ours: set[bytes]) -> bool:
    """Whether something that it spends was made by a transaction that neither waits nor is in a
    block.
    """
    for maker in {ref.tx_id for ref in record.inputs} - ours:
        if await chain.transaction(maker) is not None or await chain.waiting(maker) is not None:
            continue
        if await chain.transaction(maker) is None:  # asked again: a block may just have taken it
            return True
    return False
