"""The devnet: a chain of blocks over the ledger, with a mempool, a clock, a faucet and rollbacks.

Any thread may call it; one lock makes them take turns. A transaction is judged when it is
submitted, against the state after everything that waits in the mempool; it is on disk before it is
acknowledged. A block takes what waits; what has expired by then is dropped, with whatever built on
it, as a real node would.

Over 400 lines: what changes the chain changes ledger, mempool and disk together, under one lock;
here it can be seen that nothing does without.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from contracts.devnet import addresses, faucet
from contracts.devnet.decoding import read
from contracts.devnet.index.audit import differing
from contracts.devnet.index.owner import StateHeld, sole_owner
from contracts.devnet.index.rows import Entry
from contracts.devnet.index.store import Block, StateTooOld, Store, Unwritable
from contracts.devnet.index.views import View
from contracts.devnet.ledger.engine import Engine, Evaluator, State, Units
from contracts.devnet.ledger.evaluation import Undecodable, evaluated, resolved
from contracts.devnet.mempool import Mempool, Waiting, decoded
from contracts.devnet.pace import Pace
from contracts.devnet.parameters import GENESIS_LOVELACE, NETWORK_MAGIC, SLOT_MS
from contracts.devnet.register import replayed
from contracts.devnet.source import fetch_ledger
from contracts.devnet.transaction import Malformed, OutRef, Tx, blake2b

_log = logging.getLogger(__name__)
_evaluator = Evaluator(fetch_ledger)


class DevnetRefusal(ValueError):
    """The devnet's own controls refuse a request: nothing to do with the ledger's rules."""

    code = "devnet_refused"


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Devnet:
    """One chain. Use as a context manager, or call ``close``.

    state_dir: folder that keeps the chain; None keeps it in memory. block_ms: milliseconds between
    blocks; 0 makes a block of each transaction as it is submitted, and none otherwise. clock: POSIX
    milliseconds; a test that wants stopped time passes its own. pace: how it goes, in place of
    block_ms.
    """

    def __init__(
        self,
        state_dir: Path | str | None = None,
        block_ms: int = 0,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        pace: Pace | None = None,
    ) -> None:
        self.pace = self._own_pace = pace or Pace(block_ms)
        self._lock = threading.RLock()
        self._clock = clock
        self._guard: IO[str] | None = None
        path = None
        if state_dir is not None:
            folder = Path(state_dir)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                self._guard = sole_owner(folder)
            except StateHeld as problem:
                raise DevnetRefusal(str(problem)) from problem
            path = folder / "chain.sqlite"
        try:
            self._store = Store(path)
        except StateTooOld as problem:
            if self._guard is not None:
                self._guard.close()
            raise DevnetRefusal(f"{path}: {problem}") from problem
        self._tip = self._store.tip() or self._genesis()
        self.system_start = self._meta("system_start")
        self._engine = Engine(fetch_ledger, self.system_start * 1000)
        self._lag = 0
        self._state = self._rebuilt(self._tip.height)
        self._pool = Mempool(self._engine, self._store)
        self._pool.remembered(self._state, self.slot(), self._tip.slot)
        self._trouble: str | None = None
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._producer: threading.Thread | None = None
        if self.block_ms > 0:
            self._producer = threading.Thread(target=self._produce, name="devnet", daemon=True)
            self._producer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops the blocks and frees everything; the chain stays on disk."""
        self._stop.set()
        self._woken.set()
        if self._producer is not None:
            self._producer.join()
        with self._lock:
            self._store.close()
            self._engine.close()
            if self._guard is not None:
                self._guard.close()

    @property
    def block_ms(self) -> int:
        """Milliseconds between blocks, in the mean; 0: each transaction makes one."""
        return self.pace.block_ms

    # --- transactions ---

    def submit(self, raw: bytes) -> str:
        """Judges a signed transaction and takes it into the mempool (with block_ms 0 into a block).
        Returns its id.

        Raises ``LedgerRefusal`` with the ledger's reason. When this returns, the transaction is on
        disk.
        """
        with self._lock:
            tx = decoded(raw)
            slot = self.slot()
            waiting = self._pool.judged(tx, self._state, slot, self._tip.slot)
            if self.block_ms > 0:
                self._store.add_to_mempool(tx)
            self._pool.add(waiting)
            if self.block_ms == 0:
                try:  # at the slot of its judgement: it may be the last in which it holds
                    self._mint(slot)
                except BaseException:
                    self._pool.hold([one for one in self._pool.waiting if one is not waiting])
                    raise
            return tx.id

    def evaluate(self, raw: bytes, extra: Iterable[tuple[OutRef, bytes]] = ()) -> list[Units]:
        """Exact units of every redeemer against the chain, the mempool and then ``extra`` outputs.
        Raises ``EvaluationRefusal``.

        The scripts run outside the lock: nothing waits for them but other evaluations.
        """
        try:
            tx = read(raw)
        except Malformed as problem:
            raise Undecodable(str(problem)) from problem
        given = dict(extra)
        with self._lock:
            known = {
                OutRef(tx.id, index): one.raw for tx in self._pool.txs for index, one in tx.made
            }
            found = resolved(
                tx, lambda ref: known.get(ref) or self._store.unspent(ref) or given.get(ref)
            )
        return evaluated(_evaluator, self.system_start * 1000, tx, found)

    def faucet(self, address: str, lovelace: int) -> OutRef:
        """Pays from the faucet by an ordinary transaction and returns the payment's output.

        Raises ``DevnetRefusal`` for a bad address or amount, ``LedgerRefusal`` where the ledger
        refuses (below min-ADA).
        """
        try:
            to = addresses.decode(address, "addr_test")
            addresses.describe(to)
        except addresses.BadAddress as problem:
            raise DevnetRefusal(f"{address!r}: {problem}") from problem
        with self._lock:
            coin = faucet.newest(self._store.largest(faucet.ADDRESS), self._pool.txs)
            if not 0 < lovelace <= coin.lovelace - 10_000_000:
                raise DevnetRefusal(f"the faucet cannot pay {lovelace} lovelace")
            return OutRef(self.submit(faucet.payment(coin, to, lovelace)), 0)

    # --- blocks and time ---

    def slot(self) -> int:
        """The current slot: whole seconds since ``system_start``; never before the newest
        block's.
        """
        offset = self._store.meta("offset_ms") or 0
        return max(self._tip.slot, (self._clock() + offset - self.system_start * 1000) // SLOT_MS)

    def mint(self, count: int = 1) -> Block:
        """Makes blocks now; the first takes what waits in the mempool. Returns the newest."""
        if not 0 < count <= 100_000:
            raise DevnetRefusal("count of blocks must be from 1 to 100000")
        for _ in range(count):
            with self._lock:
                self._mint(self.slot())
        return self._tip

    def advance(self, ms: int) -> Block:
        """Moves the clock forward by whole slots or parts of one and makes a block at the new
        time.
        """
        if not 0 < ms <= 10**12:
            raise DevnetRefusal("advance_ms must be from 1 to 10^12: time moves forward only")
        with self._lock:
            self._store.set_meta("offset_ms", (self._store.meta("offset_ms") or 0) + ms)
            return self._mint(self.slot())

    def rollback(self, blocks: int, drop: bool = False) -> list[str]:
        """Takes the newest blocks back. Their transactions return to the mempool, or are dropped
        for good. Returns their ids.

        What no longer holds on the shorter chain (an input that is gone, a time that has passed) is
        dropped in either case. With block_ms 0 the returned transactions wait for the next block,
        so that a test can look at the chain without them.
        """
        with self._lock:
            height = self._tip.height - blocks
            if blocks < 1 or height < 0:
                raise DevnetRefusal(f"can roll back 1 to {self._tip.height} blocks")
            taken = [read(raw) for _, raw in self._store.transactions(height, self._tip.height)]
            candidates = [*([] if drop else taken), *self._pool.txs]
            state = self._rebuilt(height)
            # Judged when the index has let go of them; after a crash in between, the next start
            # does it.
            self._store.truncate(height, candidates, self._meta("fork") + 1)
            self._tip, self._state = self._store.block(height), state
            self._keep(candidates, self.slot())
            self._store.set_mempool(self._pool.txs)
            return [tx.id for tx in taken]

    def reward(self, stake_address: str, lovelace: int) -> Block:
        """Credits a registered stake account, as an epoch's end would; makes a block. Raises
        ``DevnetRefusal``.
        """
        with self._lock:
            registered = {
                addresses.stake_address(key, is_script)
                for is_script, key in self._state.register.accounts
            }
            if stake_address not in registered or not 0 < lovelace <= GENESIS_LOVELACE:
                raise DevnetRefusal(f"{stake_address!r} is no registered stake account")
            waiting, slot = self._pool.txs, self.slot()
            self._write(slot, [], waiting, [(stake_address, lovelace)])
            self._state = self._rebuilt(self._tip.height)
            self._keep(waiting, slot)
            return self._tip

    def fork(self, blocks: int) -> list[str]:
        """The chain turns out to have other blocks in place of its last ones, without what was in
        them: that waits again. Returns the ids.
        """
        with self._lock:
            taken = self.rollback(blocks)
            slot = self.slot()
            for _ in range(blocks):
                self._append(slot, [], self._pool.waiting)
            return taken

    def set_pace(self, pace: Pace | None) -> None:
        """Lets the chain go otherwise from now on; None: as it was started."""
        if self._own_pace.block_ms == 0:
            raise DevnetRefusal("a devnet that makes a block of each transaction has no pace")
        with self._lock:
            self.pace = pace or self._own_pace
        self._woken.set()

    def set_lag(self, blocks: int) -> None:
        """Lets the face answer as an indexer that is this many blocks behind the node. Submitting
        is not delayed.
        """
        if blocks < 0:
            raise DevnetRefusal("lag is a number of blocks, 0 or more")
        self._lag = blocks

    # --- reading ---

    @contextmanager
    def reading(self) -> Generator[View, None, None]:
        """The chain as the face shows it: up to the newest block less the lag, standing still while
        it is read.
        """
        with self._lock:
            height = max(0, self._tip.height - self._lag)
            if self.pace.lag_ms:
                seen = self.slot() - self.pace.lag_ms // SLOT_MS
                height = min(height, self._store.height_at(seen))
            yield self._view(height)

    def waiting(self) -> list[Tx]:
        """What is in the mempool, in order."""
        with self._lock:
            return self._pool.txs

    def ledger_utxos(self) -> bytes:
        """The ledger's own unspent outputs at the newest block: a CBOR map, to check the index
        against.
        """
        with self._lock:
            return self._engine.utxos(self._state)

    def audit(self) -> dict[str, Any]:
        """Ledger and index compared at the newest block. differing: unspent outputs that one has
        alone, or with another address or amount.
        """
        with self._lock:
            raw, height = self.ledger_utxos(), self._tip.height
            rows = self._view(height).every_unspent()
        return {"height": height, "unspent": len(rows), "differing": differing(raw, rows)}

    def status(self) -> dict[str, Any]:
        """Where the chain stands, and the sum of all lovelace: genesis + rewards = unspent + fees +
        deposits + accounts.
        """
        with self._lock:
            slot = self.slot()
            return {
                "height": self._tip.height,
                "hash": self._tip.hash,
                "slot": self._tip.slot,
                "now_slot": slot,
                "now_ms": max(
                    (self.system_start + slot) * 1000,
                    self._clock() + (self._store.meta("offset_ms") or 0),
                ),
                "system_start": self.system_start,
                "network_magic": NETWORK_MAGIC,
                "block_ms": self.block_ms,
                "pace": self.pace.name,
                "lag": self._lag,
                "rollbacks": self._meta("fork"),
                "trouble": self._trouble,
                "mempool": [tx.id for tx in self._pool.txs],
                "faucet_address": faucet.ADDRESS,
                "lovelace": self._view(self._tip.height).sums(),
            }

    # --- inside ---

    def _view(self, height: int) -> View:
        return View(self._store.db, height, self.system_start)

    def _meta(self, key: str) -> int:
        value = self._store.meta(key)
        assert value is not None, key
        return value

    def _genesis(self) -> Block:
        block = Block(0, blake2b(b"tally devnet block 0"), None, 0)
        meta = {"system_start": self._clock() // 1000, "fork": 0, "offset_ms": 0}
        self._store.begin(block, faucet.GENESIS, faucet.GENESIS_OUTPUT, meta)
        return block

    def _keep(self, txs: Iterable[Tx], slot: int) -> None:
        """Of these, what the ledger still accepts after the newest block is the mempool."""
        self._pool.hold_survivors(self._state, txs, slot, self._tip.slot)

    def _mint(self, slot: int) -> Block:
        """A block of what waits. slot: read once, for what is dropped and for the block: else one
        may hold what its slot forbids.
        """
        if any(tx.end is not None and tx.end <= slot for tx in self._pool.txs):
            self._keep(self._pool.txs, slot)
        while True:
            taken, rest = self._pool.for_a_block()
            try:
                self._append(slot, taken, rest)
            except Unwritable as problem:
                # Rehearsed, and still not to be written: better without this one, and what builds
                # on it, than no blocks any more.
                _log.error("dropped a transaction that cannot be written: %s", problem)
                self._keep([tx for tx in self._pool.txs if tx.id != problem.tx], slot)
                continue
            return self._tip

    def _append(self, slot: int, taken: list[Waiting], rest: list[Waiting]) -> None:
        """Makes a block of ``taken``, the mempool's beginning, and leaves the rest waiting."""
        self._write(slot, [one.entry for one in taken], [one.tx for one in rest])
        self._state = taken[-1].after if taken else self._state
        self._pool.hold(rest)

    def _write(
        self,
        slot: int,
        entries: list[Entry],
        rest: list[Tx],
        rewards: list[tuple[str, int]] | None = None,
    ) -> None:
        tip = self._tip
        # The fork's number keeps a block that replaces another at the same height and time from
        # having its hash.
        identity = (
            f"{tip.hash} {tip.height + 1} {slot} {self._meta('fork')}"
            f" {[one.tx.id for one in entries]}"
        )
        block = Block(tip.height + 1, blake2b(identity.encode()), tip.hash, slot)
        self._store.append(block, entries, rest, rewards or [])
        self._tip = block

    def _rebuilt(self, height: int) -> State:
        """The ledger state at a height, from the index."""
        rewards = [
            (at, addresses.stake_credential(stake), amount)
            for at, stake, amount in self._store.rewarded(height)
        ]
        governing = [(at, read(raw)) for at, raw in self._store.governing(height)]
        return self._engine.state(self._store.utxos(height), replayed(governing, rewards))

    def _produce(self) -> None:
        """A block at every interval. What stands in the way (a full disk) is told and tried again:
        nothing ends this but ``close``.
        """
        dice = random.Random()
        while not self._stop.is_set():
            if self._woken.wait(self.pace.next_block_ms(dice) / 1000):
                self._woken.clear()  # another pace, or the end
                continue
            try:
                with self._lock:
                    if self.pace.forks(dice):
                        self.fork(min(self.pace.fork_blocks, self._tip.height))
                    self._mint(self.slot())
                self._trouble = None
            except Exception as problem:  # noqa: BLE001 - the thread that makes blocks outlives whatever it is
                if self._trouble is None:
                    _log.exception("no block could be made; trying again at every interval")
                self._trouble = f"{type(problem).__name__}: {problem}"
