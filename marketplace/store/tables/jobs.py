"""The tables of :mod:`records.jobs`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index
from sqlmodel import Field, SQLModel

from marketplace.domain.work.gang import GangState
from marketplace.domain.work.job_machine import JobState
from marketplace.domain.work.preemption import PreemptionState
from marketplace.store.tables.columns import Named, as_big, as_json, as_key


class JobRow(SQLModel, table=True):
    """:class:`records.Job`."""

    __tablename__ = "jobs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    account: str
    api_key: str = Field(index=True)
    name: str
    kind: str
    spec: dict[str, Any] = as_json()
    consumer_vkh: bytes
    channels: list[str] = as_json()
    state: JobState = Field(sa_type=Named(JobState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    created_ms: int = as_big()
    updated_ms: int = as_big()
    session_vk: bytes
    spares: list[str] = as_json()
    priority: int
    lease: str
    provider: str
    reason: str
    message: str
    exit_code: int | None
    needs: str
    retries: int
    spent_before: int = as_big()
    avoid: list[str] = as_json()
    explain: dict[str, Any] = as_json()
    gang: str = Field(index=True)
    busy: dict[str, int] = as_json()
    not_before_ms: int = as_big()
    hop: bytes
    direct: list[str] = as_json()
    version: int


Index("jobs_by_account", JobRow.account, JobRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class GangRow(SQLModel, table=True):
    """:class:`records.Gang`."""

    __tablename__ = "gangs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    account: str
    state: GangState = Field(sa_type=Named(GangState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    reason: str
    version: int


class PreemptionRow(SQLModel, table=True):
    """:class:`records.Preemption`."""

    __tablename__ = "preemptions"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    job: str = as_key()
    account: str = Field(index=True)
    state: PreemptionState = Field(sa_type=Named(PreemptionState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    offer: str
    gpus: list[str] = as_json()
    block: int
    victims: list[str] = as_json()
    created_ms: int = as_big()
    deadline_ms: int = as_big()
    expires_ms: int = as_big()
    version: int


class EventRow(SQLModel, table=True):
    """:class:`records.Event`."""

    __tablename__ = "events"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    job: str
    lease: str
    account: str
    at_ms: int = as_big()
    kind: str
    detail: dict[str, Any] = as_json()


Index("events_by_job", EventRow.job, EventRow.id)  # pyright: ignore[reportArgumentType] (columns at class level)


class LogRow(SQLModel, table=True):
    """:class:`records.LogRecord`."""

    __tablename__ = "logs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    lease: str = as_key()
    offset: int = as_key(sa_type=BigInteger)
    job: str = Field(index=True)
    stream: str
    data: bytes
    at_ms: int = as_big()


class OutputRow(SQLModel, table=True):
    """:class:`records.Output`."""

    __tablename__ = "outputs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    job: str = as_key()
    path: str = as_key()
    lease: str
    sha256: str = Field(index=True)
    size: int = as_big()
    at_ms: int = as_big()
    signature: str


class BlobRow(SQLModel, table=True):
    """:class:`records.Blob`."""

    __tablename__ = "blobs"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    account: str = as_key()
    sha256: str = as_key()
    size: int = as_big()
    at_ms: int = as_big()
