"""The tables of :mod:`records.accounts`."""

from __future__ import annotations

from sqlmodel import Field, SQLModel

from marketplace.store.tables.columns import as_big, as_json, as_key


class AccountRow(SQLModel, table=True):
    """:class:`records.Account`."""

    __tablename__ = "accounts"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    created_ms: int = as_big()
    suspended: str
    version: int


class LoginRow(SQLModel, table=True):
    """:class:`records.Login`."""

    __tablename__ = "logins"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    address: str
    account: str
    expires_ms: int = as_big(index=True)


class ApiKeyRow(SQLModel, table=True):
    """:class:`records.ApiKey`."""

    __tablename__ = "api_keys"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    account: str = Field(index=True)
    hash: str = Field(unique=True)
    name: str
    verbs: list[str] = as_json()
    budget: int = as_big()
    created_ms: int = as_big()
    expires_ms: int = as_big()
    committed: int = as_big()
    revoked_ms: int = as_big()
    month_cap: int = as_big()
    month: int
    month_committed: int = as_big()
    version: int


class PortLinkRow(SQLModel, table=True):
    """:class:`records.PortLink`."""

    __tablename__ = "port_links"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    id: str = as_key()
    hash: str = Field(unique=True)
    account: str = Field(index=True)
    job: str = Field(index=True)
    port: int
    key: str
    created_ms: int = as_big()
    expires_ms: int = as_big(index=True)


class PublicImageRow(SQLModel, table=True):
    """:class:`records.PublicImage`."""

    __tablename__ = "public_images"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    repository: str = as_key()
    account: str = Field(index=True)
    created_ms: int = as_big()


class StandingRow(SQLModel, table=True):
    """:class:`records.Standing`."""

    __tablename__ = "standings"  # pyright: ignore[reportAssignmentType] (SQLModel's own idiom)
    name: str = as_key()
    paid: int = as_big()
    lapses: int = as_big()
    strikes: int = as_big()
    last_ms: int = as_big()
    owing: list[str] = as_json()
    turn: str
    address: str
    version: int
