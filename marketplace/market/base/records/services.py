"""Services: one address for what several jobs serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marketplace.market.base.records.record import Record


@dataclass(frozen=True)
class Service(Record):
    """One address of *account*'s, by *name* once at a time. *auth*: ``token`` or ``public``;
    *sticky*: a browser's requests go to the replica that had its first, while it can; *hold_ms*: so
    long a request waits for a replica where none is in rotation.
    """

    FIXED: ClassVar[frozenset[str]] = frozenset({"account", "name", "created_ms"})
    id: str
    account: str
    name: str
    auth: str
    sticky: bool
    hold_ms: int
    created_ms: int
    version: int = 0


@dataclass(frozen=True)
class Replica(Record):
    """A job of a service, whose *port* is asked. *serving*: it is in rotation; else it answers what
    it has begun with, and gets nothing new.
    """

    KEY: ClassVar[tuple[str, ...]] = ("job",)
    FIXED: ClassVar[frozenset[str]] = frozenset({"service"})
    job: str
    service: str
    port: int
    serving: bool
    version: int = 0


@dataclass(frozen=True)
class ServiceLoad(Record):
    """What passes to a service through one market process, at *at_ms*: requests that are being
    answered (*busy*), those that wait for a replica (*held*); and, since the process began, all
    *requests* and those of them that got no answer (*failed*). *by_job*: the busy ones of each.
    """

    KEY: ClassVar[tuple[str, ...]] = ("service", "process")
    service: str
    process: str
    at_ms: int
    busy: int
    held: int
    requests: int
    failed: int
    by_job: dict[str, int]
    version: int = 0
