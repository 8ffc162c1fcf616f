"""The tables of :mod:`records.leases`."""

from __future__ import annotations

from sqlmodel import Field, Index, SQLModel

from marketplace.domain.work.lease import LeaseState
from marketplace.store.tables.columns import Named, as_big, as_json, as_key


class LeaseRow(SQLModel, table=True):
    """:class:`records.Lease`."""

    __tablename__ = "leases"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    job: str = Field(index=True)
    offer: str
    provider: str = Field(index=True)
    account: str = Field(index=True)
    session_vk: bytes = Field(index=True)
    state: LeaseState = Field(sa_type=Named(LeaseState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    terms: bytes
    rate_micro: int = as_big()
    ceiling: int = as_big()
    units_milli: int = as_big()
    resource: str
    gpus: list[str] = as_json()
    share: int
    cpu_milli: int = as_big()
    memory_mib: int = as_big()
    disk_mib: int = as_big()
    block: int
    device: str
    simulated: bool
    reused: bool
    created_ms: int = as_big()
    expires_ms: int = as_big()
    adapter_signature: bytes
    session_signature: bytes
    channel_tx: str
    secrets: dict[str, str] = as_json()
    open_tx: bytes
    reason: str
    message: str
    stage: str
    exit_code: int | None
    started_ms: int = as_big()
    finished_ms: int = as_big()
    ended_ms: int = as_big()
    stop_asked: str
    settled_tx: str
    owed: int = as_big()
    hop: bytes
    route: dict[str, str] = as_json()
    renewal: bytes
    renewal_signature: bytes
    renewal_refused: str
    version: int


class LeaseKeyRow(SQLModel, table=True):
    """:class:`records.LeaseKey`."""

    __tablename__ = "lease_keys"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    session_vk: bytes = as_key()
    lease: str
    account: str
    provider: str
    hop: bytes = Field(index=True)
    paid: bool
    version: int


class ClusterWordRow(SQLModel, table=True):
    """:class:`records.ClusterWord`."""

    __tablename__ = "cluster_words"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    lease: str = as_key()
    word: str = as_key()
    number: int = as_big()
    body: bytes
    signature: bytes
    at_ms: int = as_big()


Index("cluster_words_by_word", ClusterWordRow.word, ClusterWordRow.at_ms)  # pyright: ignore[reportArgumentType] (columns at class level)


class KeptStoreRow(SQLModel, table=True):
    """:class:`records.KeptStore`."""

    __tablename__ = "kept_stores"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    account: str = as_key()
    name: str = as_key()
    used_ms: int = as_big()
