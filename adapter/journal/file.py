"""The journal's file: its tables, how it is opened, and what SQLite's errors mean.

* ``ticks``: primary key (lease, seq), insert-or-ignore, each row's hash over the one before, so a
  tick cannot be counted twice and a lost or altered row shows;
* ``vouchers``: only ever replaced by a greater one;
* ``outbox``: messages until the market has acknowledged them;
* ``transactions``: bytes and id of everything sent to the chain, stored before it is sent;
* ``payments``: what each transaction in a block did to our money (:mod:`.payments`), kept for good;
* ``spent``: session keys of channels that are forgotten;
* ``debtors``: whose leases ended for want of payment;
* ``losses``: what was served on opens that no block ever held;
* ``hop_payments``, ``hop_leases``: of routers' hops (:mod:`.hops`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from adapter.journal import hops
from adapter.journal.codec import JournalFault, JournalHeld
from marketplace.disk import DiskFault, DiskFull

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
  id TEXT PRIMARY KEY, fixed BLOB NOT NULL, moving BLOB NOT NULL, ended INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticks (
  lease TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, signature BLOB NOT NULL,
  hash BLOB NOT NULL, PRIMARY KEY (lease, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS channels (session_vk BLOB PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vouchers (
  session_vk BLOB PRIMARY KEY, cumulative INTEGER NOT NULL, signature BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (n INTEGER PRIMARY KEY AUTOINCREMENT, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS spent (session_vk BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS debtors (
  consumer BLOB PRIMARY KEY, strikes INTEGER NOT NULL, at_wall_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS losses (wall_ms INTEGER NOT NULL, lovelace INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS transactions (
  n INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, body BLOB NOT NULL,
  purpose TEXT NOT NULL, state TEXT NOT NULL, height INTEGER
);
CREATE TABLE IF NOT EXISTS payments (
  tx BLOB PRIMARY KEY, at_ms INTEGER NOT NULL, body BLOB NOT NULL
) WITHOUT ROWID;
"""
VERSION: Final = b"1"
WAL_BYTES: Final = 4 << 20
_INCREMENTAL: Final = 2  # SQLite's number for it


class JournalFile:
    """The database at *path*, open and locked: another process waits *wait_s* for it in vain.
    *connect* opens it; *db* is the connection, on which whoever has it takes turns.
    """

    def __init__(self, path: Path, wait_s: float, connect: Callable[..., Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        with self.mapped("open"):
            self.db = connect(path, wait_s, isolation_level=None, check_same_thread=False)
            self.db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._shrinkable()
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
            self.db.execute("PRAGMA synchronous=FULL")
            self.db.executescript(_SCHEMA + hops.SCHEMA)
            self.db.execute("INSERT OR IGNORE INTO meta VALUES ('version', ?)", (VERSION,))
            found = self.db.execute("SELECT value FROM meta WHERE name='version'").fetchone()
        if found[0] != VERSION:
            raise JournalFault(f"the journal has version {found[0]!r}, this adapter {VERSION!r}")
        path.chmod(0o600)

    def _shrinkable(self) -> None:
        """Let the file give back what it no longer needs; one of an older adapter is rewritten
        once.
        """
        if self.db.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            self.db.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
            self.db.execute("VACUUM")

    @contextmanager
    def transaction(self) -> Generator[None]:
        """All that is executed within, or none of it."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # a full or failing disk may have rolled back already
                self.db.execute("ROLLBACK")
            raise

    @contextmanager
    def mapped(self, what: str) -> Generator[None]:
        """The one door for SQLite's errors."""
        try:
            yield
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # an extended one's primary code
            text = f"could not {what}: {self._path}: {error}"
            if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise JournalHeld(text) from error
            if kind == sqlite3.SQLITE_FULL:
                raise DiskFull(text) from error
            if kind == sqlite3.SQLITE_IOERR:
                raise DiskFault(text) from error
            raise JournalFault(f"could not {what}: {error}") from error
