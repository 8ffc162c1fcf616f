"""A short read is answered where it is asked for; what takes long, or would wait, in a thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import sqlalchemy as sa

from marketplace.store.errors import StoreFault
from marketplace.store.reading import Reader
from marketplace.store.reads import Reads

pytestmark = pytest.mark.anyio
_ROWS = sa.table("rows", sa.column("n", sa.Integer))
_AGAIN = _ROWS.alias("again")
SHORT = sa.select(sa.func.count()).select_from(_ROWS).where(_ROWS.c.n == 7)
LONG = sa.select(sa.func.count()).select_from(_ROWS.join(_AGAIN, sa.true()))
WRONG = sa.select(sa.table("missing", sa.column("n", sa.Integer)).c.n)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "market.db"
    with sqlite3.connect(path) as books:
        books.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY)")
        books.executemany("INSERT INTO rows VALUES (?)", [(n,) for n in range(1000)])
    books.close()
    return path


def asking(statement: sa.Select[Any], where: list[bool]) -> Callable[[Reads], int]:
    """The question, which notes each time whether it is asked in the loop's own thread."""
    loop = threading.get_ident()

    def question(reads: Reads) -> int:
        where.append(threading.get_ident() == loop)
        return reads.number(statement)

    return question


async def test_a_short_question_is_answered_here_and_a_long_one_in_a_thread(file: Path) -> None:
    reader = Reader(f"sqlite:///{file}")
    short: list[bool] = []
    long: list[bool] = []
    assert await reader.ask(asking(SHORT, short)) == 1
    assert await reader.ask(asking(LONG, long)) == 1_000_000
    assert short == [True] and long == [True, False]
    assert await reader.ask(asking(SHORT, short)) == 1  # what gave up left its connection sound
    assert short == [True, True]
    reader.close()


async def test_the_loop_waits_for_nobodys_lock(file: Path) -> None:
    reader = Reader(f"sqlite:///{file}")
    assert await reader.ask(asking(SHORT, [])) == 1
    where: list[bool] = []
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA locking_mode=EXCLUSIVE")
    reader.close()  # nobody reads: the writer has the file for itself
    writer.execute("INSERT INTO rows VALUES (5000)")
    found: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def read() -> None:
            found.append(await reader.ask(asking(SHORT, where)))

        tasks.start_soon(read)
        while len(where) < 2:  # noqa: ASYNC110  asked anew in a thread, which waits for the lock
            await anyio.sleep(0.01)
        writer.close()
    assert found == [1] and where == [True, False]
    reader.close()


async def test_who_reads_without_end_holds_nobody_up(file: Path) -> None:
    reader = Reader(f"sqlite:///{file}")
    over = anyio.Event()

    async def read() -> None:
        while not over.is_set():
            await reader.ask(asking(SHORT, []))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        over.set()
    reader.close()


async def test_what_is_wrong_is_said_and_not_asked_again(file: Path) -> None:
    reader = Reader(f"sqlite:///{file}")
    where: list[bool] = []
    with pytest.raises(StoreFault, match="no such table"):
        await reader.ask(asking(WRONG, where))
    assert where == [True]
    reader.close()
