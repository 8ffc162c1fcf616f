"""What the market remembers: every record and table, and a database of before, brought up to
date.
"""

from __future__ import annotations

import sqlite3
import tempfile
from dataclasses import fields
from pathlib import Path

import anyio
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from marketplace.market.base import records
from marketplace.market.base.ports import Change
from marketplace.store.database import Database
from marketplace.store.migrate import migrate
from marketplace.store.tables import ROWS
from tests.fakes import FakeClock, FakeIds
from tests.unit.support.golden import filled, golden, pinned
from tests.unit.support.pinned import GIVEN

KINDS = [
    one
    for one in records.Record.__subclasses__()
    if one.__module__.startswith(f"{records.__name__}.")
]


def test_every_record_has_its_table() -> None:
    assert set(KINDS) == ROWS.keys()


def test_every_record_keeps_its_fields() -> None:
    golden(
        "records.json",
        {
            kind.__name__: {
                "key": list(kind.KEY),
                "fixed": sorted(kind.FIXED),
                "fields": {f.name: str(f.type) for f in fields(kind)},
            }
            for kind in KINDS
        },
    )


def test_every_table_keeps_its_columns() -> None:
    golden("tables.json", {row.__table__.name: _table(row.__table__) for row in ROWS.values()})  # pyright: ignore[reportAttributeAccessIssue] (SQLModel's own)


def _table(table: sa.Table) -> dict[str, object]:
    def kind(column: sa.Column[object]) -> str:
        types = [column.type.compile(one.dialect()) for one in (sqlite, postgresql)]
        return " / ".join([*types, *(["NULL"] if column.nullable else [])])

    return {
        "columns": {column.name: kind(column) for column in table.columns},
        "key": [column.name for column in table.primary_key],
        "indexes": {
            str(index.name): [*index.columns.keys(), *(["unique"] if index.unique else [])]
            for index in table.indexes
        },
        "unique": [c.name for c in table.columns if c.unique],
    }


def test_a_database_of_before_is_brought_up_to_date_and_read() -> None:
    """A record of each kind, every field filled, through all migrations that came since."""
    with tempfile.TemporaryDirectory() as folder:
        made = anyio.run(_written, Path(folder) / "market.db")
    pinned("database.json", {"database": made}, lambda _, data: anyio.run(_read, data))


async def _written(path: Path) -> bytes:
    url = f"sqlite:///{path}"
    migrate(url)
    store = Database(url, "process", FakeClock(), FakeIds())
    await store.apply(Change(puts=[filled(kind, {**GIVEN, "id": "an id"}) for kind in KINDS]))
    store.close()
    with sqlite3.connect(path) as db:
        lines = list(db.iterdump())
    db.close()
    indexes = [one for one in lines if " INDEX " in one.partition("(")[0]]  # they are in no order
    rest = [one for one in lines if one not in indexes]
    return "\n".join([*rest[:-1], *sorted(indexes), rest[-1]]).encode()


async def _read(data: bytes) -> dict[str, list[records.Record]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "market.db"
        with sqlite3.connect(path) as db:
            db.executescript(data.decode())
        db.close()
        migrate(f"sqlite:///{path}")
        store = Database(f"sqlite:///{path}", "process", FakeClock(), FakeIds())
        try:
            return {kind.__name__: await store.find(kind) for kind in KINDS}
        finally:
            store.close()
