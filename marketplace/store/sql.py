"""Statements, built once for each record and kept: the rows that records become, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, cast

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Delete,
    Insert,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy import column as named
from sqlalchemy import values as listed
from sqlalchemy.dialects import postgresql, sqlite

from marketplace.market.base.records import ClusterWord, KeptStore, Record, VoucherRecord
from marketplace.store.tables import ROWS

R = TypeVar("R", bound=Record)
GREATEST: Final[dict[type[Record], str]] = {
    VoucherRecord: "cumulative",
    ClusterWord: "number",
    KeptStore: "used_ms",
}
"""Records that only ever grow, and by which field."""
_COMPARE: Final = {"lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__", "ne": "__ne__"}


@cache
def table(kind: type[Record]) -> Table:
    """The record's table."""
    row: Any = ROWS[kind]
    return row.__table__


@cache
def names(kind: type[Record]) -> tuple[str, ...]:
    """Its columns, in the order of the record's fields."""
    return tuple(f.name for f in fields(kind))


def values(record: Record) -> dict[str, Any]:
    """The row of *record*."""
    return {name: getattr(record, name) for name in names(type(record))}


@cache
def insertion(kind: type[Record]) -> Insert:
    """INSERT of one row; a key that exists is an integrity error."""
    return insert(table(kind))


@cache
def compare_and_set(kind: type[Record]) -> Update:
    """UPDATE of the changing columns WHERE the key and the version are those of ``was_…``."""
    t = table(kind)
    changing = [n for n in names(kind) if n not in kind.FIXED and n not in (*kind.KEY, "version")]
    where = [t.c[k] == bindparam(f"was_{k}") for k in kind.KEY]
    fresh: dict[str, Any] = {n: bindparam(f"new_{n}") for n in changing}
    fresh["version"] = t.c["version"] + 1
    return update(t).where(*where, t.c["version"] == bindparam("was_version")).values(fresh)


def changed(record: Record) -> dict[str, Any]:
    """The parameters of :func:`compare_and_set`."""
    kind = type(record)
    row = {f"new_{n}": getattr(record, n) for n in names(kind) if n not in kind.FIXED}
    row |= {f"was_{k}": getattr(record, k) for k in (*kind.KEY, "version")}
    for name in (*kind.KEY, "version"):
        row.pop(f"new_{name}", None)
    return row


@cache
def raising(kind: type[Record], dialect: str) -> Insert:
    """INSERT, or UPDATE when the stored one is lesser by :data:`GREATEST`."""
    t, by = table(kind), GREATEST[kind]
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = make(t)
    rest = {n: statement.excluded[n] for n in names(kind) if n not in kind.KEY}
    return statement.on_conflict_do_update(
        index_elements=[t.c[k] for k in kind.KEY],
        set_=rest,
        where=t.c[by] < statement.excluded[by],
    )


@cache
def removal(kind: type[Record]) -> Delete:
    """DELETE by key."""
    t = table(kind)
    return delete(t).where(*(t.c[k] == bindparam(f"was_{k}") for k in kind.KEY))


def key_of(record: Record) -> dict[str, Any]:
    """The parameters of :func:`removal`."""
    return {f"was_{k}": getattr(record, k) for k in type(record).KEY}


def condition(kind: type[Record], where: dict[str, object]) -> list[ColumnElement[bool]]:
    """The WHERE clauses of ``Store.find``."""
    t, clauses = table(kind), list[ColumnElement[bool]]()
    for name, value in where.items():
        column, _, how = name.partition("__")
        c = t.c[column]
        if how:
            clauses.append(getattr(c, _COMPARE[how])(value))
        elif is_list(value):
            clauses.append(c.in_(list(cast(Sequence[object], value))))
        else:
            clauses.append(c == value)
    return clauses


def is_list(value: object) -> bool:
    """True when *value* means any of its members."""
    return isinstance(value, (tuple, list, set, frozenset))


def selection(
    kind: type[Record],
    where: dict[str, object],
    order: Sequence[str],
    after: tuple[object, ...] | None,
    limit: int | BindParameter[Any],
) -> Select[Any]:
    """SELECT of whole records, by keyset pages."""
    t = table(kind)
    order = order or kind.KEY
    columns = [(t.c[n.removeprefix("-")], n.startswith("-")) for n in order]
    clauses = condition(kind, where)
    if after is not None:
        clauses.append(_beyond(columns, after))
    sort = [c.desc() if down else c.asc() for c, down in columns]
    return select(*(t.c[n] for n in names(kind))).where(*clauses).order_by(*sort).limit(limit)


def _beyond(columns: list[tuple[Any, bool]], after: tuple[object, ...]) -> ColumnElement[bool]:
    """Rows after *after* in the order of *columns*: (a > x) or (a = x and b > y) …"""
    ways: list[ColumnElement[bool]] = []
    for i, (column, down) in enumerate(columns):
        same = [columns[j][0] == after[j] for j in range(i)]
        ways.append(and_(*same, column < after[i] if down else column > after[i]))
    return or_(*ways)


def membership(
    kind: type[Record], column: str, values: Sequence[BindParameter[Any]]
) -> Select[Any]:
    """SELECT of those of *values* that *column* holds."""
    c = table(kind).c[column]
    return select(c).where(c.in_(values))


def newest(
    kind: type[Record], group: str, by: str, values: Sequence[BindParameter[Any]]
) -> Select[Any]:
    """SELECT of the record with the greatest *by* for each of *values* of *group*.

    One step into the index (group, by) for each value, however many records it has.
    """
    t = table(kind)
    other = t.alias()
    asked = listed(named("value", t.c[group].type), name="asked").data([(v,) for v in values])
    value = asked.cte("asked").c["value"]
    last = select(func.max(other.c[by])).where(other.c[group] == value).scalar_subquery()
    on = and_(t.c[group] == value, t.c[by] == last)
    return select(*(t.c[n] for n in names(kind))).where(on)


def counting(kind: type[Record], where: dict[str, object]) -> Select[Any]:
    """SELECT count(*)."""
    return select(func.count()).select_from(table(kind)).where(*condition(kind, where))


def summing(kind: type[Record], column: str, where: dict[str, object]) -> Select[Any]:
    """SELECT sum(column)."""
    t = table(kind)
    return select(func.coalesce(func.sum(t.c[column]), 0)).where(*condition(kind, where))
