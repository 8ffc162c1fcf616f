"""A database without room is called so, whichever it is: by its own code, not by its words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg.errors
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from marketplace.store.errors import StoreFault, map_database


def sqlite_full(folder: Path) -> BaseException:
    with sqlite3.connect(folder / "small.db") as books:
        books.execute("CREATE TABLE rows (data BLOB)")
        books.execute("PRAGMA max_page_count=3")
        with pytest.raises(sqlite3.Error) as full:
            books.execute("INSERT INTO rows VALUES (zeroblob(100000))")
    return full.value


@pytest.mark.parametrize("which", ["sqlite", "postgresql"])
def test_a_database_without_room_is_called_so(tmp_path: Path, which: str) -> None:
    original = sqlite_full(tmp_path) if which == "sqlite" else psycopg.errors.DiskFull("no space")
    fault = map_database(OperationalError("INSERT", {}, original))
    assert isinstance(fault, StoreFault) and fault.code == "DISK_FULL"


def test_another_fault_of_a_database_is_not() -> None:
    engine = sa.create_engine("sqlite:////nowhere/at/all.db")
    with pytest.raises(OperationalError) as away:
        engine.connect()
    assert map_database(away.value).code == "STORE_FAULT"
