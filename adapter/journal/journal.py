"""The journal: what the adapter must still know after a ``kill -9`` at any instruction.

SQLite in WAL mode with ``synchronous=FULL``: a commit has reached the disk when it returns.  One
decision is one transaction: its receipts, the leases and channels that it changed, the greatest
voucher, and the messages that the market must get.  Either all of it happened or none.

The tables are :mod:`.file`'s.

What is over is dropped in the transaction that forgets it: a lease that never came to a channel,
and a finished channel with its voucher, its leases and their ticks.  The pages that this frees go
back to the file system by SQLite's own incremental vacuum, itself a transaction: at any instruction
the file holds either all of a thing or none of it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cbor2

from adapter.core.events import Outcome, Send
from adapter.core.state import Channel, Debtor, Lease, Past, State
from adapter.core.young import Loss
from adapter.journal import hops
from adapter.journal.codec import (
    JournalFault,
    channel_from,
    channel_row,
    lease_fixed,
    lease_from,
    lease_moving,
)
from adapter.journal.file import JournalFile
from marketplace.domain.canonical import blake2b_256
from marketplace.domain.money.receipt import SignedReceipt
from marketplace.domain.money.voucher import Voucher
from marketplace.domain.protocol import codec, wire
from marketplace.domain.work.lease import LeaseState

GENESIS: Final = bytes(32)
OLD_TRANSACTIONS: Final = 200
"""So many of the chain's transactions are kept after they are final, for the owner to look at."""


@dataclass(frozen=True, slots=True)
class StoredTx:
    """A transaction that was, or was about to be, sent: its id, bytes, purpose and state's name."""

    id: bytes
    body: bytes
    purpose: str
    state: str
    height: int | None


class Journal:
    """One file, one writer: the file is locked, and another process waits *wait_s* for it in vain.
    Blocking: call it in a thread.  A disk that is full or fails is a
    :class:`~marketplace.disk.DiskFault`: the transaction did not happen, and the process ends.
    *connect* opens the database."""

    def __init__(
        self, path: Path, wait_s: float = 5.0, connect: Callable[..., Any] = sqlite3.connect
    ) -> None:
        self._file = JournalFile(path, wait_s, connect)
        self._db = self._file.db
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._channels: dict[bytes, Channel] = {}
        self._fixed: dict[str, bytes] = {}
        self._tails: dict[str, bytes] = {}
        self._draining = False
        self._past: Past = Past()
        self._debtors: Mapping[bytes, Debtor] = {}
        self._losses: tuple[Loss, ...] = ()

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._db.close()

    # ---- reading --------------------------------------------------------------------------------

    def load(self) -> State:
        """The state that was last committed; the hash chain of every live lease is verified."""
        with self._lock, self._file.mapped("load"):
            vouchers = {
                vk: Voucher(vk, cumulative, signature)
                for vk, cumulative, signature in self._db.execute("SELECT * FROM vouchers")
            }
            self._channels = {
                vk: self._whole(channel_from(vk, row, vouchers.get(vk)))
                for vk, row in self._db.execute("SELECT session_vk, row FROM channels")
            }
            self._drop_strays()
            rows = self._db.execute("SELECT id, fixed, moving FROM leases WHERE ended=0")
            self._leases = {id_: lease_from(id_, fixed, moving) for id_, fixed, moving in rows}
            self._fixed = {id_: lease_fixed(lease) for id_, lease in self._leases.items()}
            self._tails = {id_: self._tail(id_) for id_ in self._leases}
            drain = self._db.execute("SELECT value FROM meta WHERE name='draining'").fetchone()
            self._past = self._read_past()
            self._debtors = {
                vkh: Debtor(strikes, at)
                for vkh, strikes, at in self._db.execute("SELECT * FROM debtors")
            }
            lost = self._db.execute("SELECT wall_ms, lovelace FROM losses ORDER BY rowid")
            self._losses = tuple(Loss(at, lovelace) for at, lovelace in lost)
        for lease in self._leases.values():
            if lease.last is not None and not self._has(lease.id, lease.last.seq):
                raise JournalFault(f"lease {lease.id}: its last tick is not in the journal")
        self._draining = drain is not None and drain[0] == b"1"
        return State(
            dict(self._leases), dict(self._channels), draining=self._draining, past=self._past,
            debtors=self._debtors, losses=self._losses,
        )  # fmt: skip

    def _whole(self, channel: Channel) -> Channel:
        if channel.hop is None:
            return channel
        hop = hops.filled(self._db, channel.hop)
        return replace(channel, hop=hop, voucher=hop.last and hop.last.voucher)

    def _drop_strays(self) -> None:
        """Ended leases without a channel, as adapters before this rule left them."""
        ended = {id_ for (id_,) in self._db.execute("SELECT id FROM leases WHERE ended=1")}
        for id_ in ended.difference(*(one.leases for one in self._channels.values())):
            self._drop_lease(id_)

    def _read_past(self) -> Past:
        keys = frozenset(vk for (vk,) in self._db.execute("SELECT session_vk FROM spent"))
        found = self._db.execute("SELECT value FROM meta WHERE name='past'").fetchone()
        paid, claimed = (0, 0) if found is None else cbor2.loads(found[0])
        return Past(keys, paid, claimed)

    def ended_leases(self) -> list[Lease]:
        """Leases that are over and whose channels are still known, with what they came to. Their
        rows are as they stood in their last second; the mark beside them says that they ended.
        """
        with self._lock, self._file.mapped("read ended leases"):
            rows = self._db.execute("SELECT id, fixed, moving FROM leases WHERE ended=1").fetchall()
        last = (lease_from(id_, fixed, moving) for id_, fixed, moving in rows)
        return [replace(lease, state=LeaseState.ENDED) for lease in last]

    def outbox(self) -> list[tuple[int, bytes]]:
        """Messages that the market has not acknowledged, oldest first."""
        with self._lock, self._file.mapped("read the outbox"):
            return list(self._db.execute("SELECT n, payload FROM outbox ORDER BY n"))

    def ticks(self, lease: str) -> list[SignedReceipt]:
        """All receipts of a lease, in order."""
        with self._lock, self._file.mapped("read ticks"):
            rows = self._db.execute(
                "SELECT body, signature FROM ticks WHERE lease=? ORDER BY seq", (lease,)
            )
            return [SignedReceipt(body, signature) for body, signature in rows]

    def _has(self, lease: str, seq: int) -> bool:
        found = self._db.execute("SELECT 1 FROM ticks WHERE lease=? AND seq=?", (lease, seq))
        return found.fetchone() is not None

    def _tail(self, lease: str) -> bytes:
        """The last row's hash, every row before it verified."""
        tail = GENESIS
        rows = self._db.execute(
            "SELECT seq, body, signature, hash FROM ticks WHERE lease=? ORDER BY seq", (lease,)
        )
        for seq, body, signature, stored in rows:
            tail = _chain(tail, body, signature)
            if tail != stored:
                raise JournalFault(f"lease {lease}: the journal was altered at tick {seq}")
        return tail

    # ---- writing --------------------------------------------------------------------------------

    def write(self, outcome: Outcome) -> list[int]:
        """Commit *outcome*; the outbox numbers of its durable messages, in their order."""
        state = outcome.state
        messages = [e.message for e in outcome.effects if isinstance(e, Send) and e.durable]
        with self._lock, self._file.mapped("write"), self._transaction():
            tails = dict(self._tails)
            for signed in outcome.ticks:
                self._tick(signed, tails)
            for id_, lease in state.leases.items():
                if self._leases.get(id_) is not lease:
                    self._put_lease(lease)
            for id_ in self._leases.keys() - state.leases.keys():
                self._end_lease(self._leases[id_], state)
            forgotten = self._channels.keys() - state.channels.keys()
            for vk in forgotten:
                self._forget_channel(self._channels[vk])
            hops.drop(self._db, [self._channels[vk] for vk in forgotten])
            if state.past is not self._past:
                self._put_past(state.past)
            for vk, channel in state.channels.items():
                if self._channels.get(vk) is not channel:
                    self._put_channel(channel)
            if state.debtors is not self._debtors:
                self._db.execute("DELETE FROM debtors")
                rows = [(vkh, one.strikes, one.at_wall_ms) for vkh, one in state.debtors.items()]
                self._db.executemany("INSERT INTO debtors VALUES (?,?,?)", rows)
            if state.losses is not self._losses:
                self._db.execute("DELETE FROM losses")
                lost = [(one.wall_ms, one.lovelace) for one in state.losses]
                self._db.executemany("INSERT INTO losses VALUES (?,?)", lost)
            if state.draining is not self._draining:
                flag = b"1" if state.draining else b"0"
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('draining', ?)", (flag,))
            numbers = [self._post(message) for message in messages]
        self._leases, self._channels = dict(state.leases), dict(state.channels)
        self._tails = {k: v for k, v in tails.items() if k in state.leases}
        self._fixed = {k: v for k, v in self._fixed.items() if k in state.leases}
        self._draining, self._past = state.draining, state.past
        self._debtors, self._losses = state.debtors, state.losses
        if forgotten:
            self._shrink()
        return numbers

    def _end_lease(self, lease: Lease, state: State) -> None:
        """It is history for as long as its channel is; one that never came to a channel is
        nothing.
        """
        channel = state.channels.get(lease.channel)
        if channel is not None and lease.id in channel.leases:
            self._db.execute("UPDATE leases SET ended=1 WHERE id=?", (lease.id,))
        else:
            self._drop_lease(lease.id)

    def _drop_lease(self, id_: str) -> None:
        self._db.execute("DELETE FROM ticks WHERE lease=?", (id_,))
        self._db.execute("DELETE FROM leases WHERE id=?", (id_,))

    def _forget_channel(self, channel: Channel) -> None:
        for id_ in channel.leases:
            self._drop_lease(id_)
        for table in ("channels", "vouchers"):
            self._db.execute(f"DELETE FROM {table} WHERE session_vk=?", (channel.session_vk,))
        self._db.execute(
            "DELETE FROM transactions WHERE state IN ('FINAL', 'EXPIRED') "
            "AND n <= (SELECT max(n) FROM transactions) - ?",
            (OLD_TRANSACTIONS,),
        )

    def _put_past(self, past: Past) -> None:
        row = cbor2.dumps([past.paid, past.claimed])
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('past', ?)", (row,))
        fresh = [(vk,) for vk in past.keys - self._past.keys]
        self._db.executemany("INSERT OR IGNORE INTO spent VALUES (?)", fresh)

    def _shrink(self) -> None:
        """Give the pages of what was dropped back to the file system."""
        with self._lock, self._file.mapped("shrink"):
            self._db.execute("PRAGMA incremental_vacuum").fetchall()

    def acknowledged(self, numbers: Iterable[int]) -> None:
        """The market has these messages; a repetition after a crash here does no harm."""
        with self._lock, self._file.mapped("clear the outbox"), self._transaction():
            self._db.executemany("DELETE FROM outbox WHERE n=?", [(n,) for n in numbers])

    def _tick(self, signed: SignedReceipt, tails: dict[str, bytes]) -> None:
        receipt = signed.receipt
        tail = _chain(tails.get(receipt.lease, GENESIS), signed.body, signed.signature)
        done = self._db.execute(
            "INSERT OR IGNORE INTO ticks VALUES (?,?,?,?,?)",
            (receipt.lease, receipt.seq, signed.body, signed.signature, tail),
        )
        if done.rowcount == 0:
            raise JournalFault(f"lease {receipt.lease}: tick {receipt.seq} is there already")
        tails[receipt.lease] = tail

    def _put_lease(self, lease: Lease) -> None:
        fixed = lease_fixed(lease)
        if self._fixed.get(lease.id) == fixed:
            self._db.execute(
                "UPDATE leases SET moving=? WHERE id=?", (lease_moving(lease), lease.id)
            )
            return
        self._db.execute(
            "INSERT OR REPLACE INTO leases VALUES (?,?,?,0)", (lease.id, fixed, lease_moving(lease))
        )
        self._fixed[lease.id] = fixed

    def _put_channel(self, channel: Channel) -> None:
        vk, hop = channel.session_vk, channel.hop
        known = self._channels.get(vk)
        if hop is not None:
            hops.put(self._db, known.hop if known else None, hop)
        if hop is None or known is None or not _still(known, channel):
            row = channel_row(channel)
            self._db.execute("INSERT OR REPLACE INTO channels VALUES (?,?)", (vk, row))
        if channel.voucher is not None and hop is None:
            self._db.execute(
                "INSERT INTO vouchers VALUES (?,?,?) ON CONFLICT (session_vk) DO UPDATE SET "
                "cumulative=excluded.cumulative, signature=excluded.signature "
                "WHERE excluded.cumulative > vouchers.cumulative",
                (vk, channel.voucher.cumulative, channel.voucher.signature),
            )

    def _post(self, message: wire.Message) -> int:
        payload = codec.to_bytes(message)
        number = self._db.execute("INSERT INTO outbox (payload) VALUES (?)", (payload,)).lastrowid
        assert number is not None
        return number

    # ---- the network ----------------------------------------------------------------------------

    def network(self) -> int | None:
        """The magic of the network that this journal's channels are on; None in a new journal."""
        with self._lock, self._file.mapped("read the network"):
            found = self._db.execute("SELECT value FROM meta WHERE name='network'").fetchone()
        return None if found is None else int.from_bytes(found[0])

    def bind(self, magic: int) -> None:
        """Remember the network, so that the next start need not wait for the chain to say it."""
        with self._lock, self._file.mapped("remember the network"), self._transaction():
            row = ("network", magic.to_bytes(4))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", row)

    # ---- transactions ---------------------------------------------------------------------------

    def waiting_ends(self) -> dict[bytes, int]:
        """Since when (the chain's clock, ms) each end waits for others', by session key."""
        with self._lock, self._file.mapped("read what waits to end"):
            found = self._db.execute("SELECT value FROM meta WHERE name='ends'").fetchone()
            return {} if found is None else dict(cbor2.loads(found[0]))

    def put_waiting_ends(self, since: Mapping[bytes, int]) -> None:
        """The same, durable when this returns."""
        with self._lock, self._file.mapped("store what waits to end"), self._transaction():
            row = cbor2.dumps(dict(since))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('ends', ?)", (row,))

    def put_transaction(self, tx: StoredTx) -> None:
        """Store *tx*, or its new state; durable when this returns."""
        with self._lock, self._file.mapped("store a transaction"), self._transaction():
            self._db.execute(
                "INSERT INTO transactions (id, body, purpose, state, height) VALUES (?,?,?,?,?) "
                "ON CONFLICT (id) DO UPDATE SET state=excluded.state, height=excluded.height",
                (tx.id, tx.body, tx.purpose, tx.state, tx.height),
            )

    def transactions(self, without: tuple[str, ...] = ()) -> list[StoredTx]:
        """Everything that was sent, oldest first, but those in the states *without*."""
        with self._lock, self._file.mapped("read transactions"):
            rows = self._db.execute(
                "SELECT id, body, purpose, state, height FROM transactions "
                f"WHERE state NOT IN ({','.join('?' * len(without))}) ORDER BY n",
                without,
            )
            return [StoredTx(*row) for row in rows]

    def transaction(self, id_: bytes) -> StoredTx | None:
        """One of them by its id."""
        with self._lock, self._file.mapped("read a transaction"):
            row = self._db.execute(
                "SELECT id, body, purpose, state, height FROM transactions WHERE id=?", (id_,)
            ).fetchone()
        return None if row is None else StoredTx(*row)

    # ---- payments -------------------------------------------------------------------------------

    def payments(self) -> list[tuple[bytes, int, bytes]]:
        """Every row: the transaction's id, its block's time, and the rest (:mod:`.payments`)."""
        with self._lock, self._file.mapped("read payments"):
            return list(self._db.execute("SELECT tx, at_ms, body FROM payments"))

    def put_payment(self, tx: bytes, at_ms: int, body: bytes) -> None:
        """Store or replace one; durable when this returns."""
        with self._lock, self._file.mapped("store a payment"), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO payments VALUES (?,?,?)", (tx, at_ms, body))

    def drop_payment(self, tx: bytes) -> None:
        """Take one out again."""
        with self._lock, self._file.mapped("drop a payment"), self._transaction():
            self._db.execute("DELETE FROM payments WHERE tx=?", (tx,))

    @contextmanager
    def _transaction(self) -> Generator[None]:
        try:
            with self._file.transaction():
                yield
        except BaseException:
            self._fixed.clear()  # what was put is rolled back: write it whole the next time
            raise


def _chain(previous: bytes, body: bytes, signature: bytes) -> bytes:
    return blake2b_256(previous + body + signature)


def _still(known: Channel, channel: Channel) -> bool:
    """Whether the channel's own row is as it was: a hop's tick changes its other rows only."""
    return replace(known, hop=channel.hop, voucher=channel.voucher) == channel
