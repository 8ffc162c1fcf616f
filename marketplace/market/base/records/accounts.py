"""Who may ask: accounts, how they sign in, their keys, and how they have paid so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from marketplace.market.base.records.record import Record


@dataclass(frozen=True)
class Account(Record):
    """A consumer: hex of its payment key hash (CIP-8 sign-in binds to nothing else)."""

    id: str
    created_ms: int
    suspended: str = ""  # why, empty when it is not
    version: int = 0


@dataclass(frozen=True)
class Login(Record):
    """A challenge that waits for its signature, or (once *account* is set) a signed-in session; or
    a port's token or ticket: then *address* names the port, and *account* is the sha256 of what it
    was made from.
    """

    id: str  # the nonce's or the token's sha256, hex
    address: str
    account: str
    expires_ms: int


@dataclass(frozen=True)
class ApiKey(Record):
    """A scoped key: only the sha256 of its secret is kept; *committed* is what its jobs may
    cost, *month_committed* those of *month* (``202611``), which *month_cap* bounds unless it is 0.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"account", "hash", "name", "verbs", "budget", "month_cap"}
    )
    id: str
    account: str
    hash: str
    name: str
    verbs: list[str]
    budget: int
    created_ms: int
    expires_ms: int
    committed: int = 0
    revoked_ms: int = 0
    month_cap: int = 0
    month: int = 0
    month_committed: int = 0
    version: int = 0


@dataclass(frozen=True)
class PortLink(Record):
    """A link that opens *port* of *job* to whoever has it; only its secret's sha256 is kept. *key*:
    the API key that made it, with which it ends; empty: a signed-in account did.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset({"hash", "account", "job", "port", "key"})
    id: str
    hash: str
    account: str
    job: str
    port: int
    key: str
    created_ms: int
    expires_ms: int


@dataclass(frozen=True)
class PublicImage(Record):
    """A repository of the market's registry that anybody may pull; all others are their
    account's.
    """

    KEY: ClassVar[tuple[str, ...]] = ("repository",)
    repository: str
    account: str
    created_ms: int


@dataclass(frozen=True)
class Standing(Record):
    """What is remembered of an account (*name*: its id) or of a network address (``address.`` and a
    hash): whether it ever paid, quotes that it let lapse or never funded, and leases that ended
    unpaid. Of a provider (its id): whether it was ever paid, and starts that lapsed; of an account
    that such a start let down (``letdown.`` and its id): when.
    """

    KEY: ClassVar[tuple[str, ...]] = ("name",)
    name: str
    paid: int = 0  # channels that money was seen to move over
    lapses: int = 0
    strikes: int = 0  # leases that ended for want of payment
    last_ms: int = 0  # when the last lapse or unpaid end was
    owing: list[str] = field(default_factory=list[str])  # leases that are over and unpaid
    turn: str = ""  # the one lease that an account which never paid has under way
    address: str = ""  # of an account: the name of the address that it last asked from
    version: int = 0
