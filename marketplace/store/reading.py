"""Where a read runs: here if it is short, else in a thread.

SQLite reads a record by its key in some 20 µs. A thread takes longer than that to be handed the
question, and then waits for the interpreter's lock, which a loop that is busy gives up once in 5 ms
(:func:`sys.getswitchinterval`): six such reads made an answer of 40 ms. So a question is asked here
first, on a connection of the loop's own that waits for nobody's lock and gives up after
:data:`STEPS`. What was given up is asked anew in a thread, as everything is at PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from marketplace.store.engines import create_engine
from marketplace.store.errors import map_database
from marketplace.store.reads import Reads

T = TypeVar("T")
READERS: Final = 8
STEPS: Final = 50_000
"""Of SQLite's machine: about a millisecond, a thousand rows by an index."""
TURN_S: Final = 0.002
_GIVEN_UP: Final = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Reader:
    """The database at *url*, as far as it is read."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, readers=READERS)
        self._there = Reads(self._engine)
        self._limit = anyio.CapacityLimiter(READERS)
        self._own = _own_engine(url) if self._engine.dialect.name == "sqlite" else None
        self._here = Reads(self._own) if self._own is not None else None
        self._turn_over = 0.0

    @property
    def in_threads(self) -> bool:
        """Whether every question costs one."""
        return self._here is None

    async def ask(self, question: Callable[[Reads], T]) -> T:
        """Its answer; *question* may be asked twice. A StoreFault or a refusal."""
        if self._here is not None:
            await self._let_others()
            try:
                return question(self._here)
            except SQLAlchemyError as error:
                if not _given_up(error):
                    raise map_database(error) from error
        return await anyio.to_thread.run_sync(self._in_thread, question, limiter=self._limit)

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()
        if self._own is not None:
            self._own.dispose()

    async def _let_others(self) -> None:
        """Whoever reads without end holds nobody up for longer than :data:`TURN_S`."""
        if time.monotonic() >= self._turn_over:
            await anyio.lowlevel.checkpoint()
            self._turn_over = time.monotonic() + TURN_S

    def _in_thread(self, question: Callable[[Reads], T]) -> T:
        try:
            return question(self._there)
        except SQLAlchemyError as error:
            raise map_database(error) from error


def _own_engine(url: str) -> Engine:
    engine = create_engine(url, readers=1)
    event.listen(engine, "connect", _short)
    return engine


def _short(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA busy_timeout=0")
    connection.set_progress_handler(lambda: 1, STEPS)


def _given_up(error: SQLAlchemyError) -> bool:
    """By SQLite's own code, whose low byte is the kind (sqlite.org/rescode.html)."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return getattr(orig, "sqlite_errorcode", 0) & 0xFF in _GIVEN_UP
