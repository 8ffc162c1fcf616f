"""INSERTs of many rows at once.

SQLite: up to 256 rows by one statement, and so one release of the interpreter's lock instead of one
a row: beside a busy event loop the lock comes back only after some 5 ms. PostgreSQL: many rows are
a COPY, which costs the server and the driver a third of as many INSERTs; few are one short prepared
statement in one pipeline. Statements and the way from a record to its row are made once for each
kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import JSON, Dialect, LargeBinary
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from marketplace.market.base.records import Record
from marketplace.store import sql

AT_ONCE: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Few sizes, so that the driver keeps their prepared statements; each of them at most once but the
first.
"""
COPIED: Final = 16
"""From so many rows on a COPY is cheaper: it needs two round trips more."""
_to_json: Final = json.JSONEncoder().encode
_EMPTY: Final = {list: "[]", dict: "{}"}


@dataclass(frozen=True)
class _Kind:
    head: str
    line: str
    copy: str
    fields: Callable[[Any], tuple[Any, ...]]
    binds: tuple[tuple[int, Callable[[Any], Any]], ...]

    def row(self, record: Record) -> list[Any]:
        values = list(self.fields(record))
        for at, bind in self.binds:
            values[at] = bind(values[at])
        return values


class Inserts:
    """Inserts records through connections of one *dialect*."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._kinds: dict[type[Record], _Kind] = {}

    def run(self, connection: Connection, kind: type[Record], records: Sequence[Record]) -> None:
        """All *records*, which are of *kind*; IntegrityError when a key exists."""
        made = self._kinds.get(kind) or self._make(kind)
        if self._dialect.name == "postgresql":
            if len(records) >= COPIED:
                self._copy(connection, made, records)
                return
            rows = [tuple(made.row(record)) for record in records]
            connection.exec_driver_sql(made.head + made.line, rows)
            return
        at = 0
        for size in AT_ONCE:
            while len(records) - at >= size:
                statement = made.head + ",".join([made.line] * size)
                values = [v for r in records[at : at + size] for v in made.row(r)]
                connection.exec_driver_sql(statement, tuple(values))
                at += size

    def _copy(self, connection: Connection, made: _Kind, records: Sequence[Record]) -> None:
        driver: Any = connection.connection.driver_connection
        error_kind = self._dialect.loaded_dbapi.Error
        try:
            with driver.cursor() as cursor, cursor.copy(made.copy) as copy:
                for record in records:
                    copy.write_row(made.row(record))
        except error_kind as error:  # past SQLAlchemy's own door, so through it by hand
            raise DBAPIError.instance(
                made.copy, None, error, error_kind, dialect=self._dialect
            ) from error

    def _make(self, kind: type[Record]) -> _Kind:
        table, names, dialect = sql.table(kind), sql.names(kind), self._dialect
        quote = dialect.identifier_preparer.quote
        mark = "?" if dialect.paramstyle == "qmark" else "%s"
        binds: list[tuple[int, Callable[[Any], Any]]] = []
        for at, name in enumerate(names):
            column = table.c[name].type
            if isinstance(column, JSON):
                binds.append((at, as_json))
            elif not isinstance(column, LargeBinary):  # drivers take bytes as they are
                bind = column.dialect_impl(dialect).bind_processor(dialect)
                if bind is not None:
                    binds.append((at, bind))
        columns = ",".join(quote(name) for name in names)
        line = "(" + ",".join([mark] * len(names)) + ")"
        head = f"INSERT INTO {quote(table.name)} ({columns}) VALUES "
        copy = f"COPY {quote(table.name)} ({columns}) FROM STDIN"
        made = self._kinds[kind] = _Kind(head, line, copy, attrgetter(*names), tuple(binds))
        return made


def as_json(value: Any) -> str:
    """As SQLAlchemy's JSON columns write it; most lists and maps of a new record are empty."""
    return _to_json(value) if value or type(value) not in _EMPTY else _EMPTY[type(value)]
