"""SELECTs by shape: each is built and compiled once, and goes straight to the driver after that.

The *shape* of a question is its record, which fields it compares and how, its order, and how many
values stand in a list; only the values differ from one time to the next. So a read by key costs
what the driver and the thread cost, a quarter of building, compiling and wrapping it each time.
Lists are filled up to a power of two with their last value, or every length would be a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import BindParameter, Dialect, Integer, Select, bindparam
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from marketplace.market.base.records import Record
from marketplace.store import sql

R = TypeVar("R", bound=Record)
SHAPES: Final = 2_000
MOST_VALUES: Final = 4_096  # of one query: SQLite takes 32,766
_ONE: Final = -1  # the count of a value that is no list
_NULL: Final = -2
Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class _Ask:
    """A compiled statement: which value is its each parameter, and how a row becomes fields."""

    text: str
    order: tuple[tuple[int, Convert | None], ...]
    results: tuple[tuple[int, Convert], ...]


class Reads:
    """Blocking reads over *engine*, whose connections must be in autocommit; SQLAlchemyError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        style = "qmark" if engine.dialect.name == "sqlite" else "format"
        dialect: Any = type(engine.dialect)
        self._flat: Dialect = dialect(paramstyle=style)  # parameters by position
        self._selection = lru_cache(SHAPES)(self._make_selection)
        self._newest = lru_cache(SHAPES)(self._make_newest)
        self._membership = lru_cache(SHAPES)(self._make_membership)

    def find(
        self,
        kind: type[R],
        where: dict[str, object],
        order: Sequence[str],
        after: tuple[object, ...] | None,
        limit: int,
    ) -> list[R]:
        """See ``ports.Store.find``."""
        shape = tuple((name, _count(value)) for name, value in where.items())
        if any(count == 0 for _, count in shape):
            return []  # one of nothing
        places = len(after) if after is not None else _NULL
        ask = self._selection(kind, shape, tuple(order), places)
        given = [v for value in where.values() for v in _listed(value)]
        return [kind(*row) for row in self._run(ask, [*given, *(after or ()), limit])]

    def by_key(
        self, kind: type[R], keys: Sequence[tuple[object, ...]]
    ) -> dict[tuple[object, ...], R]:
        """The records that there are of *keys*, which may repeat; at most :data:`MOST_VALUES`."""
        wanted = list(dict.fromkeys(keys))
        if len(kind.KEY) == 1:
            where: dict[str, object] = {kind.KEY[0]: [key[0] for key in wanted]}
            found = self.find(kind, where, (), None, len(wanted))
        else:
            each = (dict(zip(kind.KEY, key, strict=True)) for key in wanted)
            found = [one for where in each for one in self.find(kind, where, (), None, 1)]
        return {tuple(getattr(one, name) for name in kind.KEY): one for one in found}

    def newest(
        self, kind: type[R], group: str, by: str, values: Sequence[object]
    ) -> dict[object, R]:
        """See ``ports.Store.newest``."""
        found: dict[object, R] = {}
        for some in _slices(values):
            for row in self._run(self._newest(kind, group, by, len(some)), some):
                record = kind(*row)
                found[getattr(record, group)] = record
        return found

    def among(self, kind: type[Record], column: str, values: Sequence[object]) -> set[object]:
        """See ``ports.Store.among``."""
        found: set[object] = set()
        for some in _slices(values):
            found |= {row[0] for row in self._run(self._membership(kind, column, len(some)), some)}
        return found

    def number(self, statement: Select[Any]) -> int:
        """The one integer that *statement* selects."""
        with self._engine.connect() as connection:
            return int(connection.execute(statement).scalar_one())

    def _run(self, ask: _Ask, given: Sequence[object]) -> list[Sequence[Any]]:
        values = [given[i] if bind is None else bind(given[i]) for i, bind in ask.order]
        error_kind = self._engine.dialect.loaded_dbapi.Error
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute(ask.text, values)
            rows = cast(list[Sequence[Any]], cursor.fetchall())
            cursor.close()
        except error_kind as error:
            raise DBAPIError.instance(
                ask.text, None, error, error_kind, dialect=self._engine.dialect
            ) from error
        finally:
            connection.close()
        return [_converted(row, ask.results) for row in rows] if ask.results else rows

    # ---- made once for each shape --------------------------------------------------------------

    def _make_selection(
        self,
        kind: type[Record],
        shape: tuple[tuple[str, int], ...],
        order: tuple[str, ...],
        places: int,
    ) -> _Ask:
        columns, values = sql.table(kind).c, _Values()
        where = {
            name: values.of(count, columns[name.partition("__")[0]].type) for name, count in shape
        }
        after: tuple[object, ...] | None = None
        if places != _NULL:
            ordered = [name.removeprefix("-") for name in order or kind.KEY]
            after = tuple(values.of(_ONE, columns[name].type) for name in ordered[:places])
        limit = values.take(1, Integer())[0]
        statement = sql.selection(kind, where, order, after, limit)
        return self._compiled(kind, sql.names(kind), statement)

    def _make_newest(self, kind: type[Record], group: str, by: str, count: int) -> _Ask:
        values = _Values().take(count, sql.table(kind).c[group].type)
        return self._compiled(kind, sql.names(kind), sql.newest(kind, group, by, values))

    def _make_membership(self, kind: type[Record], column: str, count: int) -> _Ask:
        values = _Values().take(count, sql.table(kind).c[column].type)
        return self._compiled(kind, (column,), sql.membership(kind, column, values))

    def _compiled(self, kind: type[Record], names: Iterable[str], statement: Select[Any]) -> _Ask:
        made, dialect = statement.compile(dialect=self._flat), self._engine.dialect
        given = {f"v{n}": n for n in range(len(made.binds))}
        order: list[tuple[int, Convert | None]] = []
        for name in made.positiontup or ():
            bind = made.binds[name].type.dialect_impl(dialect).bind_processor(dialect)
            if name in given:
                order.append((given[name], bind))
            else:  # a constant of the dialect's own, such as OFFSET 0
                order.append((0, partial(_always, made.params[name])))
        results: list[tuple[int, Convert]] = []
        for at, name in enumerate(names):
            column = sql.table(kind).c[name].type
            result = column.dialect_impl(dialect).result_processor(dialect, None)
            if result is not None:
                results.append((at, result))
        return _Ask(str(made), tuple(order), tuple(results))


class _Values:
    """Placeholders ``v0``, ``v1``, … in the order in which the values will be given."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, count: int, kind: TypeEngine[Any]) -> list[BindParameter[Any]]:
        """The next *count*, of a column's type."""
        names = range(self._taken, self._taken + count)
        self._taken += count
        return [bindparam(f"v{n}", type_=kind) for n in names]

    def of(self, count: int, kind: TypeEngine[Any]) -> object:
        """In the place of a value, of a list of *count* values, or of NULL."""
        if count == _NULL:
            return None
        return self.take(1, kind)[0] if count == _ONE else self.take(count, kind)


def _count(value: object) -> int:
    if value is None:
        return _NULL
    return _filled(len(cast("Sequence[object]", value))) if sql.is_list(value) else _ONE


def _listed(value: object) -> Iterable[object]:
    if value is None:
        return ()
    return _fill(list(cast("Sequence[object]", value))) if sql.is_list(value) else (value,)


def _filled(count: int) -> int:
    """The next power of two, as far as that is one query's."""
    return 1 << (count - 1).bit_length() if 0 < count <= MOST_VALUES else count


def _fill(values: list[object]) -> list[object]:
    return values + values[-1:] * (_filled(len(values)) - len(values))


def _always(constant: object, _given: object) -> object:
    return constant


def _slices(values: Sequence[object]) -> list[Sequence[object]]:
    every = range(0, len(values), MOST_VALUES)
    return [_fill(list(values[at : at + MOST_VALUES])) for at in every]


def _converted(row: Sequence[Any], results: tuple[tuple[int, Convert], ...]) -> list[Any]:
    values = list(row)
    for at, convert in results:
        values[at] = convert(values[at])
    return values
