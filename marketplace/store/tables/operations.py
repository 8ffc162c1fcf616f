"""The tables of :mod:`records.operations`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from marketplace.store.tables.columns import as_big, as_json, as_key


class SentRow(SQLModel, table=True):
    """:class:`records.Sent`: the outbox."""

    __tablename__ = "outbox"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    target: str
    payload: bytes
    at_ms: int = as_big()


Index("outbox_by_target", SentRow.target, SentRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class RememberedRow(SQLModel, table=True):
    """:class:`records.Remembered`."""

    __tablename__ = "remembered"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    account: str = as_key()
    key: str = as_key()
    question: str
    status: int
    answer: dict[str, Any] = as_json()
    at_ms: int = as_big(index=True)


class AuditRow(SQLModel, table=True):
    """:class:`records.Audit`."""

    __tablename__ = "audit"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    at_ms: int = as_big()
    actor: str = Field(index=True)
    action: str
    subject: str = Field(index=True)
    detail: dict[str, Any] = as_json()


class SettingRow(SQLModel, table=True):
    """:class:`records.Setting`."""

    __tablename__ = "settings"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = as_key()
    value: str
    version: int


class LockRow(SQLModel, table=True):
    """:class:`records.Lock`."""

    __tablename__ = "locks"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = as_key()
    holder: str
    epoch: int
    beat: int = as_big()
    version: int = as_big()


class ProcessRow(SQLModel, table=True):
    """:class:`records.Process`."""

    __tablename__ = "processes"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    started_ms: int = as_big()
    beat_ms: int = as_big()
    version: int = as_big()
