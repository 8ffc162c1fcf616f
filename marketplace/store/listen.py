"""PostgreSQL's LISTEN: what other market processes committed, brought into this one's event
loop.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import psycopg
import structlog

from marketplace.store.database import CHANNEL, Database

log = structlog.get_logger("store")
Heard = Callable[[list[str]], None]


async def listen(database: Database, heard: Heard, ready: anyio.Event | None = None) -> None:
    """Run for ever: *heard* gets the topics of other processes. Returns at once on SQLite.

    After a lost connection *heard* gets ``["*"]``: anything may have been missed.
    """
    if database.dialect != "postgresql":
        if ready is not None:
            ready.set()
        return
    url = database.url.replace("postgresql+psycopg://", "postgresql://")
    stop = threading.Event()

    def started() -> None:
        heard(["*"])
        if ready is not None:
            ready.set()

    def work() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            anyio.from_thread.run_sync(started)
            while not stop.is_set():
                for note in connection.notifies(timeout=0.5, stop_after=1):
                    sender, *topics = cast(list[Any], json.loads(note.payload))
                    if sender != database.process:
                        anyio.from_thread.run_sync(heard, [str(t) for t in topics])

    try:
        while True:
            try:
                await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
            except psycopg.Error as error:
                log.warning("listen", error=str(error)[:200])
                await anyio.sleep(1)
    finally:
        stop.set()
