"""The tables of the chain on disk, and the sum that their queries use. Rows carry the height at
which they appeared.
"""

from __future__ import annotations

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS block (
    height INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, previous TEXT, slot INTEGER NOT NULL,
    txs INTEGER NOT NULL, size INTEGER NOT NULL, fees INTEGER NOT NULL, output TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tx (
    id TEXT PRIMARY KEY, height INTEGER NOT NULL, position INTEGER NOT NULL, raw BLOB NOT NULL,
    fee INTEGER NOT NULL, deposit INTEGER NOT NULL, governs INTEGER NOT NULL,
    UNIQUE (height, position));
CREATE TABLE IF NOT EXISTS output (
    tx TEXT NOT NULL, ix INTEGER NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    address TEXT NOT NULL, payment TEXT NOT NULL, is_script INTEGER NOT NULL, stake TEXT,
    lovelace INTEGER NOT NULL, assets TEXT NOT NULL, datum_hash TEXT, inline_datum TEXT,
    script_hash TEXT, raw BLOB NOT NULL, spent_by TEXT, spent_height INTEGER,
    PRIMARY KEY (tx, ix)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS output_address ON output (address);
CREATE INDEX IF NOT EXISTS output_unspent ON output (address) WHERE spent_height IS NULL;
CREATE INDEX IF NOT EXISTS output_payment ON output (payment);
CREATE INDEX IF NOT EXISTS output_stake ON output (stake);
CREATE INDEX IF NOT EXISTS output_spent ON output (spent_by);
CREATE INDEX IF NOT EXISTS output_height ON output (height);
CREATE INDEX IF NOT EXISTS output_spent_height ON output (spent_height);
CREATE TABLE IF NOT EXISTS mint (
    unit TEXT NOT NULL, tx TEXT NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    quantity INTEGER NOT NULL, PRIMARY KEY (unit, tx));
CREATE TABLE IF NOT EXISTS script (
    hash TEXT PRIMARY KEY, height INTEGER NOT NULL, kind INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS datum (
    hash TEXT PRIMARY KEY, height INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS redeemer (
    script_hash TEXT, tx TEXT NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    tag INTEGER NOT NULL, ix INTEGER NOT NULL, data_hash TEXT NOT NULL, memory INTEGER NOT NULL,
    steps INTEGER NOT NULL, PRIMARY KEY (tx, tag, ix));
CREATE TABLE IF NOT EXISTS certificate (
    tx TEXT NOT NULL, ix INTEGER NOT NULL, height INTEGER NOT NULL, position INTEGER NOT NULL,
    kind INTEGER NOT NULL, stake TEXT, pool TEXT, PRIMARY KEY (tx, ix));
CREATE TABLE IF NOT EXISTS withdrawal (
    tx TEXT NOT NULL, stake TEXT NOT NULL, height INTEGER NOT NULL, lovelace INTEGER NOT NULL,
    PRIMARY KEY (tx, stake));
CREATE TABLE IF NOT EXISTS reward (
    height INTEGER NOT NULL, stake TEXT NOT NULL, lovelace INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS mempool (
    position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, raw BLOB NOT NULL);
"""
BY_HEIGHT = ("block", "tx", "output", "mint", "script", "datum", "redeemer", "certificate")
# Of the tables above; a state that has another is indexed again.
VERSION = 1


class ExactSum:
    """SQL's sum of integers, or of their texts, however large: as text, for SQLite's own ends in an
    error at 2^63.
    """

    def __init__(self) -> None:
        self._total = 0

    def step(self, value: int | str | None) -> None:
        self._total += int(value or 0)

    def finalize(self) -> str:
        return str(self._total)
