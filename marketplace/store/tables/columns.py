"""The kinds of column that the tables are made of."""

from __future__ import annotations

from enum import Enum
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, String
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field


class Named(TypeDecorator[Enum]):
    """An enumeration stored by the names of its members."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[Enum], length: int | None = 20) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: Enum | None, dialect: Dialect) -> str | None:
        """To the database."""
        return None if value is None else value.name

    def process_result_value(self, value: str | None, dialect: Dialect) -> Enum | None:
        """From it."""
        return None if value is None else self.kind[value]


def as_key(**more: Any) -> Any:
    """Of the primary key."""
    return Field(primary_key=True, **more)


def as_big(**more: Any) -> Any:
    """A 64-bit integer."""
    return Field(sa_type=BigInteger, **more)


def as_json() -> Any:
    """Lists and maps."""
    return Field(sa_type=JSON)
