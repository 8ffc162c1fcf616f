"""Connections to the database, by its URL."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine


def normal_url(url: str) -> str:
    """``sqlite:///file`` or ``postgresql://…`` as the driver wants it."""
    for prefix in ("postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def create_engine(url: str, *, readers: int = 0) -> Engine:
    """An engine with the durability that money needs, set on every connection.

    *readers*: it only reads, over so many connections in autocommit, given back as they are.
    """
    more: dict[str, Any] = {"pool_size": 4, "max_overflow": 12}
    if readers:
        more = {"pool_size": readers, "max_overflow": 0, "pool_reset_on_return": None}
        more["isolation_level"] = "AUTOCOMMIT"
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True, **more)
    _owners_alone(url)
    engine = sa.create_engine(url, **more)
    event.listen(engine, "connect", _sqlite_pragmas)
    if readers:
        event.listen(engine, "connect", _read_only)
    return engine


def _owners_alone(url: str) -> None:
    """The file holds jobs, logs and tokens' hashes: nobody else's to read, wherever it lies. SQLite
    gives its write-ahead log the same mode (sqlite.org/wal.html).
    """
    path = sa.make_url(url).database
    if path and path != ":memory:" and not path.startswith("file:"):
        with contextlib.suppress(FileNotFoundError):  # a folder that is missing is told by SQLite
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(path, 0o600)


def _sqlite_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _read_only(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only=ON")
