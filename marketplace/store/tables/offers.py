"""The tables of :mod:`records.offers`."""

from __future__ import annotations

from sqlalchemy import BigInteger
from sqlmodel import Field, SQLModel

from marketplace.domain.supply.offer import OfferState
from marketplace.store.tables.columns import Named, as_big, as_json, as_key


class OfferRow(SQLModel, table=True):
    """:class:`records.OfferRecord`."""

    __tablename__ = "offers"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    provider: str = Field(unique=True)
    state: OfferState = Field(sa_type=Named(OfferState), index=True)  # pyright: ignore[reportArgumentType,reportCallIssue] (an instance is allowed)
    body: bytes
    created_ms: int = as_big()
    seen_ms: int = as_big()
    process: str
    away_ms: int = as_big()
    suspended: str
    version: int


class StockRow(SQLModel, table=True):
    """:class:`records.StockRecord`."""

    __tablename__ = "stocks"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    provider: str = as_key()
    held: bytes
    start_ms: int = as_big()
    pull_ms: int = as_big()
    bytes_s: int = as_big()
    went: list[int] = as_json()
    at_ms: int = as_big()
    version: int


class ImageRow(SQLModel, table=True):
    """:class:`records.ImageRecord`."""

    __tablename__ = "images"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    digest: str = as_key()
    parts: list[tuple[str, int]] = as_json()
    at_ms: int = as_big(index=True)


class InUseHourRow(SQLModel, table=True):
    """:class:`records.InUseHour`."""

    __tablename__ = "in_use_hours"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    at_ms: int = as_key(sa_type=BigInteger)
    looks: int = as_big()
    offers: int = as_big()
    gpu_milli: int = as_big()
    gpu_milli_held: int = as_big()
    core_milli: int = as_big()
    core_milli_held: int = as_big()
    running: int = as_big()
    waiting: int = as_big()
    version: int


class PresenceDayRow(SQLModel, table=True):
    """:class:`records.PresenceDay`."""

    __tablename__ = "presence_days"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    provider: str = as_key()
    day: int = as_key(sa_type=BigInteger, index=True)
    looks: int = as_big()
    there: int = as_big()
    version: int
