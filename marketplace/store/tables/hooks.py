"""The tables of :mod:`records.hooks`."""

from __future__ import annotations

from typing import Any

from sqlmodel import Field, SQLModel

from marketplace.store.tables.columns import as_big, as_json, as_key


class HookRow(SQLModel, table=True):
    """:class:`records.Hook`."""

    __tablename__ = "webhooks"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    account: str = Field(index=True)
    url: str
    kinds: list[str] = as_json()
    created_ms: int = as_big()
    rotation: int
    failures: int
    version: int


class DeliveryRow(SQLModel, table=True):
    """:class:`records.Delivery`."""

    __tablename__ = "deliveries"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    hook: str = Field(index=True)
    body: dict[str, Any] = as_json()
    next_ms: int = as_big(index=True)
    attempts: int
    done_ms: int = as_big(index=True)
    status: int
    error: str
    version: int
