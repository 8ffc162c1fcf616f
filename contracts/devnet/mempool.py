"""The mempool: what was judged and waits for a block, one transaction after the other.

A transaction is judged against the state after everything that waits before it. What no longer
holds (an input that is gone, a time that has passed) is dropped, with whatever built on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from contracts.devnet.decoding import read
from contracts.devnet.index.rows import Entry, Source, Unstorable, entry
from contracts.devnet.index.store import Store
from contracts.devnet.ledger import rules
from contracts.devnet.ledger.engine import Engine, State
from contracts.devnet.ledger.refusal import LedgerRefusal
from contracts.devnet.parameters import MAX_BLOCK_BYTES
from contracts.devnet.transaction import Malformed, OutRef, Tx

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction in the mempool, the rows that a block will write of it and the ledger state
    after it.
    """

    entry: Entry
    after: State

    @property
    def tx(self) -> Tx:
        return self.entry.tx


class Mempool:
    """What waits, in order. Called under the node's lock only."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self.waiting: list[Waiting] = []
        self._engine = engine
        self._store = store
        self._sources: dict[OutRef, Source] = {}

    @property
    def txs(self) -> list[Tx]:
        return [one.tx for one in self.waiting]

    def after(self, chain: State) -> State:
        """The ledger state after all that waits; without any, that of the chain."""
        return self.waiting[-1].after if self.waiting else chain

    def for_a_block(self) -> tuple[list[Waiting], list[Waiting]]:
        """What a block has room for, from the beginning, and the rest."""
        size = taken = 0
        for one in self.waiting:
            size += len(one.tx.raw)
            if size > MAX_BLOCK_BYTES:
                break
            taken += 1
        return self.waiting[:taken], self.waiting[taken:]

    def hold(self, waiting: list[Waiting]) -> None:
        """Makes these the mempool."""
        self.waiting = waiting
        self._sources = {ref: one for w in waiting for ref, one in w.entry.sources().items()}

    def add(self, waiting: Waiting) -> None:
        """What :meth:`judged` made of a transaction waits behind the others."""
        self.waiting.append(waiting)
        self._sources.update(waiting.entry.sources())

    def judged(self, tx: Tx, chain: State, slot: int, tip_slot: int) -> Waiting:
        """What the ledger makes of a transaction after all that waits, and that the index can hold
        it. Raises ``LedgerRefusal``. chain: the state at the newest block; tip_slot: its slot.
        """
        return self._judged(tx, self.after(chain), self._sources, slot, tip_slot)

    def remembered(self, chain: State, slot: int, tip_slot: int) -> None:
        """Holds the mempool on disk, less what this ledger or index does not take: one such must
        not keep the chain from starting.
        """
        waiting: list[Tx] = []
        for raw in self._store.mempool():
            try:
                waiting.append(read(raw))
            except Malformed as problem:
                _log.warning("left out of the mempool: %s", problem)
        self.hold_survivors(chain, waiting, slot, tip_slot)
        if len(self.waiting) < len(waiting):
            self._store.set_mempool(self.txs)

    def hold_survivors(self, chain: State, txs: Iterable[Tx], slot: int, tip_slot: int) -> None:
        """Holds those that the ledger still accepts one after the other; the others are dropped."""
        kept: list[Waiting] = []
        sources: dict[OutRef, Source] = {}
        for tx in txs:
            try:
                kept.append(self._judged(tx, chain, sources, slot, tip_slot))
            except LedgerRefusal as refusal:
                _log.info("dropped %s: %s", tx.id, refusal.reason)
                continue
            chain = kept[-1].after
            sources |= kept[-1].entry.sources()
        self.hold(kept)

    def _judged(
        self, tx: Tx, before: State, waiting: dict[OutRef, Source], slot: int, tip_slot: int
    ) -> Waiting:
        """*waiting*: outputs of the mempool, which the index does not know yet."""
        rules.check(tx, before.register, slot, tip_slot)
        after = self._engine.apply(before, slot, tx)
        try:
            found = entry(tx, lambda ref: waiting.get(ref) or self._store.source(ref))
            self._store.rehearse(found)
        except Unstorable as problem:
            raise LedgerRefusal(f"this devnet cannot keep the transaction: {problem}", []) from None
        return Waiting(found, after)


def decoded(raw: bytes) -> Tx:
    """A transaction that was submitted; ``LedgerRefusal`` for bytes that are none."""
    try:
        return read(raw)
    except Malformed as problem:
        raise LedgerRefusal(f"DecoderFailure: {problem}", []) from problem
