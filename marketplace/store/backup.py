"""Back up and restore: one file of CBOR rows, the same from SQLite and from PostgreSQL.

A backup is one consistent snapshot, taken while the market runs. It is restored into an empty
database only, of either kind, so that moving to PostgreSQL is a backup and a restore. Blobs are
plain files: copy their folder.
"""

from __future__ import annotations

import os
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import cbor2
import sqlalchemy as sa

from marketplace.domain.errors import Conflict, Malformed
from marketplace.market.base.records import Record
from marketplace.store import sql
from marketplace.store.engines import create_engine, normal_url
from marketplace.store.migrate import upgrade
from marketplace.store.tables import ROWS

FORMAT: Final = "tally/backup/v1"
CHUNK: Final = 500


def backup(url: str, path: Path) -> int:
    """Write everything to *path* (mode 600: it holds everybody's jobs and logs); how many rows."""
    engine = create_engine(normal_url(url))
    count = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file, engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ")
            connection.begin()
            cbor2.dump([FORMAT, _schema()], file)
            for kind in ROWS:
                columns = [sql.table(kind).c[n] for n in sql.names(kind)]
                for row in connection.execute(sa.select(*columns)):
                    cbor2.dump([kind.__name__, [_plain(v) for v in row]], file)
                    count += 1
            cbor2.dump(["end", count], file)
            file.flush()
            os.fsync(file.fileno())
    finally:
        engine.dispose()
    return count


def restore(url: str, path: Path) -> int:
    """Everything of *path* into the empty database at *url*, all or nothing; how many rows.

    Conflict when the database holds anything; Malformed when the file is cut short or not ours.
    """
    engine = create_engine(normal_url(url))
    try:
        upgrade(engine)
        with engine.begin() as connection, path.open("rb") as file:
            for kind in ROWS:
                if connection.execute(sql.counting(kind, {})).scalar():
                    raise Conflict("the database is not empty: restore into a fresh one")
            return _load(connection, file)
    finally:
        engine.dispose()


def _load(connection: sa.Connection, file: BinaryIO) -> int:
    if _next(file) != [FORMAT, _schema()]:
        raise Malformed("this is no backup of this version of the market")
    kinds = {kind.__name__: kind for kind in ROWS}
    waiting: dict[type[Record], list[dict[str, Any]]] = {}
    count = 0
    while True:
        name, row = _next(file)
        if name == "end":
            break
        if name not in kinds:
            raise Malformed(f"the backup holds {str(name)[:40]!r}")
        kind = kinds[name]
        rows = waiting.setdefault(kind, [])
        rows.append(_typed(kind, cast(list[Any], row)))
        count += 1
        if len(rows) >= CHUNK:
            connection.execute(sql.insertion(kind), rows)
            rows.clear()
    for kind, rows in waiting.items():
        if rows:
            connection.execute(sql.insertion(kind), rows)
    if row != count:
        raise Malformed("rows are missing from the backup")
    return count


def _next(file: BinaryIO) -> list[Any]:
    try:
        value = cbor2.load(file)
    except (cbor2.CBORError, ValueError, EOFError) as error:
        raise Malformed("the backup is cut short") from error
    if not isinstance(value, list) or len(cast(list[Any], value)) != 2:
        raise Malformed("this is no backup")
    return cast(list[Any], value)


def _schema() -> dict[str, list[str]]:
    return {kind.__name__: [f.name for f in fields(kind)] for kind in ROWS}


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value


def _typed(kind: type[Record], row: list[Any]) -> dict[str, Any]:
    table, values = sql.table(kind), dict(zip(sql.names(kind), row, strict=True))
    for name in values:
        members = getattr(table.c[name].type, "kind", None)
        if members is not None:
            values[name] = members[values[name]]
    return values
