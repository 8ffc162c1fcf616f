"""The tables of :mod:`records.services`."""

from __future__ import annotations

from sqlalchemy import UniqueConstraint
from sqlmodel import Field, SQLModel

from marketplace.store.tables.columns import as_big, as_json, as_key


class ServiceRow(SQLModel, table=True):
    """:class:`records.Service`."""

    __tablename__ = "services"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    __table_args__ = (UniqueConstraint("account", "name", name="uq_services_account_name"),)
    id: str = as_key()
    account: str
    name: str
    auth: str
    sticky: bool
    hold_ms: int = as_big()
    created_ms: int = as_big()
    version: int


class ReplicaRow(SQLModel, table=True):
    """:class:`records.Replica`."""

    __tablename__ = "replicas"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    job: str = as_key()
    service: str = Field(index=True)
    port: int
    serving: bool
    version: int


class ServiceLoadRow(SQLModel, table=True):
    """:class:`records.ServiceLoad`."""

    __tablename__ = "service_loads"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    service: str = as_key()
    process: str = as_key()
    at_ms: int = as_big(index=True)
    busy: int
    held: int
    requests: int = as_big()
    failed: int = as_big()
    by_job: dict[str, int] = as_json()
    version: int
